"""The directories that a table writes to, and which other tables write there."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from dbt_recluster.exceptions import HousekeepingError, NotAnIcebergTableError
from dbt_recluster.iceberg.catalog_tables import tables_of_catalog
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.locks import canonical_name
from dbt_recluster.table_names import name_parts

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/*", re.IGNORECASE)
_NAMED_HOST = re.compile(r"(?:hdfs|viewfs|webhdfs)://[^/]", re.IGNORECASE)
_DATA_PATHS = ("write.data.path", "write.folder-storage.path")
_OBJECT_STORAGE_PATHS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")


def directories(table: IcebergTable) -> tuple[str, str] | None:
    """Return where a table writes data and metadata, or None if a location provider of its own decides that."""
    properties, location = table.properties, str(table.java.location()).rstrip("/")
    if properties.get("write.location-provider.impl"):
        return None
    is_object_storage = properties.get("write.object-storage.enabled", "false").lower() == "true"
    names = _OBJECT_STORAGE_PATHS if is_object_storage else _DATA_PATHS
    data = next((properties[name] for name in names if properties.get(name)), f"{location}/data")
    metadata = properties.get("write.metadata.path") or f"{location}/metadata"
    return data.rstrip("/"), metadata.rstrip("/")


def neighbour(table: IcebergTable, own: Sequence[str], *, pass_over_unreadable: bool) -> str | None:
    """Return another table of the catalog that writes into one of these directories, or around them.

    Tables of other catalogs are not known.

    Args:
        table: The table.
        own: Its directories.
        pass_over_unreadable: Whether to pass over tables that cannot be loaded.

    Raises:
        CatalogError: The catalog does not list its tables.
        HousekeepingError: A table cannot be loaded, so where it writes is unknown.
    """
    for name in tables_of_catalog(table.spark, name_parts(table.identifier)[0]):
        try:
            other = IcebergTable.load(table.spark, name)
        except NotAnIcebergTableError as e:
            if pass_over_unreadable:
                continue
            raise HousekeepingError(
                f"whether {name} writes into the directories of {table.name} is unknown: {e}. Drop it from the catalog "
                "if it is broken; force: true passes over it"
            ) from e
        if canonical_name(other.identifier) == canonical_name(table.identifier) and other.uuid == table.uuid:
            continue
        theirs = directories(other) or (str(other.java.location()),)
        if any(overlap(path, their) for path in own for their in theirs):
            return name
    return None


def without_scheme(path: str) -> str:
    """Return a path without its scheme: ``s3://`` and ``s3a://``, ``file:/`` and ``file:///`` are the same place."""
    return _SCHEME.sub("/", path, count=1)


def overlap(one: str, other: str) -> bool:
    """Whether two directories are the same, or one lies in the other."""
    first, second = _path(one), _path(other)
    return first.startswith(second) or second.startswith(first)


def _path(directory: str) -> str:
    path = without_scheme(directory)
    if _NAMED_HOST.match(directory):
        # hdfs://namenode/a, hdfs:///a and /a may be the same place.
        path = f"/{path.lstrip('/').partition('/')[2]}"
    return f"{posixpath.normpath(path).rstrip('/')}/"
