"""Commit a round: one Iceberg transaction, so that the table is as before or as after, never between."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitStateUnknownError,
    ConcurrentChangeError,
    orphan_note,
)
from dbt_recluster.iceberg.java_errors import is_caused_by, is_instance, short_message
from dbt_recluster.iceberg.jvm import java_items
from dbt_recluster.iceberg.locks import table_lock
from dbt_recluster.iceberg.recorded_levels import level_property, recorded_levels
from dbt_recluster.iceberg.rewrite.file_groups import RewrittenGroup
from dbt_recluster.iceberg.rewrite.writing import delete_files, discard_files
from dbt_recluster.iceberg.scan import changed_tasks, scan_tasks

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

MAX_ATTEMPTS = 5

_EXCEPTIONS = "org.apache.iceberg.exceptions."

# Returns the figures for the snapshots' summaries, given the groups to be committed.
Summary = Callable[[Sequence[RewrittenGroup]], Mapping[str, str]]
# Returns properties to set with the commit, None to remove one, given the ids of the new snapshots and the levels that
# the table then has recorded.
Properties = Callable[[Sequence[int], Mapping[int, int]], Mapping[str, str | None]]


@dataclass(frozen=True)
class CommittedRound:
    """The part of a round that became part of the table.

    Attributes:
        groups: The groups that were replaced; those in conflict with other writers are not among them.
        snapshot_ids: The ids of the new snapshots.
        conflicts: How often another writer's commit forced a new attempt.
        orphans: Files of groups that were left out and could not be deleted.
    """

    groups: tuple[RewrittenGroup, ...]
    snapshot_ids: tuple[int, ...]
    conflicts: int
    orphans: tuple[str, ...] = ()


def back_off(attempt: int) -> None:
    """Wait a random time that grows with the attempts, so that two writers do not collide again."""
    time.sleep(random.uniform(0, 0.1 * 2**attempt))


@dataclass
class RoundCommit:
    """Replaces the files of a round's groups by the new ones.

    Groups of one run become one snapshot, so that a run is a snapshot; its level becomes a property of the table in the
    same transaction. The rewrite has no data sequence number: with one, rows that an equality delete removed in the
    meantime would come back (apache/iceberg#10312).

    A group whose files another writer has removed, or deleted rows from, is left out, and its new files are deleted.
    Insisting on it would make one of the two writers start again forever. The other groups are committed.

    Attributes:
        table: The table.
        snapshot_id: The snapshot that the groups were planned from. Later commits of others are checked against it.
        groups: What the round has written.
        obsolete_levels: Level properties that no block needs once all groups are replaced.
        summary: Figures for the snapshots.
        properties: Further properties to set with the commit.
    """

    table: IcebergTable
    snapshot_id: int
    groups: Sequence[RewrittenGroup]
    obsolete_levels: Sequence[str]
    summary: Summary
    properties: Properties = lambda *_: {}
    _orphans: list[str] = field(default_factory=list, init=False)
    _conflicts: int = field(default=0, init=False)

    def run(self) -> CommittedRound:
        """Commit.

        Returns:
            What was committed: at least one group.

        Raises:
            ConcurrentChangeError: Other writers changed files of every group, or were faster too often. The new files
                are deleted.
            CommitFailedError: The catalog could not be reached, or refused. The new files are deleted.
            CommitStateUnknownError: The catalog did not answer. The new files are kept, and named.
            OrphanFilesError: The commit failed, and some of the new files could not be deleted.
        """
        remaining = list(self.groups)
        while True:
            try:
                with table_lock(self.table.lock_name):
                    snapshots = self._send(remaining)
                return self._committed(remaining, snapshots)
            except _ConflictError as conflict:
                # Another thread may refresh a shared table object at any time. The snapshot that is compared with now
                # must be the one that the next attempt is validated from, or a delete in between would go unnoticed.
                current, committed = self._state_after(remaining, conflict)
                if committed:
                    return self._committed(remaining, conflict.snapshot_ids)
                self._conflicts += 1
                remaining = self._without_changed(remaining, current)
                if not remaining or self._conflicts == MAX_ATTEMPTS:
                    self._orphans += delete_files(self.table, _files(remaining))
                    raise ConcurrentChangeError(
                        f"Another writer changed blocks of {self.table.name} while they were merged: "
                        f"{short_message(conflict.cause)}",
                        orphans=self._orphans,
                    ) from conflict.cause
                assert current is not None  # otherwise no group would remain
                self.snapshot_id = current

    def _committed(self, groups: Sequence[RewrittenGroup], snapshots: Sequence[int]) -> CommittedRound:
        return CommittedRound(tuple(groups), tuple(snapshots), self._conflicts, tuple(self._orphans))

    def _send(self, groups: Sequence[RewrittenGroup]) -> list[int]:
        """Make one attempt; return the ids of the new snapshots."""
        try:
            transaction, snapshots = self._transaction(groups)
        except BaseException as e:
            if is_caused_by(e, f"{_EXCEPTIONS}ValidationException"):
                raise _ConflictError(e) from e
            discard_files(self.table, _files(groups), e)  # nothing is committed, so nobody uses them
            if isinstance(e, Exception):  # Ctrl-C stays Ctrl-C
                raise self._failed(e) from e
            raise
        try:
            self.table.commit(transaction)
        except Exception as e:
            if not is_caused_by(e, f"{_EXCEPTIONS}CommitStateUnknownException"):
                if is_caused_by(
                    e, f"{_EXCEPTIONS}ValidationException", f"{_EXCEPTIONS}CommitFailedException"
                ):
                    raise _ConflictError(e, snapshots) from e
                if is_instance(e, f"{_EXCEPTIONS}CleanableFailure"):
                    discard_files(self.table, _files(groups), e)
                    raise self._failed(e) from e
            raise self._unknown(groups, e) from e
        return snapshots

    def _transaction(self, groups: Sequence[RewrittenGroup]) -> tuple[Any, list[int]]:
        """Return the transaction and the ids of its snapshots."""
        summary = self.summary(groups)
        transaction = self.table.java.newTransaction()
        levels: dict[int, int] = {}
        by_run = sorted(groups, key=lambda group: group.source.run)
        for _, members in groupby(by_run, key=lambda group: group.source.run):
            run = list(members)
            level = run[0].source.level
            rewrite = transaction.newRewrite().validateFromSnapshot(self.snapshot_id)
            for group in run:
                self._replace(rewrite, group)
            for name, value in summary.items():
                rewrite.set(name, value)
            rewrite.set("recluster.level", str(level))
            rewrite.commit()
            levels[int(transaction.table().currentSnapshot().snapshotId())] = level
        # Groups that were left out still need their levels; the next round drops what nothing needs any more.
        obsolete = set(self.obsolete_levels if len(groups) == len(self.groups) else ())
        recorded = recorded_levels(self.table.properties)
        after = {s: level for s, level in recorded.items() if level_property(s) not in obsolete} | levels
        changes: dict[str, str | None] = {level_property(s): str(level) for s, level in levels.items()}
        changes |= dict.fromkeys(obsolete) | dict(self.properties(list(levels), after))
        update = transaction.updateProperties()
        for name, change in changes.items():
            if change is None:
                update.remove(name)
            else:
                update.set(name, change)
        update.commit()
        return transaction, list(levels)

    def _replace(self, rewrite: Any, group: RewrittenGroup) -> None:
        iceberg, order = self.table.iceberg, self.table.java.sortOrder()
        for file in group.source.files:
            rewrite.deleteFile(file.task.file())
            for delete in java_items(file.task.deletes()) if file.deletes else ():
                # Deletes of this one file have been applied and would dangle: deletion vectors of v3, and position
                # deletes of v2 that were written per file. Others may still apply elsewhere.
                if iceberg.util.ContentFileUtil.isFileScoped(delete):
                    rewrite.deleteFile(delete)
        for new_file in group.files:
            spec = self.table.java.specs().get(new_file.specId())
            rewrite.addFile(iceberg.DataFiles.builder(spec).copy(new_file).withSortOrder(order).build())

    def _state_after(
        self, groups: Sequence[RewrittenGroup], conflict: _ConflictError
    ) -> tuple[int | None, bool]:
        """Return the current snapshot, and whether the commit that was reported as a conflict is in fact in the table.

        A catalog that receives a commit twice, because its first answer was lost, may report the second one as a
        conflict with the first. The files of a snapshot that exists must never be deleted, even if another writer has
        replaced them since.
        """
        try:
            self.table.refresh()
            current = self.table.snapshot_id
            if current is None or not conflict.snapshot_ids:
                return current, False
            exists = any(map(self.table.has_snapshot, conflict.snapshot_ids))
            new_paths = [str(file.location()) for file in _files(groups)]
            return current, exists or bool(scan_tasks(self.table, current, new_paths))
        except Exception as e:
            if conflict.snapshot_ids:  # the catalog has received them
                raise self._unknown(groups, e) from e
            discard_files(self.table, _files(groups), e)
            raise self._failed(e) from e

    def _without_changed(self, groups: Sequence[RewrittenGroup], current: int | None) -> list[RewrittenGroup]:
        """Delete the new files of groups that others have changed, wait, and return the other groups."""
        try:
            changed = self._changed(groups, current)
            self._orphans += delete_files(
                self.table,
                _files([group for group, is_changed in zip(groups, changed, strict=True) if is_changed]),
            )
            unchanged = [group for group, is_changed in zip(groups, changed, strict=True) if not is_changed]
            if unchanged and self._conflicts < MAX_ATTEMPTS:
                back_off(self._conflicts)
            return unchanged
        except BaseException as e:
            discard_files(self.table, _files(groups), e)
            if isinstance(e, Exception):
                raise self._failed(e) from e
            raise

    def _changed(self, groups: Sequence[RewrittenGroup], current: int | None) -> list[bool]:
        """Return for each group whether a file of it was removed, or has other delete files than when it was read."""
        planned = {file.path: file.task for group in groups for file in group.source.files}
        changed = changed_tasks(self.table, current, planned)
        return [any(file.path in changed for file in group.source.files) for group in groups]

    def _failed(self, error: Exception) -> CommitFailedError:
        return CommitFailedError(
            f"The recluster of {self.table.name} could not be committed: {short_message(error)}. "
            "This round changed nothing, and its new files are deleted."
        )

    def _unknown(self, groups: Sequence[RewrittenGroup], error: Exception) -> CommitStateUnknownError:
        files = [str(file.location()) for file in _files(groups)]
        return CommitStateUnknownError(
            f"Whether the recluster of {self.table.name} was committed is unknown: {short_message(error)}. The table "
            f"is as before or as after. If it is as before, {orphan_note(self.table.name, files, kept=True)}.",
            orphans=files,
        )


class _ConflictError(Exception):
    """The catalog reports that another writer was faster. No file has been deleted yet.

    Attributes:
        cause: Iceberg's exception.
        snapshot_ids: The snapshots that were sent to the catalog; none if the attempt failed before.
    """

    def __init__(self, cause: BaseException, snapshot_ids: Sequence[int] = ()):
        super().__init__(str(cause))
        self.cause = cause
        self.snapshot_ids = tuple(snapshot_ids)


def _files(groups: Sequence[RewrittenGroup]) -> list[Any]:
    return [file for group in groups for file in group.files]
