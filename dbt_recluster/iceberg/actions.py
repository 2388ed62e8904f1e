"""Iceberg's maintenance actions on a table, dry runs of them, and the guard before orphan files are deleted.

The guard compares files by name alone: Iceberg's names are unique, so schemes, hosts, links and mounts do not matter.
On a collision the orphan is kept.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow.compute as pc

from dbt_recluster.exceptions import MaintenanceError
from dbt_recluster.iceberg.catalog_tables import tables_of_catalog
from dbt_recluster.iceberg.iceberg_table import GREATEST_LONG, IcebergTable, Transaction
from dbt_recluster.iceberg.metadata.block_metadata import position_deletes
from dbt_recluster.iceberg.session.jvm import (
    DataFrame,
    JavaFunctions,
    SparkSession,
    collect_arrow,
    java_class,
    java_items,
    java_list,
    java_session,
)
from dbt_recluster.iceberg.session.redaction import is_caused_by, is_instance, short_message
from dbt_recluster.key.types import IntArray
from dbt_recluster.names import Parts, folded, join_parts, name_parts, table_lock

# Iceberg's settings for an expiry: the default, the least and the greatest.
_RETENTION = {
    "history.expire.max-snapshot-age-ms": (5 * 24 * 3600 * 1000, 0, GREATEST_LONG),
    "history.expire.min-snapshots-to-keep": (1, 1, 2**31 - 1),
    "history.expire.max-ref-age-ms": (GREATEST_LONG, 0, GREATEST_LONG),
}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/*", re.IGNORECASE)
_NAMED_HOST = re.compile(r"(?:hdfs|viewfs|webhdfs)://[^/]", re.IGNORECASE)


@dataclass(frozen=True)
class IcebergActions:
    """Iceberg's actions on a table, as of its last refresh."""

    table: IcebergTable

    @property
    def _actions(self) -> Any:
        return self.table.iceberg.spark.actions.SparkActions.get(java_session(self.table.spark))

    def expirable(
        self, older_than: datetime | None, retain_last: int | None
    ) -> tuple[int, int, list[str], IcebergTable]:
        """Plan :meth:`expire`; None stands for the table's own settings.

        Return how many snapshots it removes and keeps, the tags and branches that it removes, and the table afterwards.
        """
        for name, limits in _RETENTION.items():
            self.table.number_property(name, *limits)
        # An expiry in a transaction that is never committed.
        transaction = Transaction.begin(self.table)
        expiry = transaction.java.expireSnapshots().cleanExpiredFiles(False)
        self._configured(expiry, older_than, retain_last).commit()
        before, after = (table.java.operations().current() for table in (self.table, transaction.table))
        names, kept = (set(map(str, java_items(metadata.refs().keySet()))) for metadata in (before, after))
        count = int(after.snapshots().size())
        return int(before.snapshots().size()) - count, count, sorted(names - kept), transaction.table

    def files_only_in(self, rest: IcebergTable) -> tuple[int, int]:
        """Count the data and delete files of this table that ``rest`` does not have; return also their bytes."""
        (count, size), (kept, kept_size) = map(_all_files, (self.table, rest))
        return count - kept, size - kept_size

    def expire(self, older_than: datetime | None, retain_last: int | None) -> int:
        """Expire snapshots and delete their files; return how many data and delete files."""
        action = self._actions.expireSnapshots(self.table.java)
        deleted = self._execute(self._configured(action, older_than, retain_last))
        files = deleted.deletedDataFilesCount() + deleted.deletedPositionDeleteFilesCount()
        return int(files + deleted.deletedEqualityDeleteFilesCount())

    def orphan_files(self, directories: Sequence[str], older_than: datetime) -> set[str]:
        """List files under ``directories`` that no snapshot references, last modified before ``older_than``."""
        spark, files = self.table.spark, set[str]()
        io = self.table.java.io()
        # The table's FileIO may reach what Hadoop does not, such as s3:// without hadoop-aws.
        by_io = bool(java_class(spark, "org.apache.iceberg.io.SupportsPrefixOperations").isInstance(io))
        # The caller checks the files against other tables before any is deleted.
        keep = JavaFunctions(spark).no_consumer()
        for directory in directories:
            action = self._actions.deleteOrphanFiles(self.table.java).location(directory).deleteWith(keep)
            action = action.usePrefixListing(by_io).olderThan(_millis(older_than))
            try:
                orphans = action.execute().orphanFileLocations()
            except Exception as e:
                is_listing = is_instance(e, "java.io.UncheckedIOException")
                if not is_listing or not is_caused_by(e, "java.io.FileNotFoundException"):
                    raise
                continue  # a table that was never written has no directory for its data
            files.update(JavaFunctions(spark).strings(orphans))
        return files

    def delete_files(self, files: Sequence[str]) -> None:
        """Delete files; one that cannot be deleted stays."""
        table = self.table
        table.iceberg.CatalogUtil.deleteFiles(table.java.io(), java_list(table.spark, files), "orphan", True)

    def rewrite_manifests(self) -> tuple[int, int]:
        """Rewrite manifests to their target size; return how many were replaced and by how many."""
        result = self._execute(self._actions.rewriteManifests(self.table.java))
        manifests = (result.rewrittenManifests(), result.addedManifests())
        rewritten, added = (int(java_list(self.table.spark, files).size()) for files in manifests)
        return rewritten, added

    def rewrite_position_deletes(self) -> tuple[int, int]:
        """Compact small position delete files; return how many were replaced and by how many."""
        result = self._execute(self._actions.rewritePositionDeletes(self.table.java))
        return int(result.rewrittenDeleteFilesCount()), int(result.addedDeleteFilesCount())

    def manifests(self) -> tuple[int, int]:
        """Count the manifests of the current snapshot and spec, and those of the target size that would hold as much.

        Iceberg rewrites the manifests of the current partition spec only, those of data and of deletes apart.
        """
        table = self.table
        snapshot = table.java.currentSnapshot()
        if snapshot is None:
            return 0, 0
        io, spec_id = table.java.io(), table.spec_id
        names = table.iceberg.TableProperties
        default = int(names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT)
        target = table.number_property(names.MANIFEST_TARGET_SIZE_BYTES, default)
        count = needed = 0
        for manifests in (snapshot.dataManifests(io), snapshot.deleteManifests(io)):
            of_spec = [m for m in java_items(manifests) if int(m.partitionSpecId()) == spec_id]
            count += len(of_spec)
            needed += -(-sum(int(m.length()) for m in of_spec) // target)
        return count, needed

    def small_position_deletes(self) -> int:
        """Return the most position delete files of one partition that can be compacted.

        Those of a block are compacted into one with ``write.delete.granularity`` ``file``, Iceberg's default. Deletion
        vectors are one for each block already.
        """
        table = self.table
        if table.snapshot_id is None or not table.may_have_deletes(table.snapshot_id):
            return 0
        files = position_deletes(table, table.snapshot_id)
        by_partition = files.filter(pc.field("format") != "PUFFIN").group_by("partition")
        counts = by_partition.aggregate([("block", "count", pc.CountOptions("all")), ("block", "count_distinct")])
        more = counts["block_count"]
        if table.properties.get("write.delete.granularity", "file").lower() != "partition":
            more = pc.subtract(more, counts["block_count_distinct"])
        return pc.max(more).as_py() or 0

    def foreign_metadata(self, files: Iterable[str], listed: Collection[str]) -> str | None:
        """Return a metadata file of a table that the catalog does not list, or None.

        Its uuid is not ``listed``, or it is a newer one of this table, which another catalog may have too.
        """
        table = self.table
        io, parser = table.java.io(), table.iceberg.TableMetadataParser
        newest = int(table.java.operations().current().lastUpdatedMillis())
        for file in files:
            if not file.endswith(".metadata.json"):
                continue
            try:
                metadata = parser.read(io, file)
            except Exception:
                continue  # deleted meanwhile, or half-written by a killed writer: no table needs it
            uuid, is_newer = str(metadata.uuid()), int(metadata.lastUpdatedMillis()) > newest
            if is_newer if uuid == table.uuid else uuid not in listed:
                return file
        return None

    def _execute(self, action: Any) -> Any:
        """Run an action that commits, under the lock of the table's commits."""
        with table_lock(self.table.lock_name):
            return action.execute()

    def _configured(self, action: Any, older_than: datetime | None, retain_last: int | None) -> Any:
        if older_than is not None:
            action = action.expireOlderThan(_millis(older_than))
        return action if retain_last is None else action.retainLast(retain_last)


def _all_files(table: IcebergTable) -> tuple[int, int]:
    operations = table.iceberg.StaticTableOperations(table.java.operations().current(), table.java.io())
    static = IcebergTable(table.spark, table.name, table.identifier, table.iceberg.BaseTable(operations, table.name))
    files = static.metadata("ALL_FILES").select("file_path", "file_size_in_bytes").distinct()
    count, size = files.selectExpr("count(*)", "sum(file_size_in_bytes)").collect()[0]
    return int(count), int(size or 0)


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def directories(table: IcebergTable) -> tuple[str, str] | None:
    """Return the directories of a table's data and metadata, or None if it has its own location provider."""
    properties, location = table.properties, str(table.java.location()).rstrip("/")
    if properties.get("write.location-provider.impl"):
        return None
    is_object_storage = properties.get("write.object-storage.enabled", "false").lower() == "true"
    kinds = ("data", *(["object-storage"] if is_object_storage else []), "folder-storage")
    paths = (properties.get(f"write.{kind}.path") for kind in kinds)
    data = next(filter(None, paths), f"{location}/data")
    metadata = properties.get("write.metadata.path") or f"{location}/metadata"
    return data.rstrip("/"), metadata.rstrip("/")


def without_scheme(path: str) -> str:
    """Return a path without its scheme: ``s3://`` and ``s3a://``, ``file:/`` and ``file:///`` are the same place."""
    return _SCHEME.sub("/", path, count=1)


def overlap(one: str, other: str) -> bool:
    """Whether two directories are the same, or one lies in the other."""
    first, second = _plain_path(one), _plain_path(other)
    return first.startswith(second) or second.startswith(first)


def _plain_path(directory: str) -> str:
    path = without_scheme(directory)
    if _NAMED_HOST.match(directory):
        # hdfs://namenode/a, hdfs:///a and /a may be the same place.
        path = f"/{path.lstrip('/').partition('/')[2]}"
    return f"{posixpath.normpath(path).rstrip('/')}/"


@dataclass(frozen=True)
class _ListedTable:
    parts: Parts
    uuid: str
    directories: Sequence[str]  # that it writes to today
    files: IntArray  # hashes of the names of all files of all snapshots, metadata included: int64 (n,)


class CatalogFiles:
    """The files of all tables of a catalog, read once for a call on any number of tables.

    Raises:
        CatalogError: A catalog does not list its tables.
        MaintenanceError: A table of the catalog cannot be read.
    """

    def __init__(self) -> None:
        self._catalogs: dict[str, list[_ListedTable]] = {}

    def unused(self, table: IcebergTable, paths: Sequence[str]) -> list[str]:
        """Return the paths of files that no table in the catalog of ``table`` uses."""
        hashes = _name_hashes(_paths(table.spark, paths))
        is_used = np.zeros(len(paths), dtype=bool)
        for listed in self._tables(table):
            is_used |= np.isin(hashes, listed.files)
        return [path for path, used in zip(paths, is_used.tolist(), strict=True) if not used]

    def neighbour(self, table: IcebergTable, directories: Sequence[str]) -> str | None:
        """Return another table of the catalog whose directories overlap with ``directories`` of ``table``, or None."""
        parts, tables = name_parts(table.identifier), self._tables(table)
        # Whether case matters depends on the catalog.
        itself = [listed for listed in tables if listed.parts == parts] or [
            listed for listed in tables if folded(listed.parts) == folded(parts)
        ]
        for listed in tables:
            if listed not in itself and any(overlap(path, d) for path in directories for d in listed.directories):
                return join_parts(listed.parts)
        return None

    def uuids(self, table: IcebergTable) -> set[str]:
        """Return the uuids of the tables in the catalog of ``table``."""
        return {listed.uuid for listed in self._tables(table)}

    def _tables(self, table: IcebergTable) -> list[_ListedTable]:
        catalog = name_parts(table.identifier)[0]
        if catalog not in self._catalogs:
            names = tables_of_catalog(table.spark, catalog)
            self._catalogs[catalog] = [_read(table.spark, name) for name in names]
        return self._catalogs[catalog]


def _read(spark: SparkSession, name: str) -> _ListedTable:
    try:
        table = IcebergTable.load(spark, name)
        writes_to = directories(table) or (str(table.java.location()),)
        return _ListedTable(name_parts(name), table.uuid, writes_to, _file_hashes(table))
    except Exception as e:
        raise MaintenanceError(
            f"nothing was removed: the files of {name} cannot be read, and some may lie in the same directories: "
            f"{short_message(e)}. Drop it from the catalog if it is broken"
        ) from e


def _file_hashes(table: IcebergTable) -> IntArray:
    files, manifests = table.metadata("ALL_FILES"), table.metadata("ALL_MANIFESTS")
    reachable, java = table.iceberg.ReachableFileUtil, table.java
    metadata = [str(reachable.versionHintLocation(java))]
    for locations in (
        reachable.metadataFileLocations(java, True),
        reachable.manifestListLocations(java),
        reachable.statisticsFilesLocations(java),
    ):
        metadata += JavaFunctions(table.spark).strings(locations)
    paths = files.selectExpr("file_path as path").unionAll(manifests.select("path"))
    return np.unique(_name_hashes(paths.unionAll(_paths(table.spark, metadata))))


def _paths(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    return spark.createDataFrame([(path,) for path in paths], "path string")


def _name_hashes(paths: DataFrame) -> IntArray:
    # A million hashes take 8 MB. If two names have the same hash, an orphan stays.
    hashes = collect_arrow(paths.selectExpr("xxhash64(substring_index(path, '/', -1))"))
    return np.asarray(hashes[0].to_numpy(), np.int64)
