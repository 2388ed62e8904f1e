"""Iceberg's own actions that keep a table's files and metadata small, and what they would do."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.iceberg_table import GREATEST_LONG, IcebergTable
from dbt_recluster.iceberg.locks import table_lock
from dbt_recluster.iceberg.session.java_functions import JavaFunctions
from dbt_recluster.iceberg.session.jvm import java_items, java_list, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_COUNTS = ("deletedDataFilesCount", "deletedPositionDeleteFilesCount", "deletedEqualityDeleteFilesCount")
# The block of a position delete file for a single one: recorded, or by the bounds of its column file_path, whose id
# this is. Null for one of several blocks.
_LOWER, _UPPER = "cast(lower_bounds[2147483546] as string)", "cast(upper_bounds[2147483546] as string)"
_DELETED_BLOCK = f"coalesce(referenced_data_file, if({_LOWER} = {_UPPER}, {_LOWER}, null))"
_METADATA_FILE = ".metadata.json"
# Iceberg's settings for an expiry: the default, the least and the greatest.
_INT = 2**31 - 1
_RETENTION = {
    "history.expire.max-snapshot-age-ms": (5 * 24 * 3600 * 1000, 0, GREATEST_LONG),
    "history.expire.min-snapshots-to-keep": (1, 1, _INT),
    "history.expire.max-ref-age-ms": (GREATEST_LONG, 0, GREATEST_LONG),
}


@dataclass(frozen=True)
class ExpirableSnapshots:
    """Snapshots that an expiry removes.

    Attributes:
        count: How many there are.
        kept: How many stay, those of tags and branches included.
        kept_since: When the oldest ancestor of the current snapshot that stays was committed.
        refs: Tags and branches that go.
        java: The Java list of them.
    """

    count: int
    kept: int
    kept_since: datetime | None
    refs: tuple[str, ...]
    java: Any


class IcebergActions:
    """Iceberg's actions on a table, as of its last refresh."""

    def __init__(self, table: IcebergTable) -> None:
        self._table = table

    @property
    def _actions(self) -> Any:
        table = self._table
        return table.iceberg.spark.actions.SparkActions.get(table.spark._jsparkSession)

    def expirable(self, older_than: datetime | None, retain_last: int | None) -> ExpirableSnapshots:
        """Return the snapshots that :meth:`expire` would remove; None stands for the table's own settings."""
        for name, limits in _RETENTION.items():
            self._table.number_property(name, *limits)
        java = self._configured(self._table.java.expireSnapshots(), older_than, retain_last).apply()
        gone = {int(snapshot.snapshotId()) for snapshot in java_items(java)}
        # Older ancestors than the newest that goes are kept by tags and branches only.
        history = list(takewhile(lambda snapshot: snapshot.id not in gone, self._table.snapshots()[::-1]))
        kept = int(self._table.java.operations().current().snapshots().size()) - len(gone)
        return ExpirableSnapshots(
            len(gone), kept, history[-1].at if history else None, self._expirable_refs(), java
        )

    def _expirable_refs(self) -> tuple[str, ...]:
        """Return the tags and branches that an expiry drops for their age."""
        table, now = self._table, time.time() * 1000
        longest = table.properties.get("history.expire.max-ref-age-ms")
        refs: list[str] = []
        for entry in java_items(table.java.refs().entrySet()):
            name, ref = str(entry.getKey()), entry.getValue()
            age = ref.maxRefAgeMs() or longest
            if name == "main" or age is None:
                continue
            snapshot = table.java.snapshot(ref.snapshotId())
            if snapshot is None or now - snapshot.timestampMillis() > int(age):
                refs.append(name)
        return tuple(sorted(refs))

    def files_only_in(self, snapshots: ExpirableSnapshots) -> tuple[int, int]:
        """Return how many data and delete files no other snapshot has, and their bytes."""
        current = self._table.java.operations().current()
        then = self._table.iceberg.TableMetadata.buildFrom(current).removeSnapshots(snapshots.java)
        count, size = self._all_files(current)
        count_then, size_then = self._all_files(then.discardChanges().build())
        return count - count_then, size - size_then

    def expire(self, older_than: datetime | None, retain_last: int | None) -> int:
        """Expire snapshots and delete the files that no other snapshot has; return how many data and delete files."""
        action = self._actions.expireSnapshots(self._table.java)
        result = self._execute(self._configured(action, older_than, retain_last))
        return sum(int(getattr(result, count)()) for count in _COUNTS)

    def unknown_files(self, directories: Sequence[str], older_than: datetime) -> set[str]:
        """Return the files in some directories that the table does not know, last changed before a time."""
        files: set[str] = set()
        # What it finds is held against other tables before any of it is deleted.
        keep = JavaFunctions(self._table.spark).no_consumer()
        for directory in filter(self._exists, directories):
            action = self._actions.deleteOrphanFiles(self._table.java).location(directory)
            result = action.olderThan(_millis(older_than)).deleteWith(keep).execute()
            files |= set(map(str, java_items(_as_list(self._table, result.orphanFileLocations()))))
        return files

    def delete_files(self, files: Sequence[str]) -> None:
        """Delete files; one that cannot be deleted stays."""
        table = self._table
        table.iceberg.CatalogUtil.deleteFiles(table.java.io(), java_list(table.spark, files), "orphan", True)

    def rewrite_manifests(self) -> tuple[int, int]:
        """Rewrite manifests to their target size; return how many were replaced and by how many."""
        result = self._execute(self._actions.rewriteManifests(self._table.java))
        rewritten, added = result.rewrittenManifests(), result.addedManifests()
        return int(_as_list(self._table, rewritten).size()), int(_as_list(self._table, added).size())

    def rewrite_position_deletes(self) -> tuple[int, int]:
        """Compact small position delete files; return how many were replaced and by how many."""
        result = self._execute(self._actions.rewritePositionDeletes(self._table.java))
        return int(result.rewrittenDeleteFilesCount()), int(result.addedDeleteFilesCount())

    def manifests(self) -> tuple[int, int]:
        """Return how many manifests the current snapshot has, and how many of the target size would hold as much.

        Only those of the current partition spec, and data and delete manifests apart: Iceberg rewrites them so.
        """
        table = self._table
        snapshot = table.java.currentSnapshot()
        if snapshot is None:
            return 0, 0
        io, spec_id = table.java.io(), int(table.java.spec().specId())
        target = table.number_property(
            table.iceberg.TableProperties.MANIFEST_TARGET_SIZE_BYTES,
            int(table.iceberg.TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT),
        )
        count = needed = 0
        for manifests in (snapshot.dataManifests(io), snapshot.deleteManifests(io)):
            of_spec = [m for m in java_items(manifests) if int(m.partitionSpecId()) == spec_id]
            count += len(of_spec)
            needed += -(-sum(int(m.length()) for m in of_spec) // target)
        return count, needed

    def small_position_deletes(self) -> int:
        """Return the most position delete files in one partition that could be fewer.

        With ``write.delete.granularity`` ``file``, Iceberg's default, one for each block is as few as there can be, and
        deletion vectors are such files always.
        """
        table = self._table
        if table.snapshot_id is None or not table.may_have_deletes(table.snapshot_id):
            return 0
        from pyspark.sql import functions as F

        files = table.metadata("delete_files").where("content = 1 and file_format != 'PUFFIN'")
        partition = [name for name in ("spec_id", "partition") if name in files.columns]
        count = "count(*)"
        if table.properties.get("write.delete.granularity", "file").lower() != "partition":
            count = f"count(*) - count(distinct {_DELETED_BLOCK})"
        counts = files.groupBy(*partition).agg(F.expr(count).alias("files")).groupBy().max("files").collect()
        return int(counts[0][0] or 0)

    def foreign_metadata(self, files: Sequence[str], listed: Collection[str]) -> str | None:
        """Return a metadata file among these of a table that the catalog does not list, or None.

        That is one of another uuid than the ``listed`` ones, or a newer one of this table: another catalog may have it
        too.
        """
        table = self._table
        io, parser = table.java.io(), table.iceberg.TableMetadataParser
        newest = int(table.java.operations().current().lastUpdatedMillis())
        for file in files:
            if not file.endswith(_METADATA_FILE):
                continue
            try:
                metadata = parser.read(io, file)
            except Exception:
                continue  # gone by now, or left half-written by a writer that was killed: no table can need it
            uuid, is_newer = str(metadata.uuid()), int(metadata.lastUpdatedMillis()) > newest
            if is_newer if uuid == table.uuid else uuid not in listed:
                return file
        return None

    def _execute(self, action: Any) -> Any:
        """Run an action that commits; the commit is within, so this process's other commits wait for all of it."""
        with table_lock(self._table.lock_name):
            return action.execute()

    def _exists(self, directory: str) -> bool:
        """Whether there is a directory; a table that was never written has none for its data."""
        spark = self._table.spark
        path = jvm(spark).org.apache.hadoop.fs.Path(directory)
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        return bool(path.getFileSystem(configuration).exists(path))

    def _configured(self, action: Any, older_than: datetime | None, retain_last: int | None) -> Any:
        if older_than is not None:
            action = action.expireOlderThan(_millis(older_than))
        return action if retain_last is None else action.retainLast(retain_last)

    def _all_files(self, metadata: Any) -> tuple[int, int]:
        """Return the number and the bytes of all data and delete files of all snapshots."""
        from pyspark.sql import DataFrame

        table = self._table
        operations = table.iceberg.StaticTableOperations(metadata, table.java.io())
        static = table.iceberg.BaseTable(operations, table.name)
        kind = table.iceberg.MetadataTableType.ALL_FILES
        rows = table.iceberg.spark.SparkTableUtil.loadMetadataTable(table.spark._jsparkSession, static, kind)
        files: DataFrame = DataFrame(rows, table.spark).select("file_path", "file_size_in_bytes").distinct()
        count, size = files.selectExpr("count(*)", "sum(file_size_in_bytes)").collect()[0]
        return int(count), int(size or 0)


def _as_list(table: IcebergTable, iterable: Any) -> Any:
    return table.iceberg.relocated.com.google.common.collect.Lists.newArrayList(iterable)


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
