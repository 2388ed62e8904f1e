"""The directories that a table writes to."""

from __future__ import annotations

import posixpath
import re

from dbt_recluster.iceberg.iceberg_table import IcebergTable

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
