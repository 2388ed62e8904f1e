"""Bounds against brute force: those in the metadata of each file, and those of the rows in it."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
import re
import uuid
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pytest

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import read_blocks
from dbt_recluster.iceberg.rewrite.keyed_rows import key_columns
from dbt_recluster.key.cluster_key import parse_cluster_key

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def moment(rng: random.Random) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=rng.randint(-(10**15), 2 * 10**15))


GENERATORS: dict[str, Any] = {
    "int": lambda rng: rng.randint(-(2**31), 2**31 - 1),
    "bigint": lambda rng: rng.choice([rng.randint(-50, 50), rng.randint(-(2**63), 2**63 - 1)]),
    "decimal(10,2)": lambda rng: decimal.Decimal(rng.randint(-(10**10) + 1, 10**10 - 1)).scaleb(-2),
    "decimal(38,3)": lambda rng: decimal.Decimal(rng.randint(-(10**30), 10**30)).scaleb(-3),
    "date": lambda rng: moment(rng).date(),
    "timestamp": moment,
    "timestamp_ntz": lambda rng: moment(rng).replace(tzinfo=None),
    "string": lambda rng: (
        "a prefix that all of them share: " + "".join(rng.choices("abcé😀z", k=rng.randint(0, 6)))
    ),
    "boolean": lambda rng: rng.random() < 0.5,
    "double": lambda rng: rng.choice([rng.gauss(0, 1e9), -0.0, float("inf")]),
    "float": lambda rng: float(rng.randint(-1000, 1000)),
    "binary": lambda rng: bytes(rng.choices(range(256), k=rng.randint(1, 40))),
}

KEYS = [
    ("int", "k"),
    ("bigint", "k"),
    ("decimal(10,2)", "k"),
    ("decimal(38,3)", "k"),
    ("date", "k"),
    ("timestamp", "k"),
    ("timestamp_ntz", "k"),
    ("string", "k"),
    ("boolean", "k"),
    ("double", "k"),
    ("float", "k"),
    ("binary", "k"),
    ("date", "months(k)"),
    ("date", "years(k)"),
    ("timestamp", "hours(k)"),
    ("timestamp", "to_date(k)"),
    ("timestamp", "date_trunc('month', k)"),
    ("timestamp", "date_trunc('year', k)"),
    ("timestamp_ntz", "hours(k)"),
    ("timestamp_ntz", "days(k)"),
    ("string", "left(k, 35)"),
    ("int", "truncate(7, k)"),
    ("bigint", "truncate(1000, k)"),
    ("decimal(10,2)", "truncate(50, k)"),
    ("decimal(38,3)", "truncate(50, k)"),
]


def comparable(value: Any, kind: str, key: str) -> Any:
    """Convert a value that Spark computed to the form of a bound."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None if value is None else "NaN"
    if key == "k":
        if kind == "timestamp":
            return round((value.replace(tzinfo=dt.timezone.utc) - EPOCH) / dt.timedelta(microseconds=1))
        if kind == "timestamp_ntz":
            return round((value - EPOCH.replace(tzinfo=None)) / dt.timedelta(microseconds=1))
        return bytes(value) if kind == "binary" else value
    if isinstance(value, dt.date):
        return (value - EPOCH.date()).days
    if isinstance(value, decimal.Decimal):
        return int(value.scaleb(int(kind.rstrip(")").split(",")[1])))
    return value


def rank(value: Any) -> tuple[int, Any]:
    """NULL below everything, NaN above."""
    if value is None:
        return (0, 0)
    return (2, 0) if value == "NaN" else (1, value)


@pytest.fixture(scope="module")
def wide(spark: Any) -> Iterator[str]:
    """A table with a column of every type, in seven files: plain values, NULLs, NaNs, and nothing else than those."""
    schema = f"t_{uuid.uuid4().hex[:12]}"
    spark.sql(f"create schema {schema}")
    name = f"{schema}.wide"
    columns = [f"c{number} {kind}" for number, kind in enumerate(GENERATORS)]
    keys = {column.split()[0]: "full" for column in columns}
    metrics = ", ".join(
        f"'write.metadata.metrics.column.{column}' = '{mode}'" for column, mode in keys.items()
    )
    spark.sql(f"create table {name} ({', '.join(columns)}) using iceberg tblproperties ({metrics})")
    loads = [[loads_of(kind)[number] for kind in GENERATORS] for number in range(len(loads_of("int")))]
    for load in loads:
        rows = list(zip_longest(*load))
        spark.createDataFrame(rows, ", ".join(columns)).coalesce(1).writeTo(name).append()
    yield name
    spark.sql(f"drop schema {schema} cascade")


