"""Reads of a real table: the ranges of the key that predicates ask for, and merges where they end."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from tables import make_even_table, recluster_keeping_rows

from dbt_recluster.api import ClusteredTable, clustering_information, recluster
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.iceberg.predicates import MOST_RANGES, RangeParser
from dbt_recluster.iceberg.session import internals

JAN, FEB = date(2026, 1, 1), date(2026, 2, 1)
NEW_YEAR = 20454  # days since 1970
MICROS = NEW_YEAR * 86_400_000_000


@pytest.fixture(scope="module")
def wide(spark: Any) -> Iterator[str]:
    """A table with a column of each type that a key may have."""
    spark.sql("create schema reads")
    spark.sql(
        "create table reads.wide (d date, ts timestamp, u string, n int, x decimal(10, 2), f double, b binary, "
        "o boolean, s struct<n: bigint>) using iceberg"
    )
    spark.sql(
        "insert into reads.wide select date_add(date'2026-01-01', cast(id as int)), timestamp'2026-01-01 12:00:00' + "
        "make_interval(0, 0, 0, cast(id as int)), concat('k', id), cast(id as int), cast(id as decimal(10, 2)), "
        "cast(id as double), cast(concat('k', id) as binary), id > 3, named_struct('n', id) from range(9)"
    )
    yield "reads.wide"
    spark.sql("drop schema reads cascade")


CASES: list[tuple[Any, str, Any]] = [
    ("d", "d >= date'2026-01-01' and d < date'2026-02-01'", [([JAN], [date(2026, 1, 31)])]),
    ("d", "d = date'2026-01-01'", [([JAN], [JAN])]),
    ("d", "d in (date'2026-02-01', date'2026-01-01')", [([JAN], [JAN]), ([FEB], [FEB])]),
    (
        "d",
        "d > date'2026-01-01' or d < date'2026-01-01'",
        [([date(2026, 1, 2)], [None]), ([None], [date(2025, 12, 31)])],
    ),
    ("d", "not (d < date'2026-01-01')", [([JAN], [None])]),
    ("d", "D >= date'2026-01-01'", [([JAN], [None])]),
    ("d", "d >= '2026-01-01' and u like 'a%'", [([JAN], [None])]),
    # Nothing that says where a read ends.
    ("d", "u = 'x'", []),
    ("d", "d > date'2026-01-01' or u = 'x'", [([date(2026, 1, 2)], [None])]),
    ("d", "d is null", []),
    ("d", "d <> date'2026-01-01'", []),
    ("d", "d > date'2026-02-01' and d < date'2026-01-01'", []),
    ("d", "d > date'9999-12-31'", []),
    ("n", f"n in ({', '.join(map(str, range(MOST_RANGES + 1)))})", []),
    ("n", "n > 5 and n <= 7", [([6], [7])]),
    ("ts", "ts < timestamp'2026-01-01 00:00:00.5'", [([None], [MICROS + 499_999])]),
    ("to_date(ts)", "ts >= '2026-01-01' and ts < '2026-01-02'", [([NEW_YEAR], [NEW_YEAR])]),
    (["to_date(ts)", "u"], "to_date(ts) = '2026-01-01' and u = 'a'", [([NEW_YEAR, "a"], [NEW_YEAR, "a"])]),
    (["to_date(ts)", "u"], "ts >= '2026-01-01' and u = 'a'", [([NEW_YEAR, None], [None, None])]),
    (["n", "u"], "n in (1, 2) and u = 'x'", [([1, "x"], [1, "x"]), ([2, "x"], [2, "x"])]),
    (["n", "u"], "n = 5 and u > 'a'", [([5, "a"], [5, None])]),
    ("u", "u like 'k1%'", [(["k1"], ["k1\U0010ffff"])]),
    ("left(u, 2)", "u like 'k1abc%'", [(["k1"], ["k1"])]),
    ("x", "x > 1.5", [([Decimal("1.50")], [None])]),
    ("f", "f > 1.5 and f < 2", [([1.5], [2.0])]),
    ("b", "b = X'AB'", [([b"\xab"], [b"\xab"])]),
    ("o", "o", [([True], [True])]),
    ("s.n", "s.n between 2 and 3", [([2], [3])]),
]


def follow(table: ClusteredTable, reads: Any) -> list[str]:
    """Follow reads; return those that are left out."""
    return table.reads.follow(RECLUSTER_OPTIONS["reads"].read("reads", reads))


def test_predicates_are_ranges_of_the_key(spark: Any, wide: str) -> None:
    (three_days_ago,) = spark.sql("select current_date() - interval 3 days").first()
    of_today = ("d", "d >= current_date() - interval 3 days", [([three_days_ago], [None])])
    for key, where, expected in [*CASES, of_today]:
        table = ClusteredTable(spark, wide, key)
        of_table = RangeParser(table.iceberg, table.columns)
        found = [of_table.of_key(table.key, each) for each in of_table.of_predicate(table.predicate(where))]
        assert [each for each in found if each] == expected, where


def test_ranges_are_compared_with_bounds_of_every_type(spark: Any, wide: str) -> None:
    keys = {
        "d": "d >= date'2026-01-03'",
        "ts": "ts > '2026-01-03'",
        "to_date(ts)": "ts < '2026-01-04'",
        "u": "u < 'k5'",
        "n": "n = 4",
        "x": "x > 2.5",
        "f": "f > 2.5",
        "b": "b > cast('k3' as binary)",
        "o": "o",
        "s.n": "s.n > 3",
    }
    for key, where in keys.items():
        table = ClusteredTable(spark, wide, key)
        assert follow(table, [where]) == []
        assert clustering_information(spark, table)["read_depth"] == 1, key


@pytest.mark.thorough
def test_blocks_are_merged_where_reads_end(spark: Any, schema: str) -> None:
    table = make_even_table(spark, schema)
    options: dict[str, Any] = {"depth": 2, "block_rows": 100, "final": True}
    reads = [{"where": "k between 310 and 750", "weight": 9}]
    result = recluster_keeping_rows(spark, table, "k", reads=reads, **options)
    assert result.blocks_in == 8  # those over 310 and over 750
    assert result.reason == "depth 1 at the ends of reads is at most 2"
    assert not recluster(spark, table, reads=["k between 310 and 750"], **options).rounds
    # Nothing is known now.
    assert recluster(spark, table, depth=2, block_rows=100).blocks_in == 32


def test_a_read_that_cannot_be_understood_is_left_out_with_a_warning(spark: Any, schema: str) -> None:
    table = make_even_table(spark, schema)
    reads = ["nope = 1", "k % 2 = 1", "p = 3", "k = 310", "select * from nowhere", "select 1"]
    result = recluster(spark, table, "k", depth=2, block_rows=100, reads=reads)
    assert result.blocks_in == 4
    first, second, third, fourth = result.warnings
    assert first.startswith("reads: left out, 'nope = 1' cannot choose blocks of")
    assert second.startswith("reads: left out, 'k % 2 = 1' cannot choose blocks of")
    assert third.startswith("reads: left out, a query cannot be planned: ")
    assert "`nowhere` cannot be found" in third
    assert fourth == f"reads: left out, 'select 1' does not read {table}"


def test_queries_are_planned_and_not_run(spark: Any, schema: str, wide: str) -> None:
    """Literals, joins and `current_date` are folded in, views are looked into, and nothing is executed."""
    spark.sql(f"create view {schema}.v as select d as day, n from {wide} where n > 2")
    cases = {
        f"select n from {wide} where d >= date'2026-01-01' and d < date'2026-01-01' + interval 1 month": [
            ([JAN], [date(2026, 1, 31)])
        ],
        f"with w as (select * from {wide}) select * from w where d = '2026-02-01'": [([FEB], [FEB])],
        f"select 1 from {wide} one join {wide} other on one.d = other.d where other.d >= date'2026-01-05'": [
            ([date(2026, 1, 5)], [None])
        ]
        * 2,
        f"select * from {schema}.v where day <= date'2026-01-05'": [([None], [date(2026, 1, 5)])],
        f"select (select max(n) from {wide} where d = date'2026-02-01')": [([FEB], [FEB])],
        f"select count(*) from {wide}": [],
        f"select raise_error('run') from {wide} where d = date'2026-02-01'": [([FEB], [FEB])],
    }
    for query, expected in cases.items():
        table = ClusteredTable(spark, wide, "d")
        assert follow(table, [query]) == []
        of_table = RangeParser(table.iceberg, table.columns)
        ranges = [of_table.of_json(read.columns) for read in table.reads.ranges]
        of_key = [of_table.of_key(table.key, each) for each in ranges]
        assert [each for each in of_key if each] == expected, query


def test_a_query_about_columns_that_are_gone_is_left_out(spark: Any, schema: str) -> None:
    table = make_even_table(spark, schema, loads=1)
    snapshot = spark.table(f"{table}.snapshots").first()["snapshot_id"]
    spark.sql(f"alter table {table} drop column p")
    reads = [f"select * from {table} version as of {snapshot} where p = 5", {"where": "k in (1, 2)"}]
    keyed = ClusteredTable(spark, table, "k")
    (left_out,) = follow(keyed, reads)
    assert "Cannot find field 'p'" in left_out
    assert len(keyed.reads.ranges) == 2


def test_what_iceberg_does_not_tell_is_not_taken_for_no_read(
    spark: Any, wide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(internals.MEMBERS, "iceberg.spark.source.SparkScan", ("renamed", ""))
    (left_out,) = follow(ClusteredTable(spark, wide, "d"), [f"select d from {wide}"])
    assert left_out.startswith("reads: left out, this version of Iceberg does not give the filters of a query: ")
    assert "SparkScan.renamed()" in left_out
