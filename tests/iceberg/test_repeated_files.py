"""A file that a table lists more than once: Iceberg removes it by its path, so a merge would remove every listing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tables import append, checksum, list_again, make_table, rewrite_manifests

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.metadata.block_metadata import read_blocks
from dbt_recluster.iceberg.metadata.changed_partitions import changed_partitions
from dbt_recluster.maintenance import clustering_information, recluster


@pytest.mark.thorough
def test_its_rows_are_not_lost(spark: Any, schema: str, tmp_path: Path) -> None:
    """The reported case: of 50 rows were left 40."""
    name = f"{schema}.t"
    spark.sql(f"create table {name} (id bigint, k bigint) using iceberg")
    spark.range(0, 40, 1, 4).selectExpr("id", "id k").write.parquet(str(tmp_path / "source"))
    files = sorted((tmp_path / "source").glob("*.parquet"))
    for file in (*files, files[-1]):
        source = f"source_table => '`parquet`.`{file.as_uri()}`', check_duplicate_files => false"
        spark.sql(f"call spark_catalog.system.add_files(table => '{name}', {source})")
    rewrite_manifests(spark, name)
    before = checksum(spark, name)
    assert before[0] == 50
    result = recluster(spark, name, "k", block_rows=40)
    assert checksum(spark, name) == before
    assert (result.blocks_in, result.blocks_out) == (3, 1)
    (warning,) = result.warnings
    assert warning.startswith("1 file is listed more than once in the table's metadata, such as file:")
    assert files[-1].name in warning
    assert recluster(spark, name, block_rows=40).blocks_in == 0
    spark.sql(warning.partition("nobody else writes, ")[2].partition(" writes all rows")[0])
    assert checksum(spark, name) == before
    assert recluster(spark, name, block_rows=40).warnings == []


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("manifests", ["one", "several"])
@pytest.mark.parametrize("partitioned", ["bucket(2, id)", None])
def test_no_plan_has_it(spark: Any, schema: str, partitioned: str | None, manifests: str) -> None:
    """Neither one that merges deep blocks, nor one of a predicate, of deleted rows or of small blocks."""
    properties = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"}
    name = make_table(spark, schema, files=5, rows=200, partitioned=partitioned, properties=properties)
    spark.sql(f"delete from {name} where id % 3 = 0")
    twice = list_again(spark, name, "id in (1, 2)", times=2)
    if manifests == "one":
        rewrite_manifests(spark, name)
    before = checksum(spark, name)
    first = recluster(spark, name, "k", depth=1, block_rows=150, where="k < 700")
    assert first.rounds
    second = recluster(spark, name, depth=1, block_rows=150, final=True)
    assert [len(result.warnings) for result in (first, second)] == [1, 1]
    recluster(spark, name, depth=1, block_rows=1000)  # under which the others are small
    assert checksum(spark, name) == before
    listed = [row[0] for row in spark.sql(f"select file_path from {name}.data_files").collect()]
    assert {path for path in listed if listed.count(path) == 3} == twice
    assert len(set(listed)) == len(listed) - 2 * len(twice)
    metrics = clustering_information(spark, name)
    assert metrics["total_block_count"] == len(listed)  # a query opens each listing


@pytest.mark.thorough
def test_it_is_seen_in_the_manifests_of_some_partitions(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=2, rows=50, partitioned="bucket(2, id)")
    twice = list_again(spark, name, "id = 1")
    table = ClusteredTable(spark, name, "k")
    snapshots = table.snapshots()
    changed = changed_partitions(table.iceberg, snapshots[0].id, snapshots[-1].id, ())
    assert changed is not None
    blocks = read_blocks(table.iceberg, table.key, snapshots[-1].id, changed)
    assert blocks.repeated is not None
    assert set(blocks.take(blocks.repeated).path.to_pylist()) == twice
    for load in range(3):
        append(spark, name, 1000 + 20 * load, 20)
        before = checksum(spark, name)
        recluster(spark, name, "k", depth=1, block_rows=10, trigger="run")
        assert checksum(spark, name) == before
