"""Merging along a curve: the place and the box of a row in SQL are those in NumPy, and blocks are disjoint boxes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from merges import SMALL_ROW_GROUPS, merge_groups, rows_by_file
from tables import MERGE_METHODS, checksum, create_table, spark_settings

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.session.jvm import collect_arrow
from dbt_recluster.key.box_tree import SHARE, SHARES, Points, cut_into_boxes
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import quote_path
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.sql import KeySql, box_steps, with_steps
from dbt_recluster.key.transforms import Truncate


def values(spark: Any, name: str, key: ClusterKey) -> tuple[pa.Array, list[pa.Array]]:
    """The id of each row, and the items of the curve as bounds of blocks have them."""
    columns = [f"{quote_path(field.column)} as c{place}" for place, field in enumerate(key.on_curve)]
    rows = collect_arrow(spark.table(name).selectExpr("id", *columns)).combine_chunks()
    arrays = [rows.column(f"c{place}").combine_chunks() for place in range(len(columns))]
    arrays = [array.chunk(0) if isinstance(array, pa.ChunkedArray) else array for array in arrays]
    items = [field.transform.values(array) for field, array in zip(key.on_curve, arrays, strict=True)]
    return rows.column("id").to_numpy(), items


def make_curve(items: Sequence[pa.Array], bits: int = 10) -> Curve:
    curve = Curve.from_columns(items, bits=bits)
    assert curve is not None
    return curve


CURVES = [
    ["hilbert(hours(ts), days(tz), months(day), i)"],
    ["hilbert(i, l)"],
    ["hilbert(d, f)"],
    ["hilbert(s, b, n)"],
    ["hilbert(w, day, ts, tz)"],
    ["i", "hilbert(flag, st.x)"],
    ["hilbert(years(ts), days(day), truncate(10, i))"],
    ["hilbert(truncate(19, u), truncate(2, b), truncate(50, n), truncate(7, l))"],
]


@pytest.mark.parametrize("bits", [10, pytest.param(3, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "key", [CURVES[0], *(pytest.param(key, marks=pytest.mark.thorough) for key in CURVES[1:])], ids=str
)
def test_the_place_in_sql_is_that_of_the_curve(spark: Any, typed: tuple[str, Any], key: list[str], bits: int) -> None:
    name, _ = typed
    parsed = parse_cluster_key(key).check(IcebergTable.load(spark, name).columns())
    ids, items = values(spark, name, parsed)
    # Boundaries of every other value: some rows lie outside, and most are between two boundaries.
    curve = make_curve([item.slice(100, 300) for item in items], bits)
    # Of truncated values the next one is unknown.
    ascending = tuple(not isinstance(field.transform, Truncate) for field in parsed.on_curve)
    curve = replace(curve, ascending=ascending)
    expected = [*zip(ids.tolist(), curve.index(items).tolist(), curve.index_of_load(items).tolist(), strict=True)]
    assert len({place for _, place, _ in expected}) >= 8
    types = IcebergTable.load(spark, name).columns().types
    with spark_settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        query = KeySql(parsed, types, curve).query_of_load(f"select * from {name}", curve)
        found = spark.sql(f"select id, place, place_of_load from ({query})").collect()
    assert sorted(map(tuple, found)) == sorted(expected)


def merge_all(
    spark: Any,
    name: str,
    key: str | list[str],
    block_rows: int,
    curve: Curve | None = None,
    method: str | None = None,
    refusals: list[str | None] | None = None,
) -> tuple[Curve, list[list[str]]]:
    """Merge each partition of a table as one group; return the curve and the paths of each group's files."""
    table = IcebergTable.load(spark, name)
    parsed = parse_cluster_key(key).check(table.columns())
    curve = curve or make_curve(values(spark, name, parsed)[1])
    merged = merge_groups(table, parsed, block_rows, method, curve, refusals)
    return curve, [[file.location() for file in files] for files in merged]


def check_blocks(
    spark: Any, name: str, key: str | list[str], curve: Curve, sets: list[list[str]], block_rows: int
) -> None:
    """Check that blocks are sorted along the curve, small enough, and disjoint: as boxes, or behind leading columns."""
    parsed = parse_cluster_key(key).check(IcebergTable.load(spark, name).columns())
    ids, items = values(spark, name, parsed)
    ranks = dict(zip(ids.tolist(), np.column_stack(curve.ranks(items)).tolist(), strict=True))
    place = dict(zip(ids.tolist(), curve.index(items).tolist(), strict=True))
    leading = "".join(f"{quote_path(field.column)}, " for field in parsed.leading)
    order = f"dense_rank() over (order by {leading}1)" if leading else "0"
    inside = rows_by_file(spark, name, f"{order}, id")
    for files in sets:
        blocks = [[(rank, place[number]) for rank, number in inside[path]] for path in files]
        assert all(block == sorted(block) for block in blocks)
        assert all(len(block) <= block_rows for block in blocks)
        if leading:
            assert all(left[-1] <= right[0] for left, right in pairwise(blocks))
            continue
        boxes = [np.array([ranks[number] for _, number in inside[path]]) for path in files]
        ends = [(box.min(axis=0), box.max(axis=0)) for box in boxes]
        for (lower, upper), (other_lower, other_upper) in combinations(ends, 2):
            assert ((upper < other_lower) | (lower > other_upper)).any()


