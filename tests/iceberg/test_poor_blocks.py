"""Blocks that hold too little: small ones are joined, and those with many deleted rows are rewritten."""

from __future__ import annotations

from typing import Any

import pytest
from tables import checksum, make_table, recorded_levels

from dbt_recluster.clustering.table import ClusteredTable
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
    """Full in rows, or in bytes."""
    name = make_table(spark, schema, files=0)
    load_in_order(spark, name, 5, 100)
    assert recluster(spark, name, "k", block_rows=100).rounds == []
    spark.sql(f"alter table {name} set tblproperties ('write.target-file-size-bytes' = '1000')")
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


MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"}


def ordered(spark: Any, schema: str, **properties: Any) -> str:
    """Make a table of four full blocks that do not overlap."""
    table = make_table(spark, schema, files=0, properties={**MERGE_ON_READ, **properties})
    for start in range(0, 4000, 1000):
        spark.sql(
            f"insert into {table} select /*+ coalesce(1) */ id, cast(id as int), 'v' "
            f"from range({start}, {start + 1000})"
        )
    return table


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("version", [3, 2])
def test_only_blocks_with_many_deleted_rows_are_rewritten(spark: Any, schema: str, version: int) -> None:
    table = ordered(spark, schema, **{"format-version": version})
    assert ClusteredTable(spark, table, "k").metadata().deleted_rows is None
    spark.sql(f"delete from {table} where k < 1000 and k % 2 = 0")
    spark.sql(f"delete from {table} where k >= 3000 and k % 10 = 0")
    before = checksum(spark, table)
    metadata = ClusteredTable(spark, table, "k").metadata()
    assert metadata.deleted_rows is not None
    assert sorted(metadata.deleted_rows.tolist()) == [0, 0, 100, 500]
    planned = recluster(spark, table, "k", block_rows=1000, dry_run=True)
    assert planned.plan is not None
    assert [block_set.blocks for block_set in planned.plan.sets] == [1]
    result = recluster(spark, table, "k", block_rows=1000, final=True)
    assert (result.blocks_in, result.blocks_out, result.rows) == (1, 1, 500)
    assert result.reason == "reducible depth 1 is at most 4"
    assert checksum(spark, table) == before
    after = ClusteredTable(spark, table, "k").metadata()
    assert after.deleted_rows is not None
    assert sorted(after.deleted_rows.tolist()) == [0, 0, 0, 100]
    assert not recluster(spark, table, "k", block_rows=1000).rounds


def test_a_block_without_a_row_left_goes(spark: Any, schema: str) -> None:
    table = ordered(spark, schema, **{"format-version": 2})
    spark.sql(f"delete from {table} where k < 1000 and v = 'v'")
    result = recluster(spark, table, "k", block_rows=1000, final=True)
    assert result.blocks_after == 3
    assert checksum(spark, table)[0] == 3000


def test_deletes_of_several_blocks_are_not_counted(spark: Any, schema: str) -> None:
    table = ordered(spark, schema, **{"format-version": 2, "write.delete.granularity": "partition"})
    spark.sql(f"delete from {table} where k % 2 = 0")
    metadata = ClusteredTable(spark, table, "k").metadata()
    assert metadata.deleted_rows is not None
    assert not metadata.deleted_rows.any()
    assert not recluster(spark, table, "k", block_rows=1000).rounds
