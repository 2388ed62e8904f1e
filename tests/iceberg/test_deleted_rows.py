"""Blocks of which many rows are deleted: counted from the delete files, rewritten, and then left alone."""

from __future__ import annotations

from typing import Any

import pytest
from tables import checksum, make_table

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.maintenance import recluster

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
