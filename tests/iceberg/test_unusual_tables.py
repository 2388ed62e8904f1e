"""Tables as they come: dates beyond the calendar, types that Spark lacks, odd names, no bounds, files listed twice."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tables import (
    append,
    checksum,
    list_again,
    local_path,
    make_table,
    metadata_file,
    planned,
    recluster_keeping_rows,
    rewrite_manifests,
)

from dbt_recluster.api import (
    clustering_history,
    clustering_information,
    clustering_report,
    estimate_clustering_cost,
    recluster,
    suggest_cluster_by,
)
from dbt_recluster.clustering import table as clustered_table
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.exceptions import ClusterKeyError, UnsupportedTableError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import read_blocks
from dbt_recluster.iceberg.metadata.changed_partitions import changed_partitions


def add_column(spark: Any, name: str, column: str, kind: str) -> None:
    """Add a column of a type that Spark's SQL has no name for."""
    table = IcebergTable.load(spark, name)
    types = table.iceberg.types.Types
    iceberg_type = {"uuid": types.UUIDType, "time": types.TimeType}[kind].get()
    table.java.updateSchema().addColumn(column, iceberg_type).commit()


@pytest.mark.alike
@pytest.mark.parametrize("key", ["d", "ts", "days(d)", "days(ts)", "hours(ts)", "months(d)", "years(ts)"])
def test_dates_after_year_9999_are_planned_merged_and_reported(spark: Any, schema: str, key: str) -> None:
    """Python's dates end with the year 9999, Spark's do not."""
    name = f"{schema}.t"
    spark.sql(
        f"create table {name} using iceberg as select /*+ repartition(4) */ date_add(date'1970-01-01', "
        "int(id * 90000)) d, timestamp_seconds(id * 90000 * 86400L) ts from range(-40, 60)"
    )
    sets = planned(spark, name, key, depth=1, block_rows=50).sets
    assert (sets[0].lower[0], sets[-1].upper[:2]) == ("-", "+1")
    assert estimate_clustering_cost(spark, name, key, depth=1, block_rows=50).first_bytes > 0
    recluster_keeping_rows(spark, name, key, depth=1, block_rows=50, final=True)
    assert clustering_history(spark, name).entries[-1].kind == "recluster"
    assert clustering_report(spark, name).now.labels


@pytest.mark.parametrize("kind", ["uuid", "time"])
def test_columns_without_a_spark_type_are_refused_as_keys(spark: Any, schema: str, kind: str) -> None:
    name = make_table(spark, schema, files=4, rows=100)
    add_column(spark, name, "u", kind)
    before = metadata_file(spark, name)
    error = ClusterKeyError if kind == "uuid" else UnsupportedTableError
    for look in (recluster, clustering_information):
        with pytest.raises(error):
            look(spark, name, "u")
    assert metadata_file(spark, name) == before
    if kind == "time":
        with pytest.raises(UnsupportedTableError, match="cannot be read by Spark"):
            suggest_cluster_by(spark, name)
    else:
        assert suggest_cluster_by(spark, name).not_tried == (("u", "uuid"),)
        assert recluster(spark, name, "k", depth=1, block_rows=100).depth_after < 4


def test_a_dropped_partition_column_is_refused_with_its_repair(spark: Any, hadoop_catalog: str) -> None:
    """Iceberg's metadata tables cannot be read then. The error says what repairs the table."""
    name = make_table(spark, f"{hadoop_catalog}.db", files=4, rows=100, partitioned="bucket(2, id)")
    spark.sql(f"alter table {name} drop partition field bucket(2, id)")
    spark.sql(f"alter table {name} drop column id")
    before = metadata_file(spark, name)
    for look in (recluster, clustering_information):
        with pytest.raises(UnsupportedTableError, match="partition"):
            look(spark, name, "k")
    assert metadata_file(spark, name) == before


def test_names_that_count_on_the_current_namespace(spark: Any, hadoop_catalog: str) -> None:
    spark.sql(f"create namespace {hadoop_catalog}.db")
    spark.sql(f"create namespace {hadoop_catalog}.db.`inner-most`")
    current = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    try:
        spark.sql(f"use {hadoop_catalog}.db.`inner-most`")
        make_table(spark, f"{hadoop_catalog}.db.`inner-most`", files=4, rows=100)
        for name in ("t", f"{hadoop_catalog}.db.`inner-most`.t"):
            assert clustering_information(spark, name, "k")["total_block_count"] == 4
        assert recluster(spark, "t", "k", depth=1, block_rows=100, final=True).depth_after < 4
    finally:
        spark.sql(f"use {current[0]}.{current[1]}")


@pytest.mark.alike
@pytest.mark.parametrize(
    ("name", "value", "key", "better"),
    [
        ("write.format.default", "avro", "k", "parquet"),
        ("write.metadata.metrics.column.k", "none", "k", "full"),
        ("write.metadata.metrics.column.k", "counts", "k", "full"),
        ("write.metadata.metrics.column.k", "none", None, "full"),
        ("write.metadata.metrics.column.k", "none", "hilbert(id, k)", "full"),
    ],
)
def test_no_rewrite_without_bounds(
    spark: Any, schema: str, name: str, value: str, key: str | None, better: str
) -> None:
    table = make_table(spark, schema, files=4, rows=100, properties={name: value})
    if key is None:
        spark.sql(f"alter table {table} write ordered by k asc nulls first")
    before = metadata_file(spark, table)
    for dry_run in (True, False):
        with pytest.raises(UnsupportedTableError, match="no query would skip a block") as raised:
            recluster(spark, table, key, depth=1, block_rows=100, dry_run=dry_run)
    assert metadata_file(spark, table) == before
    statement = str(raised.value).partition("First run: ")[2]
    assert statement.endswith(f"('{name}' = '{better}')")
    spark.sql(statement)
    append(spark, table, 400, 100)
    recluster(spark, table, key, depth=1, block_rows=100)


