"""Small blocks of real tables are joined; rows stay."""

from __future__ import annotations

from typing import Any

import pytest
from tables import checksum, make_table, recorded_levels

from dbt_recluster.maintenance import clustering_information, recluster


def load_in_order(spark: Any, name: str, loads: int, rows: int, first: int = 0) -> None:
    """Append loads of ``rows`` rows whose keys follow one another, a file each."""
    for load in range(first, first + loads):
        spark.sql(
            f"insert into {name} select /*+ coalesce(1) */ id, cast(id as int) k, concat('row ', id) v "
            f"from range({load * rows}, {(load + 1) * rows}, 1, 1)"
        )


@pytest.mark.thorough
def test_ordered_loads_of_small_files_are_joined(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=0)
    load_in_order(spark, name, 12, 100)
    before = checksum(spark, name)
    information = clustering_information(spark, name, "k", block_rows=1000)
    assert (information["small_block_count"], information["fragmentation"]) == (12, 6.0)
    result = recluster(spark, name, "k", block_rows=1000)
    assert checksum(spark, name) == before
    assert (result.blocks_before, result.rounds[0].blocks_in, result.rows) == (12, 10, 1000)
    assert result.blocks_after == 3
    assert set(recorded_levels(spark, name).values()) == {0}
    information = clustering_information(spark, name, "k", block_rows=1000)
    assert information["average_depth"] == 1.0
    assert (information["small_block_count"], information["fragmentation"]) == (2, 1.5)
    assert recluster(spark, name, "k", block_rows=1000).rounds == []


def test_a_dry_run_says_what_would_be_joined(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=0)
    load_in_order(spark, name, 10, 100)
    result = recluster(spark, name, "k", block_rows=1000, dry_run=True)
    assert result.reason == "10 small blocks make 1 full one"
    assert result.plan is not None
    (planned,) = result.plan.sets
    assert (planned.blocks, planned.expected_blocks, planned.depth, planned.new_level) == (10, 1, 1, 0)


def test_full_blocks_in_order_are_left_alone(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=0)
    load_in_order(spark, name, 5, 100)
    assert recluster(spark, name, "k", block_rows=100).rounds == []


def test_blocks_full_in_bytes_are_left_alone(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=0, properties={"write.target-file-size-bytes": 1000})
    load_in_order(spark, name, 5, 100)
    assert clustering_information(spark, name, "k")["small_block_count"] == 0
    assert recluster(spark, name, "k").rounds == []


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("where", ["k < 500 or k >= 600", "k >= 600"])
def test_blocks_outside_of_where_are_not_joined_across(spark: Any, schema: str, where: str) -> None:
    name = make_table(spark, schema, files=0)
    load_in_order(spark, name, 10, 100)
    before = checksum(spark, name)
    recluster(spark, name, "k", block_rows=1000, where=where, final=True)
    assert checksum(spark, name) == before
    assert clustering_information(spark, name)["max_depth"] == 1
    # The block outside has not moved.
    files = spark.sql(f"select record_count from {name}.files where readable_metrics.k.lower_bound = 500")
    assert [row.record_count for row in files.collect()] == [100]
