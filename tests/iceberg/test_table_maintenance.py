"""Iceberg's own clean-up actions: what they free, what they would free, and when they are refused."""

import os
import signal
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tables import Meanwhile, append, checksum, directory, make_table

from dbt_recluster.api import clustering_information, expire_snapshots, recluster, remove_orphan_files
from dbt_recluster.clustering.table_maintenance import FilesRewritten, TableMaintenance
from dbt_recluster.exceptions import Interrupted, MaintenanceError, OptionError, UnsupportedTableError
from dbt_recluster.iceberg.actions import CatalogFiles
from dbt_recluster.iceberg.iceberg_table import IcebergTable

NOW = datetime.now(timezone.utc)
TOMORROW = NOW + timedelta(days=1)
SOON = NOW + timedelta(hours=12)
LONG_AGO = (NOW - timedelta(days=30)).timestamp()


def tomorrow(spark: Any, name: str) -> TableMaintenance:
    """Look at a table as if a day had gone by since."""
    return TableMaintenance(IcebergTable.load(spark, name), TOMORROW)


def aged(*files: Path) -> None:
    for file in files:
        os.utime(file, (LONG_AGO, LONG_AGO))


def left_behind(spark: Any, name: str) -> tuple[Path, Path]:
    """Leave an orphan, and a metadata file that was half written, and make both look a month old."""
    orphan = directory(spark, name) / "data/left behind.parquet"
    orphan.write_text("x")
    half = directory(spark, name) / "metadata/00009-a.metadata.json"
    half.write_text('{"format-version": 2, "tab')
    aged(orphan, half)
    return orphan, half


def test_an_expiry_frees_what_a_merge_left_and_says_so_before(spark: Any, schema: str) -> None:
    table = make_table(spark, schema)

    def on_disk() -> set[Path]:
        return set((directory(spark, table) / "data").rglob("*.parquet"))

    before, old = checksum(spark, table), on_disk()
    size = sum(file.stat().st_size for file in old)
    recluster(spark, table, "k", depth=1, block_rows=1000)
    levels = clustering_information(spark, table)["levels"]
    merged = on_disk() - old

    planned = tomorrow(spark, table).expire_snapshots(SOON, dry_run=True)
    assert (planned.dry_run, planned.snapshots, planned.kept) == (True, 1, 1)
    assert (planned.files, planned.bytes) == (len(old), size)
    assert on_disk() == old | merged
    assert len(IcebergTable.load(spark, table).snapshots()) == 2

    done = tomorrow(spark, table).expire_snapshots(SOON)
    assert (done.dry_run, done.snapshots, done.files, done.bytes) == (False, 1, len(old), size)
    assert on_disk() == merged
    assert checksum(spark, table) == before
    assert clustering_information(spark, table)["levels"] == levels
    assert tomorrow(spark, table).expire_snapshots(SOON).snapshots == 0


def test_a_table_keeps_its_own_settings(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1, properties={"history.expire.min-snapshots-to-keep": 2})
    append(spark, table, 1000, 10)
    append(spark, table, 2000, 10)
    assert tomorrow(spark, table).expire_snapshots(dry_run=True).snapshots == 0  # five days is the default
    for age in ("0", "1"):
        spark.sql(f"alter table {table} set tblproperties ('history.expire.max-snapshot-age-ms' = '{age}')")
        assert tomorrow(spark, table).expire_snapshots(dry_run=True).snapshots == 1


def test_a_setting_that_iceberg_cannot_read_is_named(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1)
    wrong = {"max-snapshot-age-ms": "5 days", "max-ref-age-ms": str(2**63), "min-snapshots-to-keep": "0"}
    for name, value in wrong.items():
        spark.sql(f"alter table {table} set tblproperties ('history.expire.{name}' = '{value}')")
        with pytest.raises(UnsupportedTableError, match=rf"history\.expire\.{name} = '{value}', which must"):
            tomorrow(spark, table).expire_snapshots(dry_run=True)
        spark.sql(f"alter table {table} unset tblproperties ('history.expire.{name}')")


def test_what_might_harm_a_reader_or_another_table_is_refused(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1)
    append(spark, table, 1000, 10)
    maintenance = TableMaintenance(IcebergTable.load(spark, table), NOW)
    recent = NOW - timedelta(minutes=10)
    refused = {
        "older_than lies in the future": lambda: maintenance.expire_snapshots(TOMORROW),
        "may still read what would be deleted": lambda: maintenance.expire_snapshots(recent),
        "three days back at least": lambda: maintenance.remove_orphan_files(recent),
        "retain_last must be a whole number above 0": lambda: expire_snapshots(spark, table, retain_last=0),
    }
    for message, call in refused.items():
        with pytest.raises((MaintenanceError, OptionError), match=message):
            call()
    assert maintenance.expire_snapshots(recent, force=True).snapshots == 0
    # A time without a zone is UTC, whatever the machine's zone.
    assert expire_snapshots(spark, table, datetime(2026, 1, 1)).snapshots == 0
    spark.sql(f"alter table {table} set tblproperties ('gc.enabled' = 'false')")
    maintenance = tomorrow(spark, table)
    for call in (lambda: maintenance.expire_snapshots(SOON), maintenance.remove_orphan_files):
        with pytest.raises(MaintenanceError, match=r"gc\.enabled is false"):
            call()
    assert maintenance.maintain(orphans=True).done == ()
    assert len(IcebergTable.load(spark, table).snapshots()) == 2


