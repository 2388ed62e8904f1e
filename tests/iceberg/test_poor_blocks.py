"""Blocks that hold too little: small ones are joined, and those with many deleted rows are rewritten."""

from typing import Any

import pytest
from tables import checksum, make_table, recluster_keeping_rows, recorded_levels

from dbt_recluster.api import clustering_information, recluster
from dbt_recluster.clustering.table import ClusteredTable


def load_in_order(spark: Any, name: str, loads: int, rows: int) -> None:
    """Append loads of ``rows`` rows whose keys follow one another, a file each."""
    for load in range(loads):
        spark.sql(
            f"insert into {name} select /*+ coalesce(1) */ id, cast(id as int) k, concat('row ', id) v "
            f"from range({load * rows}, {(load + 1) * rows}, 1, 1)"
        )


def test_ordered_loads_of_small_files_are_joined(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=0)
    load_in_order(spark, name, 12, 100)
    information = clustering_information(spark, name, "k", block_rows=1000)
    assert (information["small_block_count"], information["fragmentation"]) == (12, 6.0)
    dry: Any = recluster(spark, name, "k", depth=4, block_rows=1000, dry_run=True)
    assert dry.reason == "10 small blocks make 1 full one"
    (block_set,) = dry.plan.sets
    assert (block_set.blocks, block_set.expected_blocks, block_set.depth, block_set.new_level) == (
        10,
        1,
        1,
        0,
    )
    result = recluster_keeping_rows(spark, name, "k", depth=4, block_rows=1000)
    assert (result.blocks_before, result.rounds[0].blocks_in, result.rows) == (12, 10, 1000)
    assert result.blocks_after == 3
    assert set(recorded_levels(spark, name).values()) == {0}
    information = clustering_information(spark, name, "k", block_rows=1000)
    assert information["average_depth"] == 1.0
    assert (information["small_block_count"], information["fragmentation"]) == (2, 1.5)
    assert recluster(spark, name, "k", depth=4, block_rows=1000).rounds == []


def test_blocks_that_are_full_in_bytes_are_left_alone(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=0, properties={"write.target-file-size-bytes": 1000})
    load_in_order(spark, name, 5, 100)
    assert clustering_information(spark, name, "k")["small_block_count"] == 0
    assert recluster(spark, name, "k").rounds == []


def ordered(spark: Any, schema: str, **properties: Any) -> str:
    """Make a table of four full blocks that do not overlap."""
    merge_on_read = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"}
    table = make_table(spark, schema, files=0, properties={**merge_on_read, **properties})
    load_in_order(spark, table, 4, 1000)
    return table


def deleted_rows(spark: Any, table: str) -> list[int] | None:
    """The rows deleted in each block, least first, or None if the table has no deletes."""
    deleted = ClusteredTable(spark, table, "k").metadata().deleted_rows
    return None if deleted is None else sorted(deleted.tolist())


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("version", [3, 2])
def test_only_blocks_with_many_deleted_rows_are_rewritten(spark: Any, schema: str, version: int) -> None:
    table = ordered(spark, schema, **{"format-version": version})
    assert deleted_rows(spark, table) is None
    spark.sql(f"delete from {table} where k < 1000 and k % 2 = 0")
    spark.sql(f"delete from {table} where k >= 3000 and k % 10 = 0")
    assert deleted_rows(spark, table) == [0, 0, 100, 500]
    result = recluster_keeping_rows(spark, table, "k", block_rows=1000, final=True)
    assert (result.blocks_in, result.blocks_out, result.rows) == (1, 1, 500)
    assert result.reason == "depth 1 is at most 4"
    assert deleted_rows(spark, table) == [0, 0, 0, 100]
    assert not recluster(spark, table, "k", block_rows=1000).rounds


def test_a_block_without_a_row_left_goes(spark: Any, schema: str) -> None:
    table = ordered(spark, schema, **{"format-version": 2})
    spark.sql(f"delete from {table} where k < 1000 and v like 'row%'")
    result = recluster(spark, table, "k", block_rows=1000, final=True)
    assert result.blocks_after == 3
    assert checksum(spark, table)[0] == 3000


def test_deletes_of_several_blocks_are_not_counted(spark: Any, schema: str) -> None:
    table = ordered(spark, schema, **{"format-version": 2, "write.delete.granularity": "partition"})
    spark.sql(f"delete from {table} where k % 2 = 0")
    assert deleted_rows(spark, table) == [0] * 4
    assert not recluster(spark, table, "k", block_rows=1000).rounds