def test_a_default_of_no_metrics_is_overruled_for_the_key(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, properties={"write.metadata.metrics.default": "none"})
    recluster(spark, name, "k", depth=1, block_rows=1000, final=True)
    assert recluster(spark, name, depth=1, block_rows=1000, final=True).depth_after <= 2


@pytest.mark.thorough
@pytest.mark.parametrize("cut_off_by_hand", [False, True])
def test_bounds_of_a_key_are_whole_or_a_warning_says_how(spark: Any, schema: str, cut_off_by_hand: bool) -> None:
    property_name = "write.metadata.metrics.column.v"
    name = make_table(spark, schema, properties={property_name: "truncate(4)"} if cut_off_by_hand else {})
    spark.sql(f"alter table {name} write ordered by v asc nulls first")
    first = recluster(spark, name, depth=1, block_rows=1000)
    if cut_off_by_hand:
        (warning,) = first.warnings
        assert first.depth_before == clustering_information(spark, name)["average_depth"] == 6
        assert not recluster(spark, name, depth=1, block_rows=1000).rounds
        for statement in re.findall(r"alter table .*?\)", warning):
            spark.sql(statement)
        assert recluster(spark, name, depth=1, block_rows=1000).rounds
    again = recluster(spark, name, depth=1, block_rows=1000)
    assert (again.warnings, again.rounds, again.depth_after) == ([], [], 1)
    assert IcebergTable.load(spark, name).properties[property_name] == "full"


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("version", [2, 3])
def test_lost_row_ids_are_told_once(spark: Any, schema: str, version: int) -> None:
    properties = {"write.format.default": "orc", "format-version": version}
    name = make_table(spark, schema, files=4, rows=100, properties=properties)
    warnings = []
    for load in range(2):
        warnings.append(recluster_keeping_rows(spark, name, "k", depth=1, block_rows=100).warnings)
        append(spark, name, 400 + 100 * load, 100)
    assert [bool(told) for told in warnings] == [version == 3, False]


def test_a_report_reads_the_blocks_once(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again in this process either."""
    name = make_table(spark, schema, files=4, rows=100)
    recluster(spark, name, "k", depth=1, block_rows=100)
    append(spark, name, 1000, 10)  # the snapshot of the recluster has been read
    reads, read_blocks = [], clustered_table.read_blocks
    monkeypatch.setattr(clustered_table, "read_blocks", lambda *of: reads.append(of[2]) or read_blocks(*of))
    for _ in range(2):
        clustering_report(spark, name)
    assert len(reads) == len(set(reads))
    assert IcebergTable.load(spark, name).snapshot_id in reads


def test_a_copy_at_another_place_has_blocks_of_its_own(spark: Any, schema: str, tmp_path: Path) -> None:
    """Its uuid and its snapshots are those of the original, which this process has read."""
    name = make_table(spark, schema, files=4, rows=100)
    rows = checksum(spark, name)
    planned(spark, name, "k", depth=1, block_rows=100)
    original = str(IcebergTable.load(spark, name).java.location())
    written = spark.sql(
        f"call spark_catalog.system.rewrite_table_path(table => '{name}', source_prefix => '{original}', "
        f"target_prefix => '{tmp_path.as_uri()}', staging_location => '{(tmp_path / 'staged').as_uri()}')"
    ).first()
    for line in local_path(written.file_list_location).read_text().splitlines():
        source, target = map(local_path, line.split(","))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    metadata = (tmp_path / "metadata" / written.latest_version).as_uri()
    copy = f"{schema}.copy"
    spark.sql(f"call spark_catalog.system.register_table(table => '{copy}', metadata_file => '{metadata}')")
    assert recluster(spark, copy, "k", depth=1, block_rows=100).depth_after <= 2
    assert checksum(spark, copy) == checksum(spark, name) == rows


@pytest.mark.thorough
def test_the_rows_of_a_file_listed_twice_are_not_lost(spark: Any, schema: str, tmp_path: Path) -> None:
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
    result = recluster_keeping_rows(spark, name, "k", depth=4, block_rows=40)
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
def test_no_plan_has_a_file_that_is_listed_twice(
    spark: Any, schema: str, partitioned: str | None, manifests: str
) -> None:
    """Neither one that merges deep blocks, nor one of a predicate, of deleted rows or of small blocks."""
    properties = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"}
    name = make_table(spark, schema, files=5, rows=200, partitioned=partitioned, properties=properties)
    spark.sql(f"delete from {name} where id % 3 = 0")
    twice = list_again(spark, name, "id in (1, 2)", times=2)
    if manifests == "one":
        rewrite_manifests(spark, name)
    first = recluster_keeping_rows(spark, name, "k", depth=1, block_rows=150, where="k < 700")
    assert first.rounds
    second = recluster_keeping_rows(spark, name, depth=1, block_rows=150, final=True)
    assert [len(result.warnings) for result in (first, second)] == [1, 1]
    recluster_keeping_rows(spark, name, depth=1, block_rows=1000)  # under which the others are small
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
        recluster_keeping_rows(spark, name, "k", depth=1, block_rows=10, trigger="run")