def test_the_present_is_that_of_the_call(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1)
    append(spark, table, 1000, 10)
    assert expire_snapshots(spark, table, datetime.now(timezone.utc), force=True).snapshots == 1
    assert expire_snapshots(spark, table, "1 hour").snapshots == 0
    assert remove_orphan_files(spark, table, "3 days").files == ()


def test_orphans_are_named_and_removed_only_on_request(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=2)
    before, old = checksum(spark, table), left_behind(spark, table)
    young = directory(spark, table) / "data/being-written.parquet"
    young.write_text("x")
    maintenance = TableMaintenance(IcebergTable.load(spark, table))
    named = maintenance.remove_orphan_files()
    assert {Path(file).name for file in named.files} == {file.name for file in old}
    assert all(file.exists() for file in old)
    assert maintenance.remove_orphan_files(dry_run=False).files == named.files
    assert [file.exists() for file in (*old, young)] == [False, False, True]
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
    old = left_behind(spark, table)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(Interrupted, match="interrupted"):
            TableMaintenance(IcebergTable.load(spark, table), catalog=Pressed()).maintain(orphans=True)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert all(file.exists() for file in old)


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
    other, location = f"{schema}.other", f"file:{directory(spark, table)}"
    spark.sql(f"create table {other} (id bigint) using iceberg {clauses.format(location=location)}")
    spark.sql(f"insert into {other} values (1)")
    aged(*directory(spark, table).rglob("*.parquet"))
    for force in (True, False):
        with pytest.raises(MaintenanceError, match="other writes into the same directory"):
            TableMaintenance(IcebergTable.load(spark, table)).remove_orphan_files(dry_run=False, force=force)
    assert spark.sql(f"select sum(id) from {other}").first()[0] == 1
    spark.sql(f"drop table {other}")


def test_tables_beside_its_own_directories_are_no_orphans(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=1)
    root = directory(spark, table)
    for name, kind in (("inner", "iceberg"), ("of_parquet", "parquet")):
        location = f"file:{root}/{name}"
        spark.sql(f"create table {schema}.{name} (id bigint) using {kind} location '{location}'")
        spark.sql(f"insert into {schema}.{name} values (1)")
    aged(*root.rglob("*.parquet"))
    assert TableMaintenance(IcebergTable.load(spark, table)).remove_orphan_files(dry_run=False).files == ()
    for name in ("inner", "of_parquet"):
        assert spark.sql(f"select sum(id) from {schema}.{name}").first()[0] == 1
        spark.sql(f"drop table {schema}.{name}")


@pytest.mark.exhaustive
def test_files_of_a_table_that_was_dropped_go_only_if_forced(spark: Any, schema: str) -> None:
    """The catalog of a full refresh leaves the files of the table before; another catalog may still have it."""
    table = make_table(spark, schema, files=1)
    root = directory(spark, table)
    spark.sql(f"drop table {table}")
    aged(*root.rglob("*"))
    spark.sql(f"create table {table} (id bigint) using iceberg location 'file:{root}'")
    spark.sql(f"insert into {table} values (1)")
    maintenance = TableMaintenance(IcebergTable.load(spark, table))
    with pytest.raises(MaintenanceError, match=r"metadata\.json is not of this table\. If that table was dropped"):
        maintenance.remove_orphan_files(dry_run=False)
    removed = maintenance.remove_orphan_files(dry_run=False, force=True)
    assert {Path(file).suffix for file in removed.files} == {".parquet", ".avro", ".json"}
    assert spark.sql(f"select sum(id) from {table}").first()[0] == 1


@pytest.mark.exhaustive
def test_tags_keep_their_snapshots_and_are_named_once_past_their_age(spark: Any, schema: str) -> None:
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
    assert spark.sql(f"select name from {table}.refs where type = 'TAG'").collect() == [("kept",)]


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
    task, after = "rewrite_position_delete_files", 1 if granularity == "partition" else 6
    assert tomorrow(spark, table).maintain(dry_run=True).done == (FilesRewritten(task, table, True, 6, None),)
    assert tomorrow(spark, table).maintain().done == (FilesRewritten(task, table, False, 6, after),)
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
