"""Tables as they come: dates beyond the calendar, types that Spark lacks, lost columns, odd names, no bounds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tables import append, checksum, local_path, make_table, metadata_file

from dbt_recluster.clustering import table as clustered_table
from dbt_recluster.exceptions import ClusterKeyError, UnsupportedTableError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.maintenance import (
    clustering_history,
    clustering_information,
    clustering_report_data,
    estimate_clustering_cost,
    recluster,
    suggest_cluster_by,
)


def add_column(spark: Any, name: str, column: str, kind: str) -> None:
    """Add a column of a type that Spark's SQL has no name for."""
    table = IcebergTable.load(spark, name)
    types = table.iceberg.types.Types
    iceberg_type = {"uuid": types.UUIDType, "time": types.TimeType}[kind].get()
    table.java.updateSchema().addColumn(column, iceberg_type).commit()


@pytest.mark.alike
@pytest.mark.parametrize("key", ["d", "ts", "days(d)", "days(ts)", "hours(ts)", "months(d)", "years(ts)"])
def test_times_beyond_the_calendar(spark: Any, schema: str, key: str) -> None:
    """Python's dates end with the year 9999, Spark's do not."""
    name = f"{schema}.t"
    spark.sql(f"create table {name} (id bigint, d date, ts timestamp) using iceberg")
    spark.sql(
        f"insert into {name} select /*+ repartition(4) */ id, date_add(date'1970-01-01', cast(id * 90000 as int)), "
        "timestamp_seconds(id * 90000 * 86400L) from range(-40, 60)"
    )
    before = checksum(spark, name)
    planned = recluster(spark, name, key, depth=1, block_rows=50, dry_run=True).plan
    assert planned is not None
    assert planned.sets[0].lower.startswith("-")
    assert planned.sets[-1].upper.startswith("+1")
    assert estimate_clustering_cost(spark, name, key, depth=1, block_rows=50).first_bytes > 0
    recluster(spark, name, key, depth=1, block_rows=50, final=True)
    assert checksum(spark, name) == before
    assert clustering_history(spark, name)[-1].kind == "recluster"
    assert clustering_report_data(spark, name).now.labels


@pytest.mark.parametrize("kind", ["uuid", "time"])
def test_types_that_spark_lacks(spark: Any, schema: str, kind: str) -> None:
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


def test_a_dropped_partition_source(spark: Any, hadoop_catalog: str) -> None:
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


def test_a_column_with_dots_in_its_name(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (`a.b.c` int, k int) using iceberg")
    spark.sql(f"insert into {name} select /*+ repartition(4) */ id % 7, id % 9 from range(100)")
    before = metadata_file(spark, name)
    for key in ("a.b.c", "`a.b.c`", "a"):
        with pytest.raises(ClusterKeyError):
            recluster(spark, name, key)
    assert metadata_file(spark, name) == before
    rows = checksum(spark, name)
    assert recluster(spark, name, "k", depth=1, block_rows=30, final=True).depth_after <= 2
    assert checksum(spark, name) == rows


@pytest.mark.alike
@pytest.mark.parametrize(
    ("properties", "key", "named"),
    [
        ({"write.format.default": "avro"}, "k", "'write.format.default' = 'parquet'"),
        ({"write.metadata.metrics.column.k": "none"}, "k", "'write.metadata.metrics.column.k' = 'full'"),
        ({"write.metadata.metrics.column.k": "counts"}, "k", "'write.metadata.metrics.column.k' = 'full'"),
        ({"write.metadata.metrics.column.k": "none"}, None, "'write.metadata.metrics.column.k' = 'full'"),
    ],
)
def test_no_rewrite_without_bounds(
    spark: Any, schema: str, properties: dict[str, str], key: str | None, named: str
) -> None:
    name = make_table(spark, schema, files=4, rows=100, properties=properties)
    if key is None:
        spark.sql(f"alter table {name} write ordered by k asc nulls first")
    before = metadata_file(spark, name)
    for dry_run in (True, False):
        with pytest.raises(UnsupportedTableError, match="no query would skip a block") as raised:
            recluster(spark, name, key, depth=1, block_rows=100, dry_run=dry_run)
    assert metadata_file(spark, name) == before
    statement = str(raised.value).partition("First run: ")[2]
    assert statement.endswith(f"({named})")
    spark.sql(statement)
    spark.sql(f"insert into {name} select id, cast(rand(7) * 1000 as int), 'v' from range(100)")
    recluster(spark, name, key, depth=1, block_rows=100)


def test_a_default_of_no_metrics_is_overruled_for_the_key(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, properties={"write.metadata.metrics.default": "none"})
    recluster(spark, name, "k", depth=1, block_rows=1000, final=True)
    assert recluster(spark, name, depth=1, block_rows=1000, final=True).depth_after <= 2


@pytest.mark.thorough
@pytest.mark.parametrize("cut_off_by_hand", [False, True])
def test_bounds_of_a_key_are_whole_or_a_warning_says_how(
    spark: Any, schema: str, cut_off_by_hand: bool
) -> None:
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
    before = checksum(spark, name)
    warnings = []
    for load in range(2):
        warnings.append(recluster(spark, name, "k", depth=1, block_rows=100).warnings)
        spark.sql(f"insert into {name} select id, cast(rand({load}) * 1000 as int), 'v' from range(100)")
    assert [bool(told) for told in warnings] == [version == 3, False]
    assert checksum(spark, name)[0] == before[0] + 200


def test_a_report_reads_the_blocks_once(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make_table(spark, schema, files=4, rows=100)
    recluster(spark, name, "k", depth=1, block_rows=100)
    append(spark, name, 1000, 10)  # the snapshot of the recluster has been read
    reads = []
    read_blocks = clustered_table.read_blocks

    def counting(*arguments: Any) -> Any:
        reads.append(arguments[2])
        return read_blocks(*arguments)

    monkeypatch.setattr(clustered_table, "read_blocks", counting)
    clustering_report_data(spark, name)
    assert len(reads) == len(set(reads))
    assert reads.count(IcebergTable.load(spark, name).snapshot_id) == 1
    count = len(reads)
    clustering_report_data(spark, name)
    assert len(reads) == count  # nor again, in this process


def test_a_copy_at_another_place_has_blocks_of_its_own(spark: Any, schema: str, tmp_path: Path) -> None:
    """Its uuid and its snapshots are those of the original, which this process has read."""
    name = make_table(spark, schema, files=4, rows=100)
    rows = checksum(spark, name)
    recluster(spark, name, "k", depth=1, block_rows=100, dry_run=True)
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
