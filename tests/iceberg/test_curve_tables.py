"""Tables with a key of equal weight: rows, levels, boundaries and rest."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tables import checksum, create_table, recluster_keeping_rows, spark_settings, stays_as_it_is, writers

from dbt_recluster.adapter.table_clustering import sorted_along_curve
from dbt_recluster.api import (
    ClusteredTable,
    blocks_opened,
    clustering_history,
    clustering_information,
    recluster,
)
from dbt_recluster.clustering import table_curve
from dbt_recluster.clustering.table_curve import as_properties, recorded_curve
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.session.jvm import collect_arrow
from dbt_recluster.iceberg.sort_order import sort_order_text
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.key.curve import Curve

ROWS = 4_000
FINAL: dict[str, Any] = {"depth": 1, "block_rows": 500, "final": True}
A, B = "(id * 7919) % 4001", "cast(hash(id, {seed}) % 5000 as bigint)"


def make_table(spark: Any, schema: str, ddl: str = "", loads: int = 6) -> str:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (id bigint, a bigint, b bigint, p int) using iceberg {ddl}")
    for number in range(loads):
        load(spark, name, number)
    return name


def load(spark: Any, name: str, number: int, *more: str) -> None:
    frame = spark.range(number * ROWS, number * ROWS + ROWS).selectExpr(
        "id", f"{A} a", f"{B.format(seed=number)} b", "cast(id % 2 as int) p", *more
    )
    frame.coalesce(1).writeTo(name).append()


def properties(spark: Any, name: str) -> dict[str, str]:
    return IcebergTable.load(spark, name).properties


def opened(spark: Any, name: str, column: str, values: Any = range(100, 4_000, 400)) -> float:
    values = list(values)
    return sum(blocks_opened(spark, name, f"{column} = {value}") for value in values) / len(values)


def make_texts(spark: Any, schema: str, text: str) -> str:
    """Make a table of an ``id`` and a text in four overlapping files."""
    name = create_table(spark, f"{schema}.t", "id bigint, s string")
    for number in range(4):
        frame = spark.range(number * 500, number * 500 + 500).selectExpr("id", f"{text} s")
        frame.coalesce(1).writeTo(name).append()
    return name


@pytest.mark.parametrize(
    ("ddl", "key", "most"),
    [
        ("", "hilbert(a, b)", 1000),
        # With more blocks, the whole table is sampled.
        ("partitioned by (p)", "hilbert(a, b)", 3),
        pytest.param("", "p, hilbert(a, b)", 1000, marks=pytest.mark.thorough),
    ],
)
def test_points_of_both_columns_open_few_blocks_and_the_rows_stay(
    spark: Any, schema: str, ddl: str, key: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_curve, "_MOST_SAMPLED_BLOCKS", most)
    name = make_table(spark, schema, ddl)
    blocks = recluster_keeping_rows(spark, name, key, **FINAL).blocks_after
    assert spark.table(f"{name}.files").count() == blocks >= 48
    # sqrt(48) is 7; a plain key opens all blocks for a value of its second column.
    for column in ("a", "b"):
        assert opened(spark, name, column) < (18 if ddl or key.startswith("p") else 12)
    if key.startswith("p"):
        assert opened(spark, name, "p", [0, 1]) <= blocks / 2 + 1
        assert sort_order_text(IcebergTable.load(spark, name)) == "p ASC NULLS FIRST"
    recorded = properties(spark, name)
    assert recorded[table_properties.CLUSTER_BY] == key == str(ClusteredTable(spark, name).key)
    assert recorded_curve(recorded, parse_cluster_key(key)) is not None
    assert not recluster(spark, name, **FINAL).rounds


def test_late_rows_widen_one_block_of_a_load_that_ascends(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, loads=0)
    spark.sql(f"alter table {name} add column day int")
    for number in range(4):
        load(spark, name, number, f"cast(if(id % 50 = 0, id % {number + 1}, {number}) as int) day")
        newest = spark.sql(f"select max(sequence_number) n from {name}.entries").first().n
        recluster(spark, name, "hilbert(b, day)", depth=1, block_rows=500)
        curve = ClusteredTable(spark, name).key_curve.current
        assert (curve.ascending, curve.newest) == ((False, number > 0), newest)
    rows = spark.range(ROWS).selectExpr(f"{B.format(seed=9)} b", "cast(if(id % 50 = 0, id % 4, 4) as int) day")
    columns = list(collect_arrow(rows).combine_chunks().itercolumns())
    day = columns[1].to_numpy()[np.argsort(curve.index_of_load([c.combine_chunks() for c in columns]))]
    assert [len(set(part.tolist())) for part in np.array_split(day, 8)] == [3, *[1] * 7]


@pytest.mark.thorough
def test_rows_of_a_load_that_no_merge_has_written_count_once(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, loads=1)
    recluster(spark, name, "hilbert(a, b)", depth=1, block_rows=500)
    for number in range(1, 9):
        load(spark, name, number)

    def draw() -> tuple[ClusteredTable, dict[str, str]]:
        table = ClusteredTable(spark, name)
        return table, table.key_curve.draw(table.blocks().planned_metadata)

    table, drawn = draw()
    for property_name, text in drawn.items():
        table.iceberg.set_property(property_name, text)
    again, redrawn = draw()
    assert (redrawn, again.key_curve.sampled.keys()) == ({}, table.key_curve.sampled.keys())
    load(spark, name, 9)
    later, drawn_later = draw()
    assert drawn_later.keys() == drawn.keys() != set()
    assert later.key_curve.current.newest == again.key_curve.current.newest + 1


@pytest.mark.thorough
def test_sorted_loads_that_ascend_are_drawn_by_the_merge_that_writes_them(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_curve, "_LEAST_SHARE", 1.0)  # every load is a small one
    name = make_table(spark, schema, loads=0)
    spark.sql(f"alter table {name} add column day int")
    for number in range(2):
        load(spark, name, number, f"{number} day")
        recluster(spark, name, "hilbert(b, day)", depth=1, block_rows=500)
    for number in range(2, 5):
        table = ClusteredTable(spark, name)
        rows = f"select id, id a, {B.format(seed=number)} b, 0 p, 2 day from range({ROWS})"
        query = sorted_along_curve(rows, table.key, table.iceberg.properties, table.iceberg.columns(), None)
        files = {"spark.sql.shuffle.partitions": "8", "spark.sql.adaptive.enabled": "false"}
        with spark_settings(spark, files):
            spark.sql(query).writeTo(name).append()
    before = ClusteredTable(spark, name)
    blocks = before.blocks().planned_metadata
    assert before.key_curve.draw(blocks) == {}
    assert recluster(spark, name, depth=1, block_rows=100_000).rounds
    after = ClusteredTable(spark, name).key_curve.current
    assert before.key_curve.current.ascending == after.ascending == (False, True)
    assert before.key_curve.current.newest < blocks.sequence.max() == after.newest


TEXTS = as_properties(
    parse_cluster_key("hilbert(a, b)"), Curve.from_columns([pa.array(["x", "y"])] * 2), {"a": 2, "b": 3}
)


# What else is no record of boundaries, tests/unit/test_curve_boundaries.py knows.
@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("damage", [TEXTS["recluster.curve.a"], "{}", ""])
def test_lost_boundaries_cost_work_and_no_rows(spark: Any, schema: str, damage: str) -> None:
    name = make_table(spark, schema)
    recluster(spark, name, "hilbert(a, b)", depth=1, block_rows=500)
    IcebergTable.load(spark, name).set_property("recluster.curve.a", damage or None)
    load(spark, name, 6)
    recluster_keeping_rows(spark, name, **FINAL)
    assert recorded_curve(properties(spark, name), parse_cluster_key("hilbert(a, b)")) is not None


@pytest.mark.thorough
def test_a_renamed_column_keeps_its_boundaries_and_another_of_its_name_has_none(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    spark.sql(f"alter table {name} add column z bigint")
    load(spark, name, 6, "(id * 7907) % 4001 z")
    before = checksum(spark, name)
    recluster(spark, name, "hilbert(a, b)", **FINAL)
    spark.sql(f"alter table {name} rename column a to c")
    again = recluster(spark, name, "hilbert(c, b)", **FINAL)
    assert not again.rounds, again.reason
    table = IcebergTable.load(spark, name)
    assert recorded_curve(table.properties, parse_cluster_key("hilbert(c, b)"), table.field_ids) is not None
    spark.sql(f"alter table {name} rename column z to a")
    blocks = recluster(spark, name, "hilbert(a, b)", **FINAL).blocks_after
    assert checksum(spark, name) == before
    assert opened(spark, name, "a") < blocks / 3


@pytest.mark.parametrize("swaps", [False, True])
def test_a_curve_follows_the_renamed_columns_before_it(spark: Any, schema: str, swaps: bool) -> None:
    name = make_table(spark, schema, loads=2)
    done = recluster(spark, name, "p, hilbert(a, b)", **FINAL)
    assert clustering_history(spark, name).entries[-1].depth_after == done.depth_after
    before = properties(spark, name)
    renames = [("p", "q"), ("id", "p"), ("q", "id")] if swaps else [("p", "q")]
    for old, new in renames:
        spark.sql(f"alter table {name} rename column {old} to {new}")
    again = recluster(spark, name, **FINAL)
    assert (again.cluster_key, again.rounds) == (f"{renames[-1][1]}, hilbert(a, b)", [])
    after = properties(spark, name)
    kept = ["recluster.curve.a", "recluster.curve.b", "recluster.levels", "recluster.settled"]
    assert {each: after.get(each) for each in kept} == {each: before[each] for each in kept}
    # A sort order that somebody set by hand is another key.
    spark.sql(f"alter table {name} write ordered by b")
    assert recluster(spark, name, dry_run=True).cluster_key == "b"


def test_a_curve_that_no_merge_has_written_follows_a_renamed_column(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, loads=0)
    recluster(spark, name, "p, hilbert(a, b)")
    spark.sql(f"alter table {name} rename column p to q")
    assert recluster(spark, name).cluster_key == "q, hilbert(a, b)"


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("item", ["s", "truncate(2, s)"])
def test_text_that_is_not_utf_8_cuts_nothing_and_stays(spark: Any, schema: str, item: str) -> None:
    text = "cast(if(id % 50 = 0, unhex('ff80fe'), encode(string(hash(id)), 'UTF-8')) as string)"
    name, key = make_texts(spark, schema, text), f"hilbert({item}, id)"
    recluster_keeping_rows(spark, name, key, depth=1, block_rows=100, final=True)
    assert recorded_curve(properties(spark, name), parse_cluster_key(key)) is not None
    assert writers(spark, name) == ["spark: text"]


@pytest.mark.thorough
def test_texts_that_begin_alike_for_too_long_are_refused_before_anything_is_written(spark: Any, schema: str) -> None:
    name = make_texts(spark, schema, "concat(repeat('x', 6000), id)")
    refused = pytest.raises(ClusterKeyError, match="longer than 1,024 characters and begin alike")
    with stays_as_it_is(spark, name), refused:
        recluster(spark, name, "hilbert(s, id)", depth=1, block_rows=100)
    recluster(spark, name, "hilbert(truncate(8, s), id)", depth=1, block_rows=100)


VALUES = {
    "a int": "cast(id as int)",
    "s string": "cast(10000 + id as string)",
    "x decimal(10, 2)": "cast(id / 4 as decimal(10, 2))",
    "f double": "cast(id as double)",
    "d date": "date_add(date'1968-01-01', cast(id as int))",
    "ts timestamp": "timestamp'1968-01-01' + make_dt_interval(cast(id as int))",
    "n timestamp_ntz": "timestamp_ntz'1968-01-01' + make_dt_interval(cast(id as int))",
}
ITEMS = ["ts", "n", "d", "x", "f", "truncate(10, a)", "truncate(3, s)", "truncate(50, x)", "to_date(ts)"]
ITEMS += ["date_trunc('hour', ts)", "date_trunc('month', n)", "date_trunc('year', d)"]


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("item", ITEMS)
def test_boundaries_stand_for_the_rows_of_all_loads(spark: Any, schema: str, item: str) -> None:
    name = create_table(spark, f"{schema}.t", f"id bigint, {', '.join(VALUES)}")
    for number in range(4):
        values = [f"{value} {column.split()[0]}" for column, value in VALUES.items()]
        frame = spark.range(number * 400, number * 400 + 400).selectExpr("id", *values)
        frame.coalesce(1).writeTo(name).append()
        recluster(spark, name, f"hilbert({item}, id)", depth=1, block_rows=100, final=True)
    table = ClusteredTable(spark, name)
    ends, bounds = table.key_curve.current.boundaries[0], table.metadata().lower[0]
    assert ends.type == bounds.type
    # A quarter of the boundaries, more or less a tenth, lie in each quarter of the rows.
    quarters = [bounds.sort()[len(bounds) * quarter // 4] for quarter in (1, 2, 3)]
    below = [pc.sum(pc.less(ends, quarter)).as_py() / len(ends) for quarter in quarters]
    assert below == pytest.approx([0.25, 0.5, 0.75], abs=0.12 if "year" not in item else 0.3)


@pytest.mark.exhaustive
def test_a_final_recluster_repairs_a_table_of_events(spark: Any, schema: str) -> None:
    rows, days = 10_000, 6
    name, new = f"{schema}.events", f"{schema}.new"
    for table in (name, new):
        spark.sql(f"create table {table} (id bigint, person int, day date) using iceberg")
    for number in range(days):
        # Three rows in a hundred belong to any of the days before.
        late = f"pmod(hash(id, 1), {number + 1})"
        spark.range(number * rows, (number + 1) * rows).selectExpr(
            "id",
            "cast(pow(pmod(hash(id, 2), 1000) / 1000, 2) * 5000 as int) person",
            f"date_add(date'2026-01-01', if(pmod(hash(id, 3), 100) < 3, {late}, {number})) day",
        ).repartition(4).writeTo(name).append()
        recluster(spark, name, "hilbert(person, day)", block_rows=500)
    spark.table(name).repartition(8).writeTo(new).append()
    before = checksum(spark, name)
    for table in (name, new):
        recluster(spark, table, "hilbert(person, day)", depth=1, block_rows=500, final=True)
    assert checksum(spark, name) == before
    reads = [f"day = date'2026-01-0{day}'" for day in range(1, days + 1)]
    reads += [f"person = {round((place + 0.5) ** 2 / 100 * 5_000)}" for place in range(10)]
    opened, at_once = (sum(blocks_opened(spark, table, read) for read in reads) for table in (name, new))
    # docs/design/curves.md has figures of larger tables; here a block more or less counts much.
    assert opened <= 1.2 * at_once


KEY = "k, hilbert(a, b)"
# Least and greatest k, and rows, of each load.
SMALL_LOADS = [(89_796, 89_909, 20), (90_889, 92_363, 50), (91_104, 92_119, 50), (90_954, 91_652, 5)]
SMALL_LOADS += [(90_173, 91_622, 20), (90_792, 91_300, 50), (89_742, 90_086, 20)]


def make_small_blocks(spark: Any, schema: str, loads: Sequence[tuple[int, int, int]]) -> str:
    name = create_table(spark, f"{schema}.t", "k int, a int, b int")
    for low, high, rows in loads:
        k = f"{low} + cast({high - low} * id / {rows - 1} as int)"
        spark.range(rows).selectExpr(f"{k} k", "0 a", "0 b").coalesce(1).writeTo(name).append()
    return name


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("files", [4, None])
def test_compaction_does_not_end_merging(spark: Any, schema: str, files: int | None) -> None:
    """Nor does a budget for which small blocks only can be put together."""
    name = make_small_blocks(spark, schema, SMALL_LOADS)
    if files:
        sizes = spark.sql(f"select file_size_in_bytes n from {name}.files order by n").collect()
        small = sum(size.n for size in sizes[:files])
        assert recluster_keeping_rows(spark, name, KEY, depth=4, block_rows=50, max_bytes=small).rounds
    recluster_keeping_rows(spark, name, KEY, depth=4, block_rows=50, final=True)
    assert clustering_information(spark, name, block_rows=50)["average_depth"] <= 4
    again = recluster(spark, name, depth=4, block_rows=50, final=True)
    assert not again.rounds, again.reason


@pytest.mark.thorough
def test_newly_declared_reads_end_rest(spark: Any, schema: str) -> None:
    """A merge of small blocks came to rest beside blocks that are deep where these reads are."""
    deep = [(100 + number, 900 + number, 50) for number in range(6)]
    alone = [(1_000 * number, 1_000 * number + 500, 50) for number in range(2, 14)]
    small = [(20_000 + 100 * number, 20_090 + 100 * number, 5) for number in range(8)]
    name = make_small_blocks(spark, schema, [*deep, *alone, *small])
    assert recluster(spark, name, KEY, block_rows=50, final=True).rounds
    assert not recluster(spark, name, block_rows=50, final=True).rounds
    assert blocks_opened(spark, name, "k = 500") == 6
    reads = [{"where": "k between 500 and 510"}]
    assert recluster(spark, name, block_rows=50, final=True, reads=reads).rounds
    assert blocks_opened(spark, name, "k = 500") <= 2
    assert not recluster(spark, name, block_rows=50, final=True, reads=reads).rounds
