"""Suspend and resume the reclustering of a table, by a table property that every process honours."""

from __future__ import annotations

from datetime import datetime, timezone

from dbt_recluster import table_properties
from dbt_recluster.iceberg.iceberg_table import IcebergTable

PROPERTY = table_properties.SUSPENDED


def suspended_since(table: IcebergTable) -> str | None:
    """Return since when a table is suspended, or None if it is not."""
    return table.properties.get(PROPERTY)


def suspend(table: IcebergTable) -> str:
    """Keep everybody from reclustering a table until :func:`resume`; return since when it is suspended.

    A running recluster stops before its next round. The property survives a replacement of the table, but not a drop,
    which ``dbt run --full-refresh`` does.
    """
    since = suspended_since(table)
    if since is None:
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        table.set_property(PROPERTY, since)
    return since


def resume(table: IcebergTable) -> str | None:
    """Allow reclustering again; return since when the table was suspended, or None if it was not."""
    since = suspended_since(table)
    if since is not None:
        table.set_property(PROPERTY, None)
    return since
