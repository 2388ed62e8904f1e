"""How much has changed since the last recluster, also in snapshots that have expired.

A build that is not followed by a recluster records, in a property of the table, what it has counted and up to which
snapshot. The commit of a recluster removes the property. So a snapshot may expire as soon as one build has seen it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from dbt_recluster import table_properties
from dbt_recluster.clustering.history import PREFIX
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.iceberg_table import Snapshot

PROPERTY = table_properties.CHANGES
NO_CHANGES: Mapping[str, str | None] = {PROPERTY: None}


@dataclass(frozen=True)
class Changes:
    """Changes since the last recluster.

    Attributes:
        rows: Rows added and deleted.
        commits: Commits of other writers that changed rows.
        snapshot: The snapshot up to which they are counted; None if there is none.
        total: The table's rows in it.
    """

    rows: int = 0
    commits: int = 0
    snapshot: int | None = None
    total: int = 0

    @classmethod
    def parse(cls, text: str | None) -> Changes | None:
        """Read the property; None if there is none, or a malformed one."""
        try:
            changes = cls(**json.loads(text or "null"))
        except (ValueError, TypeError, RecursionError):
            return None
        return changes if all(type(value) is int for value in asdict(changes).values()) else None

    def plus(self, snapshots: Sequence[Snapshot]) -> Changes:
        """Return these changes and those of the snapshots that follow."""
        if not snapshots:
            return self
        rows = [count for snapshot in snapshots if (count := _changed_rows(snapshot))]
        last = snapshots[-1]
        return Changes(
            self.rows + sum(rows), self.commits + len(rows), last.id, last.count("total-records") or 0
        )


def changes_since_recluster(snapshots: Sequence[Snapshot], recorded: Changes | None) -> Changes:
    """Count the changes since the last recluster.

    Args:
        snapshots: The current snapshot and its ancestors that have not expired, oldest first.
        recorded: What was counted before. It is passed over if a recluster followed it.
    """
    last_recluster = max((i for i, s in enumerate(snapshots) if f"{PREFIX}sets" in s.summary), default=-1)
    if recorded is None:
        return Changes().plus(snapshots[last_recluster + 1 :])
    counted = max((i for i, s in enumerate(snapshots) if s.id == recorded.snapshot), default=-1)
    if counted > last_recluster:
        return recorded.plus(snapshots[counted + 1 :])
    if last_recluster >= 0:
        return Changes().plus(snapshots[last_recluster + 1 :])
    return _with_unseen(recorded, snapshots).plus(snapshots)


def known_changes(table: ClusteredTable) -> Changes:
    """Return the changes of a table since its last recluster."""
    recorded = Changes.parse(table.iceberg.properties.get(PROPERTY))
    return changes_since_recluster(table.snapshots(), recorded)


def record_changes(table: ClusteredTable) -> None:
    """Record what has changed since the last recluster, if anything has since it was last recorded."""
    recorded = Changes.parse(table.iceberg.properties.get(PROPERTY)) or Changes()
    changes = known_changes(table)
    if (changes.rows, changes.commits) != (recorded.rows, recorded.commits):
        table.iceberg.set_property(PROPERTY, json.dumps(asdict(changes)))


def _with_unseen(recorded: Changes, snapshots: Sequence[Snapshot]) -> Changes:
    """Add what came and expired unseen, on balance; or what a replacement of the table has dropped."""
    if not snapshots:
        return recorded
    first = snapshots[0]
    total, added, deleted = (first.count(f"{name}-records") or 0 for name in ("total", "added", "deleted"))
    rows = abs(total - added + deleted - recorded.total)
    is_commit = rows > 0 and first.parent is not None
    return replace(recorded, rows=recorded.rows + rows, commits=recorded.commits + is_commit)


def _changed_rows(snapshot: Snapshot) -> int:
    if snapshot.operation == "replace":
        return 0
    names = ("added-records", "deleted-records", "added-position-deletes", "added-equality-deletes")
    return sum(snapshot.count(name) or 0 for name in names)
