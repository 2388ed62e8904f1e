"""Others that rewrite what reclustering has written are recognised, and warned of once; nothing else is."""

import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from tables import append, call, expire, forget_checkpoints, local_path, make_table, metadata_file, rewrite_manifests

from dbt_recluster.api import ClusteredTable, clustering_information
from dbt_recluster.clustering.history import foreign_rewrites, table_history
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.session.jvm import java_items
from dbt_recluster.report.html import render
from dbt_recluster.report.report_data import report_data
from dbt_recluster.report.result_text import history, information

pytestmark = pytest.mark.thorough

AT_NIGHT = pytest.mark.exhaustive
BUILD = ReclusterOptions(trigger="run", depth=1, block_rows=500)


def clustered(spark: Any, schema: str, **options: Any) -> str:
    """Make a table of six blocks of ours, 3,000 rows."""
    name = make_table(spark, schema, files=6, rows=500, **options)
    assert build(spark, name).blocks_out >= 6
    return name


def build(spark: Any, name: str) -> Any:
    """Recluster as a new process does after a build."""
    forget_checkpoints()
    return Recluster(ClusteredTable(spark, name, "k"), BUILD).run()


def binpack(spark: Any, name: str, *arguments: str) -> None:
    call(spark, "rewrite_data_files", name, *arguments)


def rewrites(spark: Any, name: str) -> list[tuple[int, int]]:
    return [(found.blocks, found.rows) for found in foreign_rewrites(ClusteredTable(spark, name))]


def warned(result: Any) -> list[str]:
    return [text for text in result.warnings if "reclustering had written" in text]


@pytest.mark.alike
@pytest.mark.parametrize("version", [2, 1, 3])
def test_a_binpack_of_our_blocks_is_warned_of_once(spark: Any, schema: str, version: int) -> None:
    name = clustered(spark, schema, properties={"format-version": version})
    blocks = int(spark.sql(f"select count(*) from {name}.files").first()[0])
    binpack(spark, name)
    (found,) = foreign_rewrites(ClusteredTable(spark, name))
    assert (found.blocks, found.rows) == (blocks, 3000)
    first = build(spark, name)
    (text,) = warned(first)
    assert not first.rounds
    assert f"snapshot {found.snapshot.id} " in text
    assert text.startswith("spark merged ")
    assert f"{blocks} blocks with 3,000 rows" in text
    before = metadata_file(spark, name)
    assert warned(build(spark, name)) == []
    assert metadata_file(spark, name) == before
    # One that follows is another one, whose warning a recluster gives too.
    append(spark, name, 3000, 1500, files=3)
    assert build(spark, name).rounds
    binpack(spark, name)
    append(spark, name, 4500, 1500, files=3)
    second = build(spark, name)
    assert (bool(second.rounds), len(warned(second))) == (True, 1)
    assert warned(build(spark, name)) == []
    assert len(rewrites(spark, name)) == 2


@pytest.mark.parametrize("version", [2, 1])
def test_rows_undone_excludes_other_writers_rows(spark: Any, schema: str, version: int) -> None:
    """Since Iceberg 1.11 the rows of others are in files with the table's sort order id, too."""
    name = clustered(spark, schema, properties={"format-version": version})
    append(spark, name, 3000, 1500, files=3)
    binpack(spark, name, "strategy => 'sort'")
    assert [rows for _, rows in rewrites(spark, name)] == [3000]


def test_what_a_dry_run_sees_is_still_to_be_warned_of(spark: Any, schema: str) -> None:
    name = clustered(spark, schema)
    binpack(spark, name)
    before = metadata_file(spark, name)
    assert warned(Recluster(ClusteredTable(spark, name, "k"), ReclusterOptions(dry_run=True)).run()) == []
    assert metadata_file(spark, name) == before
    assert len(warned(build(spark, name))) == 1


def test_work_undone_by_others_is_shown_wherever_the_table_is(spark: Any, schema: str) -> None:
    def shown() -> tuple[str, str]:
        table = ClusteredTable(spark, name)
        page = render([report_data(table, ReclusterOptions())], datetime.now(timezone.utc))
        return information(clustering_information(spark, table)), page

    name = clustered(spark, schema)
    assert not [text for text in shown() if "undone" in text or "had written" in text]
    binpack(spark, name)
    text, page = shown()
    assert re.search("merged by others +3,000 rows that reclustering had written", text)
    assert "Other writers have merged 3,000 rows that reclustering had written: leave this table out" in page
    assert "replace of 3,000 clustered rows" in page
    table = ClusteredTable(spark, name)
    assert table_information(table)["rows_undone"] == 3000
    entries = [entry.as_dict() for entry in table_history(table)]
    assert [entry["rows_undone"] for entry in entries] == [0, 0, 3000]
    assert "-3,000 +3,000 (3,000 clustered)" in history({"table": name, "since": None, "entries": entries})


