"""What maintenance did to a table, or would do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class MaintenanceResult:
    """What one task did to a table, or would do.

    Attributes:
        task: The operation that does the same.
        table: The table.
        dry_run: Whether nothing was changed.
    """

    task: ClassVar[str]
    table: str
    dry_run: bool

    @property
    def changed(self) -> bool:
        """Whether there was anything to do."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"task": self.task, **asdict(self)}


@dataclass(frozen=True)
class SnapshotsExpired(MaintenanceResult):
    """What an expiry did.

    Attributes:
        snapshots: Snapshots removed.
        refs: Tags and branches that go, older than the table's settings keep them.
        kept: Snapshots that stay, those of tags and branches included.
        kept_since: When the oldest of the main branch was committed, ISO 8601 in UTC; its history begins there.
        files: Data and delete files that no other snapshot has; None if they cannot be counted.
        bytes: Their size, likewise.
    """

    task = "expire_snapshots"
    snapshots: int
    refs: tuple[str, ...]
    kept: int
    kept_since: str | None
    files: int | None
    bytes: int | None

    @property
    def changed(self) -> bool:
        """Whether a snapshot, a tag or a branch went."""
        return self.snapshots > 0 or bool(self.refs)


@dataclass(frozen=True)
class OrphansRemoved(MaintenanceResult):
    """Files in the table's directories that no snapshot knows.

    Attributes:
        older_than: Files younger than this were left alone, ISO 8601 in UTC.
        files: The files.
    """

    task = "remove_orphan_files"
    older_than: str
    files: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether there was such a file."""
        return bool(self.files)


@dataclass(frozen=True)
class ManifestsRewritten(MaintenanceResult):
    """How many manifests were replaced.

    Attributes:
        before: How many were replaced; in a dry run, how many there are.
        after: By how many; in a dry run, by how many at best.
    """

    task = "rewrite_manifests"
    before: int
    after: int

    @property
    def changed(self) -> bool:
        """Whether a manifest was replaced."""
        return self.before > 0


@dataclass(frozen=True)
class PositionDeletesRewritten(MaintenanceResult):
    """How many position delete files were replaced.

    Attributes:
        before: How many were replaced; in a dry run, the most in one partition that could be fewer.
        after: By how many; None in a dry run, since Iceberg may leave some as they are.
    """

    task = "rewrite_position_delete_files"
    before: int
    after: int | None

    @property
    def changed(self) -> bool:
        """Whether a delete file was replaced."""
        return self.before > 0


@dataclass(frozen=True)
class Maintained:
    """What was due for a table.

    Attributes:
        table: The table.
        done: What was done, in this order, or would be; nothing of what was not due.
    """

    table: str
    done: tuple[MaintenanceResult, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"table": self.table, "done": [result.as_dict() for result in self.done]}