def loads_of(kind: str) -> list[list[Any]]:
    """Return the values of a column in each file; shorter ones are filled up with NULL."""
    rng = random.Random(kind)
    make = GENERATORS[kind]
    nan = [float("nan")] if kind in ("double", "float") else []
    return [
        [make(rng) for _ in range(20)],
        [*(make(rng) for _ in range(10 - len(nan))), *nan],
        [None, None],
        [make(rng)],
        [None, *(nan or [make(rng)])],
        [*(nan or [make(rng)]), *(nan or [None]), make(rng)],
        [*(nan or [None])],
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_bounds_are_those_of_the_rows(spark: Any, wide: str, kind: str, key: str) -> None:
    table = IcebergTable.load(spark, wide)
    column = f"c{list(GENERATORS).index(kind)}"
    cluster_key = parse_cluster_key(re.sub(r"\bk\b", column, key)).check(table.columns())
    blocks = read_blocks(table, cluster_key)
    with key_columns(spark, cluster_key) as (value,):
        rows = spark.table(wide).select("_file", value.alias("v")).collect()
    assert len(blocks) == 7
    for position, path in enumerate(blocks.path.to_pylist()):
        values = sorted((comparable(row.v, kind, key) for row in rows if row._file == path), key=rank)
        lower, upper = blocks.lower[0][position].as_py(), blocks.upper[0][position].as_py()
        if key == "k" and kind in ("double", "float"):
            lower, upper = ("NaN" if isinstance(x, float) and math.isnan(x) else x for x in (lower, upper))
        if key != "k" and kind.startswith("decimal"):
            lower, upper = (None if x is None else int(x) for x in (lower, upper))
        assert (lower, upper) == (values[0], values[-1]), path
        assert not blocks.unbounded[0][position]
        assert blocks.rows[position] == len(values)


def test_a_compound_key_has_bounds_for_each_item(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (a int, b string) using iceberg")
    for values in ("(1, 'x'), (2, null)", "(null, 'b'), (7, 'a')"):
        spark.sql(f"insert into {name} select /*+ coalesce(1) */ * from values {values} as v(a, b)")
    table = IcebergTable.load(spark, name)
    blocks = read_blocks(table, parse_cluster_key(["a", "b"]))
    found = sorted(
        zip(*(column.to_pylist() for column in [*blocks.lower, *blocks.upper]), strict=True),
        key=lambda row: str(row),
    )
    assert found == [(1, None, 2, "x"), (None, "a", 7, "b")]


def test_bounds_that_are_not_recorded_span_everything(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(
        f"create table {name} (k string, n int) using iceberg "
        "tblproperties ('write.metadata.metrics.column.k' = 'none', 'write.metadata.metrics.column.n' = 'counts')"
    )
    spark.sql(f"insert into {name} values ('a', 1), ('b', 2)")
    table = IcebergTable.load(spark, name)
    for key in ("k", "n"):
        blocks = read_blocks(table, parse_cluster_key(key))
        assert blocks.lower[0].null_count == len(blocks)
        assert blocks.unbounded[0].all()


def test_strings_cut_by_other_writers_still_cover_their_rows(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k string) using iceberg")  # Iceberg's default: bounds of 16 characters
    spark.sql(f"insert into {name} values ('a common prefix, and then 1'), ('a common prefix, and then 2')")
    blocks = read_blocks(IcebergTable.load(spark, name), parse_cluster_key("k"))
    for lower, upper in zip(blocks.lower[0].to_pylist(), blocks.upper[0].to_pylist(), strict=True):
        assert len(lower) == len(upper) == 16
        assert lower < "a common prefix, and then 1" < "a common prefix, and then 2" < upper


def test_partitions_and_specs(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k int, p string, q int) using iceberg partitioned by (p)")
    spark.sql(f"insert into {name} values (1, 'x', 1), (2, 'y', 1), (3, null, 1)")
    spark.sql(f"insert into {name} values (4, 'x', 2), (5, null, 2)")
    spark.sql(f"alter table {name} add partition field q")
    spark.sql(f"insert into {name} values (6, 'x', 1), (7, 'x', 2)")
    table = IcebergTable.load(spark, name)
    blocks = read_blocks(table, parse_cluster_key("k"))
    group = dict(zip(blocks.lower[0].to_pylist(), blocks.partition.tolist(), strict=True))
    assert group[1] == group[4]
    assert group[3] == group[5]
    assert len({group[k] for k in (1, 2, 3, 6, 7)}) == 5
    assert len(set(blocks.spec_id.tolist())) == 2


def test_a_table_never_written(spark: Any, schema: str) -> None:
    spark.sql(f"create table {schema}.t (k int) using iceberg")
    blocks = read_blocks(IcebergTable.load(spark, f"{schema}.t"), parse_cluster_key("k"))
    assert (len(blocks), blocks.snapshot_id) == (0, None)
    spark.sql(f"insert into {schema}.t values (1)")
    spark.sql(f"delete from {schema}.t")
    blocks = read_blocks(IcebergTable.load(spark, f"{schema}.t"), parse_cluster_key("k"))
    assert len(blocks) == 0
    assert blocks.snapshot_id is not None
