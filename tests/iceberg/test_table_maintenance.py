"""Iceberg's own clean-up actions: what they free, what they would free, and when they are refused."""

from __future__ import annotations

import os
import signal
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tables import Meanwhile, append, checksum, local_path, make_table

from dbt_recluster.clustering.table_maintenance import FilesRewritten, TableMaintenance
from dbt_recluster.clustering.values import parse_moment
from dbt_recluster.exceptions import Interrupted, MaintenanceError, OptionError, UnsupportedTableError
from dbt_recluster.iceberg.actions import CatalogFiles
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.maintenance import clustering_information, recluster, table_maintenance

NOW = datetime.now(timezone.utc)
TOMORROW = NOW + timedelta(days=1)
SOON = NOW + timedelta(hours=12)
LONG_AGO = (NOW - timedelta(days=30)).timestamp()


def tomorrow(spark: Any, name: str) -> TableMaintenance:
    """Look at a table as if a day had gone by since."""
    return TableMaintenance(IcebergTable.load(spark, name), TOMORROW)


def on_disk(spark: Any, name: str) -> set[Path]:
    return set((local_path(IcebergTable.load(spark, name).java.location()) / "data").rglob("*.parquet"))


def test_an_expiry_frees_what_a_merge_left_and_says_so_before(spark: Any, schema: str) -> None:
    table = make_table(spark, schema)
    before, old = checksum(spark, table), on_disk(spark, table)
    size = sum(file.stat().st_size for file in old)
    recluster(spark, table, "k", depth=1, block_rows=1000)
    levels = clustering_information(spark, table)["levels"]
    merged = on_disk(spark, table) - old

    planned = tomorrow(spark, table).expire_snapshots(SOON, dry_run=True)
    assert (planned.dry_run, planned.snapshots, planned.kept) == (True, 1, 1)
    assert (planned.files, planned.bytes) == (len(old), size)
    assert on_disk(spark, table) == old | merged
    assert len(IcebergTable.load(spark, table).snapshots()) == 2

    done = tomorrow(spark, table).expire_snapshots(SOON)
    assert (done.dry_run, done.snapshots, done.files, done.bytes) == (False, 1, len(old), size)
    assert on_disk(spark, table) == merged
    assert checksum(spark, table) == before
    assert clustering_information(spark, table)["levels"] == levels
    assert tomorrow(spark, table).expire_snapshots(SOON).snapshots == 0


@pytest.mark.exhaustive
def test_retained_tagged_and_branched_snapshots_stay(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1)
    first = checksum(spark, table)
    spark.sql(f"alter table {table} create tag audit")
    for load in range(1, 5):
        append(spark, table, load * 1000, 10)
    kept = tomorrow(spark, table).expire_snapshots(SOON, retain_last=3)
    assert (kept.snapshots, kept.kept, kept.files) == (1, 4, 0)
    gone = tomorrow(spark, table).expire_snapshots(SOON)
    assert (gone.snapshots, gone.kept) == (2, 2)
    assert spark.sql(f"select count(*) from {table} version as of 'audit'").first()[0] == first[0]


def test_a_table_keeps_its_own_settings(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1, properties={"history.expire.min-snapshots-to-keep": 2})
    append(spark, table, 1000, 10)
    append(spark, table, 2000, 10)
    assert tomorrow(spark, table).expire_snapshots(dry_run=True).snapshots == 0  # five days is the default
    for age in ("0", "1"):
        spark.sql(f"alter table {table} set tblproperties ('history.expire.max-snapshot-age-ms' = '{age}')")
        assert tomorrow(spark, table).expire_snapshots(dry_run=True).snapshots == 1


@pytest.mark.alike
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max-snapshot-age-ms", "5 days"),
        ("max-snapshot-age-ms", "-1"),
        ("max-ref-age-ms", str(2**63)),
        ("min-snapshots-to-keep", "0"),
        ("min-snapshots-to-keep", str(2**31)),
    ],
)
def test_a_setting_that_iceberg_cannot_read_is_named(spark: Any, schema: str, name: str, value: str) -> None:
    table = make_table(spark, schema, files=1, properties={f"history.expire.{name}": value})
    with pytest.raises(
        UnsupportedTableError, match=rf"property history\.expire\.{name} = '{value}', which must"
    ):
        tomorrow(spark, table).expire_snapshots(dry_run=True)


