"""The table's snapshots: who committed what, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from dbt_recluster.iceberg.table import IcebergTable, java_map


@dataclass(frozen=True)
class Snapshot:
    """One commit.

    Attributes:
        id: The snapshot.
        parent: The one before it, which may have expired; None for the first.
        at: When it was committed, UTC.
        operation: ``append``, ``overwrite``, ``delete`` or ``replace``.
        summary: Iceberg's counts, and ours under ``recluster.``.
    """

    id: int
    parent: int | None
    at: datetime
    operation: str
    summary: Mapping[str, str]


def current_snapshot(table: IcebergTable) -> Snapshot | None:
    """Return the current snapshot, or None for a table never written."""
    snapshot = table.java.currentSnapshot()
    return None if snapshot is None else _read(table, snapshot)


def current_history(table: IcebergTable) -> list[Snapshot]:
    """Return the current snapshot and those it came from, oldest first, as far as they have not expired."""
    lists = table.iceberg.relocated.com.google.common.collect.Lists
    ancestors = lists.newArrayList(table.iceberg.util.SnapshotUtil.currentAncestors(table.java))
    return [_read(table, snapshot) for snapshot in ancestors][::-1]


def _read(table: IcebergTable, snapshot: Any) -> Snapshot:
    parent = snapshot.parentId()
    return Snapshot(
        id=int(snapshot.snapshotId()),
        parent=None if parent is None else int(parent),
        at=datetime.fromtimestamp(snapshot.timestampMillis() / 1000, tz=timezone.utc),
        operation=str(snapshot.operation()),
        summary=java_map(table, snapshot.summary()),
    )
