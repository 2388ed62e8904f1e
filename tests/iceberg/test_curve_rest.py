"""Where merges of tables with a curve come to rest, and what wakes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tables import checksum

from dbt_recluster.maintenance import blocks_opened, clustering_information, recluster

KEY = "k, hilbert(a, b)"
# Least and greatest k, and rows, of each load.
LOADS = (
    (89_796, 89_909, 20),
    (90_889, 92_363, 50),
    (91_104, 92_119, 50),
    (90_954, 91_652, 5),
    (90_173, 91_622, 20),
    (90_792, 91_300, 50),
    (89_742, 90_086, 20),
)


def make_table(spark: Any, schema: str, loads: Sequence[tuple[int, int, int]] = LOADS) -> str:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k int, a int, b int) using iceberg")
    for low, high, rows in loads:
        k = f"{low} + cast({high - low} * id / {rows - 1} as int)"
        spark.range(rows).selectExpr(f"{k} k", "0 a", "0 b").coalesce(1).writeTo(name).append()
    return name


def depth(spark: Any, name: str) -> float:
    return clustering_information(spark, name, block_rows=50)["average_depth"]


@pytest.mark.thorough
def test_small_blocks_that_were_joined_do_not_end_merging(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    before = checksum(spark, name)
    recluster(spark, name, KEY, block_rows=50, final=True)
    assert checksum(spark, name) == before
    assert depth(spark, name) <= 4
    again = recluster(spark, name, block_rows=50, final=True)
    assert not again.rounds, again.reason


@pytest.mark.thorough
def test_a_budget_that_joins_small_files_only_does_not_end_merging(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    sizes = spark.sql(f"select file_size_in_bytes n from {name}.files order by n").collect()
    small = sum(size.n for size in sizes[:4])
    assert recluster(spark, name, KEY, block_rows=50, max_bytes=small).rounds
    recluster(spark, name, block_rows=50, final=True)
    assert depth(spark, name) <= 4


@pytest.mark.thorough
def test_newly_declared_reads_end_rest(spark: Any, schema: str) -> None:
    """A merge of small blocks came to rest beside blocks that are deep where these reads are."""
    deep = [(100 + number, 900 + number, 50) for number in range(6)]
    alone = [(1_000 * number, 1_000 * number + 500, 50) for number in range(2, 14)]
    small = [(20_000 + 100 * number, 20_090 + 100 * number, 5) for number in range(8)]
    name = make_table(spark, schema, [*deep, *alone, *small])
    assert recluster(spark, name, KEY, block_rows=50, final=True).rounds
    assert not recluster(spark, name, block_rows=50, final=True).rounds
    assert blocks_opened(spark, name, "k = 500") == 6
    reads = [{"where": "k between 500 and 510"}]
    assert recluster(spark, name, block_rows=50, final=True, reads=reads).rounds
    assert blocks_opened(spark, name, "k = 500") <= 2
    assert not recluster(spark, name, block_rows=50, final=True, reads=reads).rounds