def test_what_might_harm_a_reader_or_another_table_is_refused(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1)
    append(spark, table, 1000, 10)
    maintenance = TableMaintenance(IcebergTable.load(spark, table), NOW)
    for refused in (
        lambda: maintenance.expire_snapshots(TOMORROW),
        lambda: maintenance.remove_orphan_files(TOMORROW, dry_run=False, force=True),
    ):
        with pytest.raises(OptionError, match="older_than lies in the future"):
            refused()
    recent = NOW - timedelta(minutes=10)
    with pytest.raises(MaintenanceError, match="may still read what would be deleted"):
        maintenance.expire_snapshots(recent)
    with pytest.raises(MaintenanceError, match="three days back at least"):
        maintenance.remove_orphan_files(recent)
    assert maintenance.expire_snapshots(recent, force=True).snapshots == 0
    # A time without a zone is UTC, whatever the machine's zone.
    assert maintenance.expire_snapshots(datetime(2026, 1, 1)).snapshots == 0
    for count in (0, -1, 1.5, 2**31):
        with pytest.raises(OptionError, match="retain_last must be a whole number above 0"):
            maintenance.expire_snapshots(retain_last=count)
    spark.sql(f"alter table {table} set tblproperties ('gc.enabled' = 'false')")
    for refused in (
        lambda: tomorrow(spark, table).expire_snapshots(SOON),
        lambda: tomorrow(spark, table).remove_orphan_files(),
    ):
        with pytest.raises(MaintenanceError, match=r"gc\.enabled is false"):
            refused()
    assert tomorrow(spark, table).maintain(orphans=True).done == ()
    assert len(IcebergTable.load(spark, table).snapshots()) == 2


def test_the_present_is_that_of_the_call(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1)
    maintenance = table_maintenance(spark, table)
    append(spark, table, 1000, 10)
    assert maintenance.expire_snapshots(datetime.now(timezone.utc), force=True).snapshots == 1
    assert maintenance.expire_snapshots(parse_moment("older_than", "1 hour")).snapshots == 0
    assert maintenance.remove_orphan_files(parse_moment("older_than", "3 days")).files == ()


def test_orphans_are_named_and_removed_only_on_request(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=2)
    before = checksum(spark, table)
    data = local_path(IcebergTable.load(spark, table).java.location()) / "data"
    old, young = data / "left behind.parquet", data / "being-written.parquet"
    for file in (old, young):
        file.write_text("x")
    os.utime(old, (LONG_AGO, LONG_AGO))
    maintenance = TableMaintenance(IcebergTable.load(spark, table))
    named = maintenance.remove_orphan_files()
    assert [Path(file).name for file in named.files] == [old.name]
    assert old.exists()
    assert maintenance.remove_orphan_files(dry_run=False).files == named.files
    assert (old.exists(), young.exists()) == (False, True)
    assert maintenance.remove_orphan_files(dry_run=False).files == ()
    assert checksum(spark, table) == before


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="no signal reaches the tests here"
)
def test_ctrl_c_deletes_nothing_further(spark: Any, schema: str) -> None:
    class Pressed(CatalogFiles):
        def uuids(self, table: IcebergTable) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            return super().uuids(table)

    table = make_table(spark, schema)
    old = local_path(IcebergTable.load(spark, table).java.location()) / "data" / "left behind.parquet"
    old.write_text("x")
    os.utime(old, (LONG_AGO, LONG_AGO))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(Interrupted, match="interrupted"):
            TableMaintenance(IcebergTable.load(spark, table), catalog=Pressed()).maintain(orphans=True)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert old.exists()


def aged(directory: Path) -> None:
    for file in directory.rglob("*.parquet"):
        os.utime(file, (LONG_AGO, LONG_AGO))


