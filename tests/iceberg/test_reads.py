"""Reads of a real table: the ranges of the key that predicates ask for, and merges where they end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from tables import checksum

from dbt_recluster.clustering.last_look import Look
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.iceberg.key_ranges import MOST_RANGES, key_ranges
from dbt_recluster.maintenance import ClusteredTable, clustering_information, recluster

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


def test_predicates_are_ranges_of_the_key(spark: Any, wide: str) -> None:
    for key, where, expected in CASES:
        table = ClusteredTable(spark, wide, key)
        assert (
            key_ranges(table.iceberg, table.columns.types, table.key, table.predicate(where)) == expected
        ), where


def test_current_date_is_today(spark: Any, wide: str) -> None:
    table = ClusteredTable(spark, wide, "d")
    today = spark.sql("select current_date()").first()[0]
    ranges = key_ranges(
        table.iceberg,
        table.columns.types,
        table.key,
        table.predicate("d >= current_date() - interval 3 days"),
    )
    assert [(today - lower[0]).days for lower, _ in ranges] == [3]


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
        assert table.know(ReclusterOptions(reads=[where]).reads) == []
        assert table.information()["read_depth"] == 1, key


def load(spark: Any, schema: str, loads: int = 4) -> str:
    """Make a table of loads that cover all keys from 0 to 999, in ten files each."""
    table = f"{schema}.t"
    spark.sql(
        f"create table {table} (k bigint, p int) using iceberg tblproperties ('write.distribution-mode' = 'none')"
    )
    for _ in range(loads):
        spark.range(0, 1000, 1, 10).selectExpr("id as k", "0 as p").writeTo(table).append()
    return table


def test_blocks_are_merged_where_reads_end(spark: Any, schema: str) -> None:
    table = load(spark, schema)
    before = checksum(spark, table)
    result = recluster(
        spark,
        table,
        "k",
        depth=2,
        block_rows=100,
        final=True,
        reads=[{"where": "k between 310 and 750", "weight": 9}],
    )
    assert result.blocks_in == 8  # those over 310 and over 750
    assert result.reason == "read depth 1 is at most 2"
    assert checksum(spark, table) == before
    again = recluster(spark, table, depth=2, block_rows=100, final=True, reads=["k between 310 and 750"])
    assert not again.rounds
    assert (
        recluster(spark, table, depth=2, block_rows=100).blocks_in == 32
    )  # the others: nothing is known now


def test_what_a_table_records_is_seen_by_everybody(spark: Any, schema: str) -> None:
    table = load(spark, schema)
    assert "read_depth" not in clustering_information(spark, table, "k")
    spark.sql(f"""alter table {table} set tblproperties ('recluster.option.reads' = '["k = 310"]')""")
    assert clustering_information(spark, table, "k")["read_depth"] == 4


def test_a_read_that_cannot_be_understood_is_left_out_with_a_warning(spark: Any, schema: str) -> None:
    table = load(spark, schema)
    result = recluster(
        spark, table, "k", depth=2, block_rows=100, reads=["nope = 1", "k % 2 = 1", "p = 3", "k = 310"]
    )
    assert result.blocks_in == 4
    first, second = result.warnings
    assert first.startswith("reads: left out, 'nope = 1' cannot choose blocks of")
    assert second.startswith("reads: left out, 'k % 2 = 1' cannot choose blocks of")


def test_other_reads_are_other_rules_of_a_look(spark: Any, schema: str) -> None:
    table = load(spark, schema, loads=1)
    keyed = ClusteredTable(spark, table, "k")
    options = ReclusterOptions(depth=2, block_rows=100)
    policy = replace(options.policy, block_bytes=keyed.block_bytes)
    for known, other in (([], ["k = 1"]), (["k = 1"], ["k = 2"])):
        keyed.know(ReclusterOptions(reads=known).reads)
        look = Look(keyed, policy)
        look.remember(keyed.iceberg.snapshot_id)
        assert Look(keyed, policy).changed(keyed.iceberg.snapshot_id) is not None
        keyed.know(ReclusterOptions(reads=other).reads)
        assert Look(keyed, policy).changed(keyed.iceberg.snapshot_id) is None