def rewrite_position_deletes(spark: Any, name: str) -> None:
    for rest in range(3):
        spark.sql(f"delete from {name} where id % 10 = {rest}")
    call(spark, "rewrite_position_delete_files", name, "options => map('rewrite-all', 'true')")


def apply_deletes(spark: Any, name: str) -> None:
    """Write each block anew by itself, without the rows that are deleted."""
    spark.sql(f"delete from {name} where id % 2 = 0")
    binpack(spark, name, "options => map('min-file-size-bytes', '1', 'max-file-group-size-bytes', '1')")
    summary = IcebergTable.load(spark, name).snapshots()[-1].summary
    assert summary["added-data-files"] == summary["deleted-data-files"]


def binpack_loads(spark: Any, name: str) -> None:
    append(spark, name, 3000, 6000, files=6)
    binpack(spark, name, "where => 'id >= 3000'")
    assert int(spark.sql(f"select count(*) from {name}.files").first()[0]) < 12


def lose_properties(spark: Any, name: str) -> None:
    append(spark, name, 3000, 1500, files=3)
    table = ClusteredTable(spark, name, "k")
    done = Recluster(table, ReclusterOptions(depth=1, block_rows=5000, final=True)).run()
    assert done.blocks_out < done.blocks_in
    spark.sql(f"alter table {name} unset tblproperties ('recluster.levels', 'recluster.checkpoint')")


def roll_back(spark: Any, name: str) -> None:
    before = IcebergTable.load(spark, name).snapshot_id
    binpack(spark, name)
    call(spark, "rollback_to_snapshot", name, f"snapshot_id => {before}")


@pytest.mark.parametrize(
    "change",
    [
        *(apply_deletes, binpack_loads, lose_properties, roll_back),
        *(pytest.param(each, marks=AT_NIGHT) for each in (rewrite_manifests, rewrite_position_deletes, expire)),
    ],
)
def test_other_changes_are_not_taken_for_undone_work(
    spark: Any, schema: str, change: Callable[[Any, str], None]
) -> None:
    modes = {"write.delete.mode": "merge-on-read"}
    name = clustered(spark, schema, properties=modes)
    change(spark, name)
    spark.sql(f"refresh table {name}")
    assert rewrites(spark, name) == []
    assert warned(build(spark, name)) == []


def test_it_is_recognised_after_the_snapshot_before_it_has_expired(spark: Any, schema: str) -> None:
    """The last recluster's blocks are known by its snapshot only, all others by what the next one has recorded."""
    name = clustered(spark, schema)
    spark.sql(
        f"insert into {name} select /*+ repartition(3) */ id, 5000 + cast(rand(1) * 900 as int), 'v' from range(1500)"
    )
    assert build(spark, name).rounds
    binpack(spark, name)
    expire(spark, name)
    assert [rows for _, rows in rewrites(spark, name)] == [3000]
    assert len(warned(build(spark, name))) == 1


@pytest.mark.alike
@pytest.mark.parametrize("version", [2, 1, 3])
def test_statistics_of_the_same_rows_outlive_an_expiry(spark: Any, schema: str, version: int) -> None:
    """Spark's and Trino's counts of distinct values belong to a snapshot; those of other rows are not carried over."""
    name = make_table(spark, schema, files=6, rows=500, properties={"format-version": version})

    def statistics() -> dict[int, Any]:
        files = java_items(IcebergTable.load(spark, name).java.statisticsFiles())
        return {file.snapshotId(): file for file in files}

    assert build(spark, name).rounds
    assert statistics() == {}
    append(spark, name, 3000, 1500, files=3)
    call(spark, "compute_table_stats", name)
    (counted,) = statistics().values()
    assert build(spark, name).rounds
    current = IcebergTable.load(spark, name).snapshot_id
    carried = statistics()[current]
    assert carried.path() == counted.path()
    of_carried, of_counted = (
        [(blob.sourceSnapshotId(), dict(blob.properties())) for blob in file.blobMetadata()]
        for file in (carried, counted)
    )
    assert of_carried == of_counted
    expire(spark, name)
    ((left, kept),) = statistics().items()
    assert (left, kept.path(), len(kept.blobMetadata())) == (current, counted.path(), 3)
    assert local_path(kept.path()).exists()
    append(spark, name, 4500, 1500, files=3)
    assert build(spark, name).rounds
    assert IcebergTable.load(spark, name).snapshot_id not in statistics()
