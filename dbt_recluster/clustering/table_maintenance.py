"""Maintenance of a table by Iceberg's own actions: when each is due, and when it would do harm.

A merge leaves the old blocks in the table's storage until the snapshots that have them expire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from dbt_recluster.clustering.result import Result
from dbt_recluster.exceptions import MaintenanceError, OptionError
from dbt_recluster.iceberg.actions import CatalogFiles, IcebergActions, directories
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.session.jobs import Interruptible, stop_if_interrupted
from dbt_recluster.iceberg.session.redaction import raise_as

# Iceberg's default: a writer's files belong to no snapshot until it commits.
_ORPHAN_AGE = timedelta(days=3)
# The least age that each operation takes without force, and why.
_DANGERS = {
    "expire_snapshots": (
        timedelta(hours=1),
        "a query that began before older_than may still read what would be deleted, so it must lie an hour back",
    ),
    "remove_orphan_files": (
        _ORPHAN_AGE,
        "files that a writer has not committed yet look like orphans, so older_than must lie three days back",
    ),
}
# Manifests are rewritten from this many on, and only to a quarter of them, or it would be due again soon.
_MANY_MANIFESTS, _MANIFEST_GAIN = 10, 4
# Iceberg's min-input-files: it leaves fewer position delete files of a partition as they are.
_MANY_DELETE_FILES = 5
_TASKS = ("rewrite_position_delete_files", "rewrite_manifests", "expire_snapshots", "remove_orphan_files")


@dataclass(frozen=True)
class MaintenanceResult(Result):
    """The result of one task on a table.

    Attributes:
        task: The operation that does the same.
        table: The table.
        dry_run: Whether nothing was changed.
    """

    task: str
    table: str
    dry_run: bool


@dataclass(frozen=True)
class SnapshotsExpired(MaintenanceResult):
    """The result of an expiry.

    Attributes:
        snapshots: Snapshots removed.
        refs: Tags and branches removed, which are older than the table's settings keep them.
        kept: Snapshots that stay, those of tags and branches included.
        kept_since: When the oldest of the main branch was committed, ISO 8601 in UTC; its history begins there.
        files: Data and delete files of no other snapshot; None if they cannot be counted.
        bytes: Their size, or None.
    """

    snapshots: int
    refs: tuple[str, ...]
    kept: int
    kept_since: str | None
    files: int | None
    bytes: int | None


@dataclass(frozen=True)
class OrphansRemoved(MaintenanceResult):
    """Orphan files: files in the table's directories that no snapshot references.

    Attributes:
        older_than: Files younger than this were left alone, ISO 8601 in UTC.
        files: The files.
    """

    older_than: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class FilesRewritten(MaintenanceResult):
    """The manifests, or position delete files, that were replaced.

    Attributes:
        before: How many were replaced. In a dry run, all manifests, or the most position delete files in one partition
            that could be fewer.
        after: By how many. In a dry run, by how many manifests at best; None for position delete files, since Iceberg
            may leave some as they are.
    """

    before: int
    after: int | None


@dataclass(frozen=True)
class Maintained(Result):
    """The maintenance that was due for a table.

    Attributes:
        table: The table.
        done: The results of the tasks that were due, in this order.
    """

    table: str
    done: tuple[MaintenanceResult, ...]


class TableMaintenance:
    """Cleans up after a table's commits, for the operations of the same names, which say what arguments mean.

    Methods raise OptionError for a time to come, and MaintenanceError where they would do harm or Iceberg fails. The
    files of the ``catalog`` are read once for many tables. ``now`` stands for the time of each call.
    """

    def __init__(self, table: IcebergTable, now: datetime | None = None, catalog: CatalogFiles | None = None) -> None:
        self._table, self._fixed_now = table, now
        self._catalog = catalog or CatalogFiles()
        self._actions = IcebergActions(table)

    def expire_snapshots(
        self,
        older_than: datetime | None = None,
        retain_last: int | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> SnapshotsExpired:
        """Expire snapshots, and branches and tags past ``history.expire.max-ref-age-ms``; delete files left by them."""
        with self._step("expire_snapshots") as task:
            self._check(task, older_than, force)
            count, kept, refs, rest = self._actions.expirable(older_than, retain_last)
            history = rest.snapshots()
            since = history[0].at.isoformat(timespec="seconds") if history else None
            files, size = (None, None) if count else (0, 0)
            if count:
                # Iceberg cannot read the metadata tables of a table with an old spec whose column was dropped, but can
                # expire its snapshots, which repairs it.
                with suppress(Exception):
                    files, size = self._actions.files_only_in(rest)
            if (count or refs) and not dry_run:
                files = self._actions.expire(older_than, retain_last)
                self._table.refresh()
            name = self._table.name
            return SnapshotsExpired(task, name, dry_run, count, tuple(refs), kept, since, files, size)

    def remove_orphan_files(
        self, older_than: datetime | None = None, *, force: bool = False, dry_run: bool = True
    ) -> OrphansRemoved:
        """Delete orphan files; raise CatalogError if the catalog does not list its tables."""
        with self._step("remove_orphan_files") as task:
            self._check(task, older_than, force)
            table_directories = directories(self._table)
            if table_directories is None:
                raise MaintenanceError(
                    f"remove_orphan_files of {self._table.name}: it writes where its location provider says, so nobody "
                    "knows which files are its own"
                )
            before = older_than or self._now - _ORPHAN_AGE
            files = tuple(sorted(self._actions.orphan_files(table_directories, before)))
            if files:
                files = tuple(self._unused(table_directories, files, force))
            stop_if_interrupted()
            if files and not dry_run:
                self._actions.delete_files(files)
            since = before.isoformat(timespec="seconds")
            return OrphansRemoved(task, self._table.name, dry_run, since, files)

    def rewrite_manifests(self, *, dry_run: bool = False) -> FilesRewritten:
        """Rewrite the table's manifests, ordered by partition and of their target size."""
        with self._step("rewrite_manifests") as task:
            is_counted = dry_run or self._table.snapshot_id is None
            counts = self._actions.manifests() if is_counted else self._actions.rewrite_manifests()
            return self._rewritten(task, dry_run, *counts)

    def rewrite_position_delete_files(self, *, dry_run: bool = False) -> FilesRewritten:
        """Combine small position delete files, and drop those whose rows are gone."""
        with self._step("rewrite_position_delete_files") as task:
            if dry_run:
                return self._rewritten(task, True, self._actions.small_position_deletes(), None)
            return self._rewritten(task, False, *self._actions.rewrite_position_deletes())

    def _rewritten(self, task: str, dry_run: bool, before: int, after: int | None) -> FilesRewritten:
        if not dry_run:
            self._table.refresh()
        return FilesRewritten(task, self._table.name, dry_run, before, after)

    def maintain(self, *, orphans: bool = False, dry_run: bool = False) -> Maintained:
        """Do what is due: rewrite position delete files and manifests, expire snapshots, remove orphan files."""
        done = []
        with self._step("maintain"):
            for task in _TASKS if orphans else _TASKS[:-1]:
                stop_if_interrupted()
                self._table.refresh()
                if self._is_due(task):
                    done.append(getattr(self, task)(dry_run=dry_run))
        figures = ("snapshots", "refs", "files", "before")  # one of which is not zero if there was anything to do
        return Maintained(self._table.name, tuple(r for r in done if any(getattr(r, name, None) for name in figures)))

    def _is_due(self, task: str) -> bool:
        if task == "rewrite_position_delete_files":
            return self._actions.small_position_deletes() >= _MANY_DELETE_FILES
        if task == "rewrite_manifests":
            count, needed = self._actions.manifests()
            return count >= max(_MANY_MANIFESTS, _MANIFEST_GAIN * needed)
        return self._owns_files

    def _unused(self, directories: Sequence[str], files: Sequence[str], force: bool) -> list[str]:
        """Return the files that no table uses, or raise if another table may have files in the directories."""
        if other := self._catalog.neighbour(self._table, directories):
            raise MaintenanceError(
                f"remove_orphan_files of {self._table.name}: {other} writes into the same directory, so it is "
                "not known whose the files there are"
            )
        listed = self._catalog.uuids(self._table)
        if not force and (foreign := self._actions.foreign_metadata(files, listed)):
            raise MaintenanceError(
                f"remove_orphan_files of {self._table.name}: another table that its catalog does not list seems to "
                f"have files in the same directory: {foreign} is not of this table. If that table was dropped, "
                "force: true removes its files too"
            )
        return self._catalog.unused(self._table, files)

    @property
    def _now(self) -> datetime:
        return self._fixed_now or datetime.now(timezone.utc)

    def _check(self, step: str, older_than: datetime | None, force: bool) -> None:
        """Refuse a step that might delete files in use."""
        if older_than is not None and older_than > self._now:
            raise OptionError(f"older_than lies in the future: {older_than.isoformat(timespec='seconds')}")
        least_age, danger = _DANGERS[step]
        if older_than is not None and older_than > self._now - least_age and not force:
            raise MaintenanceError(f"{step} of {self._table.name}: {danger} at least; force: true allows less")
        if not self._owns_files:
            raise MaintenanceError(
                f"{step} of {self._table.name}: its property gc.enabled is false, so its files may belong to other "
                "tables. Set it to true if they do not"
            )

    @property
    def _owns_files(self) -> bool:
        return self._table.properties.get("gc.enabled", "true").lower() != "false"

    @contextmanager
    def _step(self, name: str) -> Iterator[str]:
        """Let Ctrl-C end a step; name the step in a MaintenanceError if Spark or Iceberg fails."""
        what = f"{name} of {self._table.name} failed"
        failure = raise_as(MaintenanceError, what, explain=self._table.explain)
        with failure, Interruptible(self._table.spark):
            yield name