@pytest.mark.alike
@pytest.mark.parametrize(
    "clauses",
    [
        "location '{location}'",
        "location '{location}/data/inner'",
        "tblproperties ('write.data.path' = '{location}/data')",
        "tblproperties ('write.object-storage.enabled' = 'true', 'write.data.path' = '{location}/data/of/other')",
        "location '{location}' tblproperties ('write.metadata.path' = '{location}/elsewhere')",
    ],
)
def test_orphans_where_another_table_writes_are_refused(spark: Any, schema: str, clauses: str) -> None:
    table = make_table(spark, schema, files=1)
    location = str(IcebergTable.load(spark, table).java.location())
    other = f"{schema}.other"
    spark.sql(f"create table {other} (id bigint) using iceberg {clauses.format(location=location)}")
    spark.sql(f"insert into {other} values (1)")
    aged(local_path(location))
    for force in (True, False):
        with pytest.raises(MaintenanceError, match="other writes into the same directory"):
            TableMaintenance(IcebergTable.load(spark, table)).remove_orphan_files(dry_run=False, force=force)
    assert spark.sql(f"select sum(id) from {other}").first()[0] == 1
    spark.sql(f"drop table {other}")


def test_tables_beside_its_own_directories_are_no_orphans(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1)
    location = str(IcebergTable.load(spark, table).java.location())
    for name, kind in (("inner", "iceberg"), ("of_parquet", "parquet")):
        spark.sql(f"create table {schema}.{name} (id bigint) using {kind} location '{location}/{name}'")
        spark.sql(f"insert into {schema}.{name} values (1)")
    aged(local_path(location))
    assert TableMaintenance(IcebergTable.load(spark, table)).remove_orphan_files(dry_run=False).files == ()
    for name in ("inner", "of_parquet"):
        assert spark.sql(f"select sum(id) from {schema}.{name}").first()[0] == 1
        spark.sql(f"drop table {schema}.{name}")


def test_orphans_are_found_where_the_table_writes(spark: Any, schema: str, tmp_path: Path) -> None:
    properties = {"write.data.path": (tmp_path / "rows").as_uri()}
    table = make_table(spark, schema, files=1, properties=properties)
    (tmp_path / "rows/orphan.parquet").write_text("x")
    aged(tmp_path)
    (file,) = TableMaintenance(IcebergTable.load(spark, table)).remove_orphan_files(dry_run=False).files
    assert file.endswith("rows/orphan.parquet")
    assert checksum(spark, table)[0] == 1000


@pytest.mark.exhaustive
def test_files_of_a_table_that_was_dropped_go_only_if_forced(spark: Any, schema: str) -> None:
    """The catalog of a full refresh leaves the files of the table before; another catalog may still have it."""
    table = make_table(spark, schema, files=1)
    location = str(IcebergTable.load(spark, table).java.location())
    spark.sql(f"drop table {table}")
    for path in local_path(location).rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    spark.sql(f"create table {table} (id bigint) using iceberg location '{location}'")
    spark.sql(f"insert into {table} values (1)")
    maintenance = TableMaintenance(IcebergTable.load(spark, table))
    with pytest.raises(
        MaintenanceError, match=r"metadata\.json is not of this table\. If that table was dropped"
    ):
        maintenance.remove_orphan_files(dry_run=False)
    removed = maintenance.remove_orphan_files(dry_run=False, force=True)
    assert {Path(file).suffix for file in removed.files} == {".parquet", ".avro", ".json"}
    assert spark.sql(f"select sum(id) from {table}").first()[0] == 1


@pytest.mark.exhaustive
def test_a_half_written_metadata_file_is_an_orphan_like_others(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1)
    metadata = local_path(IcebergTable.load(spark, table).java.location()) / "metadata"
    for name, text in (
        ("00009-a.metadata.json", '{"format-version": 2, "tab'),
        ("00009-b.metadata.json", ""),
    ):
        (metadata / name).write_text(text)
        os.utime(metadata / name, (LONG_AGO, LONG_AGO))
    removed = TableMaintenance(IcebergTable.load(spark, table)).remove_orphan_files(dry_run=False)
    assert len(removed.files) == 2