# A shuffle sorts by the place alone, whatever the types; a range has literals of each.
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "block_rows"), [("native", 170), pytest.param("spark", 110, marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize(
    "key",
    [pytest.param(key, marks=pytest.mark.exhaustive if place % 3 else ()) for place, key in enumerate(CURVES)],
    ids=str,
)
def test_any_type_has_a_curve(spark: Any, typed: tuple[str, Any], key: list[str], method: str, block_rows: int) -> None:
    name, refusals = typed[0] if method == "spark" else f"{typed[0]}_native", list[str | None]()
    before = checksum(spark, name)
    curve, sets = merge_all(spark, name, key, block_rows, method=method, refusals=refusals)
    assert checksum(spark, name) == before
    # DuckDB truncates no decimals, and the cuts of a curve behind other columns are Spark's.
    native = "key" if "(50, n)" in key[-1] else "curve" if len(key) > 1 else None
    assert refusals == ["off" if method == "spark" else native]
    check_blocks(spark, name, key, curve, sets, block_rows)


def make_points(spark: Any, schema: str, version: int = 2, partitioned: str | None = None) -> str:
    """Make a table of points: ``x`` uniform, ``y`` skewed with many NULLs, ``g`` one of three."""
    more = {"write.spark.fanout.enabled": "true", "format-version": version}
    if version > 1 and not partitioned:
        more["write.delete.mode"] = "merge-on-read"
    columns = "id bigint, x int, y double, g int"
    name = create_table(spark, f"{schema}.points", columns, {**SMALL_ROW_GROUPS, **more}, partitioned)
    for load in range(3):
        spark.sql(
            f"insert into {name} select /*+ coalesce(1) */ id, cast(rand({load}) * 100000 as int), "
            f"if(id % 10 = 0, null, floor(pow(rand({load + 50}), 3) * 1000) / 7), cast(id % 3 as int) "
            f"from range({load * 2000}, {load * 2000 + 2000})"
        )
    return name


@pytest.mark.parametrize(
    ("version", "partitioned"),
    [
        (3, None),
        pytest.param(2, "g", marks=pytest.mark.thorough),
        *(pytest.param(version, None, marks=pytest.mark.exhaustive) for version in (1, 2)),
    ],
)
def test_blocks_are_cut_along_the_curve(spark: Any, schema: str, version: int, partitioned: str | None) -> None:
    name = make_points(spark, schema, version, partitioned)
    spark.sql(f"delete from {name} where id % 5 = 1")
    before = checksum(spark, name)
    for key, method in product(("hilbert(x, y)", ["g", "hilbert(y, x)"]), MERGE_METHODS):
        curve, sets = merge_all(spark, name, key, 300, method=method)
        assert checksum(spark, name) == before
        check_blocks(spark, name, key, curve, sets, 300)


@pytest.mark.thorough
def test_rows_of_equal_ranks_share_blocks(spark: Any, schema: str) -> None:
    name = make_points(spark, schema)
    # The curve knows one value of each column, so all rows have one of four pairs of ranks.
    curve = Curve((pa.array([50_000] * 1023, pa.int32()), pa.array([1.0] * 1023)))
    before = checksum(spark, name)
    _, (files,) = merge_all(spark, name, "hilbert(x, y)", 500, curve)
    assert checksum(spark, name) == before
    sizes = dict(spark.sql(f"select _file, count(*) from {name} group by _file").collect())
    assert set(sizes) == set(files)
    assert max(sizes.values()) <= 500


@pytest.mark.thorough
def test_boundaries_that_somebody_changed_cost_work_and_no_rows(spark: Any, schema: str) -> None:
    name = make_points(spark, schema)
    before = checksum(spark, name)
    changed = (
        pa.array([9, 1, 5] * 341, pa.int64()),  # not ascending
        pa.array([2**62] * 1023),  # beyond the type
        pa.array([float(i) for i in range(1023)]).cast(pa.int16()),
    )
    good, nan = pa.array([float(i) for i in range(1023)]), pa.array([float("nan")] * 1023)
    for curve in map(Curve, product(changed, (good, nan))):
        merge_all(spark, name, "hilbert(x, y)", 500, curve, "native")
        assert checksum(spark, name) == before


def test_boxes_in_sql_are_those_of_the_tree(spark: Any) -> None:
    """Several trees, one of them without a cut, and one with rows of equal ranks."""
    random = np.random.default_rng(0)
    trees = []
    for rows, most in ((3000, 1024), (1, 5), (900, 3)):
        rank = random.integers(0, most, (rows, 2))
        trees.append(cut_into_boxes(Points(rank, rank, np.ones(rows)), 50, 1024, 0.1))
    assert len(trees[1]) == 1
    assert (trees[2].column == SHARE).any()
    tree, rank = random.integers(0, 3, 500), random.integers(0, 1024, (500, 2))
    share = random.integers(0, SHARES, 500)
    first = np.cumsum([0, *map(len, trees)])
    expected = [
        int(first[number] + trees[number].box_of(rank[[row]], share[[row]])[0])
        for row, number in enumerate(tree.tolist())
    ]
    columns = [tree.tolist(), *rank.T.tolist(), share.tolist()]
    frame = spark.createDataFrame(
        list(zip(range(500), *columns, strict=True)), "id int, t int, r int, s int, share int"
    )
    frame.createOrReplaceTempView("ranks")
    query = with_steps("select * from ranks", box_steps(trees, "t", ["r", "s", "share"], "box"))
    found = spark.sql(f"{query} order by id").collect()
    assert [row.box for row in found] == expected
