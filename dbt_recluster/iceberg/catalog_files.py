"""The guard before orphan files are deleted: the directories and files of a catalog's tables.

Files are compared by name alone. Iceberg's writers give each file a unique name, which stays the same however its
directory is reached: by another scheme or host, through a symbolic link or a mount. If two names are equal, an orphan
stays.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dbt_recluster.exceptions import MaintenanceError
from dbt_recluster.iceberg.catalog_tables import tables_of_catalog
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import IntArray
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.java_functions import JavaFunctions
from dbt_recluster.iceberg.session.jvm import collect_arrow
from dbt_recluster.names import Parts, folded, join_parts, name_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/*", re.IGNORECASE)
_NAMED_HOST = re.compile(r"(?:hdfs|viewfs|webhdfs)://[^/]", re.IGNORECASE)


def directories(table: IcebergTable) -> tuple[str, str] | None:
    """Return the directories of a table's data and metadata, or None if it has its own location provider."""
    properties, location = table.properties, str(table.java.location()).rstrip("/")
    if properties.get("write.location-provider.impl"):
        return None
    is_object_storage = properties.get("write.object-storage.enabled", "false").lower() == "true"
    kinds = ("data", *(["object-storage"] if is_object_storage else []), "folder-storage")
    given = (properties.get(f"write.{kind}.path") for kind in kinds)
    data = next(filter(None, given), f"{location}/data")
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
    """A table of the catalog."""

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

    def neighbour(self, table: IcebergTable, own: Sequence[str]) -> str | None:
        """Return another table of the catalog whose directories overlap with ``own``, those of ``table``, or None."""
        parts, tables = name_parts(table.identifier), self._tables(table)
        # Whether case matters depends on the catalog.
        itself = [listed for listed in tables if listed.parts == parts] or [
            listed for listed in tables if folded(listed.parts) == folded(parts)
        ]
        for listed in tables:
            if listed not in itself and any(overlap(path, d) for path in own for d in listed.directories):
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