@pytest.mark.exhaustive
def test_tags_past_their_age_are_named(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1)
    spark.sql(f"alter table {table} create tag kept retain 10 days")
    spark.sql(f"alter table {table} create tag audit")
    append(spark, table, 1000, 10)
    append(spark, table, 2000, 10)
    since = IcebergTable.load(spark, table).snapshots()[-1].at.isoformat(timespec="seconds")
    done = tomorrow(spark, table).expire_snapshots(SOON, dry_run=True)
    assert (done.refs, done.snapshots, done.kept, done.kept_since) == ((), 1, 2, since)
    spark.sql(f"alter table {table} set tblproperties ('history.expire.max-ref-age-ms' = '1')")
    assert tomorrow(spark, table).expire_snapshots(SOON, dry_run=True).refs == ("audit",)
    assert tomorrow(spark, table).expire_snapshots(SOON).refs == ("audit",)
    assert [row[0] for row in spark.sql(f"select name from {table}.refs where type = 'TAG'").collect()] == [
        "kept"
    ]


def test_manifests_are_rewritten_when_they_are_many_and_then_rest(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=0)
    for load in range(9):
        append(spark, table, load * 10, 10)
    assert tomorrow(spark, table).maintain().done == ()
    append(spark, table, 1000, 10)
    before = checksum(spark, table)
    task = "rewrite_manifests"
    assert tomorrow(spark, table).maintain(dry_run=True).done == (FilesRewritten(task, table, True, 10, 1),)
    assert tomorrow(spark, table).maintain().done == (FilesRewritten(task, table, False, 10, 1),)
    assert tomorrow(spark, table).maintain().done == ()
    assert checksum(spark, table) == before


@pytest.mark.exhaustive
def test_manifests_of_an_old_spec_are_not_due(spark: Any, schema: str) -> None:
    """Iceberg rewrites those of the current spec only, so they would be due for ever."""
    table = make_table(spark, schema, files=0)
    for load in range(12):
        append(spark, table, load * 10, 10)
    spark.sql(f"alter table {table} add partition field bucket(2, id)")
    append(spark, table, 1000, 10)
    assert tomorrow(spark, table).maintain().done == ()


@pytest.mark.alike
@pytest.mark.parametrize("granularity", ["partition", "file"])
def test_position_deletes_are_joined_and_then_rest(spark: Any, schema: str, granularity: str) -> None:
    properties = {"format-version": 2, "write.delete.mode": "merge-on-read"}
    table = make_table(spark, schema, properties={**properties, "write.delete.granularity": "partition"})
    for row in range(6):
        spark.sql(f"delete from {table} where k = {row * 100}")
    before = checksum(spark, table)
    spark.sql(f"alter table {table} set tblproperties ('write.delete.granularity' = '{granularity}')")
    (planned,) = tomorrow(spark, table).maintain(dry_run=True).done
    assert isinstance(planned, FilesRewritten)
    assert (planned.before, planned.after) == (6, None)
    (done,) = tomorrow(spark, table).maintain().done
    assert isinstance(done, FilesRewritten)
    assert (done.before, done.after) == (6, 1 if granularity == "partition" else 6)
    assert tomorrow(spark, table).maintain().done == ()
    assert checksum(spark, table) == before


def test_a_table_that_was_never_written_needs_nothing(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=0)
    maintenance = tomorrow(spark, table)
    assert maintenance.maintain(orphans=True).done == ()
    assert maintenance.rewrite_manifests().before == 0
    assert maintenance.rewrite_position_delete_files().before == 0
    assert maintenance.expire_snapshots(SOON).kept_since is None


def test_an_expiry_during_a_merge_loses_nothing(spark: Any, schema: str) -> None:
    table = make_table(spark, schema)
    before = checksum(spark, table)
    append(spark, table, 10_000, 500)

    def expire() -> None:
        spark.sql(f"delete from {table} where id < 10")
        assert tomorrow(spark, table).expire_snapshots(SOON).snapshots > 0

    meanwhile = Meanwhile("commit", expire)
    result = recluster(spark, table, "k", depth=1, block_rows=1000, listener=meanwhile)
    assert meanwhile.errors == []
    assert result.rounds
    assert checksum(spark, table)[0] == before[0] + 500 - 10
