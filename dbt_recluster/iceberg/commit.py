"""Commit a round: one Iceberg transaction, so that the table is as before or as after, never between."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile
from typing import Any, NoReturn

from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitMismatchError,
    CommitStateUnknownError,
    ConcurrentChangeError,
    orphan_note,
)
from dbt_recluster.iceberg.iceberg_table import IcebergTable, PropertyChanges, Snapshot, Transaction
from dbt_recluster.iceberg.metadata.manifest_entries import SnapshotScan, changed_tasks
from dbt_recluster.iceberg.recorded_levels import LevelChanges
from dbt_recluster.iceberg.rewrite.file_groups import RewrittenGroup, delete_files, discard_files
from dbt_recluster.iceberg.session.internals import clean_up
from dbt_recluster.iceberg.session.jvm import java_items
from dbt_recluster.iceberg.session.redaction import is_caused_by, is_instance, short_message
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.iceberg.table_properties import PREFIX
from dbt_recluster.key.columns import sql_literal
from dbt_recluster.names import join_parts, name_parts, table_lock

logger = logging.getLogger(__name__)

# In the summary of a recluster: when the rewritten rows were last changed.
LOADED_AT = f"{PREFIX}loaded_at"
MAX_ATTEMPTS = 5

_EXCEPTIONS = "org.apache.iceberg.exceptions."


class RoundRecord:
    """Extra summary entries and properties of a round's commit; none by default."""

    def summary(self, _groups: Sequence[RewrittenGroup]) -> Mapping[str, str]:
        """Return the summary of the snapshots if these groups are committed."""
        return {}

    def properties(self, _snapshots: Sequence[int], _after: IcebergTable) -> PropertyChanges:
        """Return the properties to set with these snapshots, given the table as they leave it."""
        return {}


def back_off(attempt: int) -> None:
    """Wait a random time that grows with the attempts, so that two writers do not collide again."""
    time.sleep(random.uniform(0, min(5.0, 0.1 * 2 ** min(attempt, 6))))


@dataclass
class RoundCommit:
    """Replaces the files of a round's groups by the new ones.

    Groups of one run become one snapshot; its level is recorded with the table in the same transaction. The rewrite has
    no data sequence number: with one, rows that an equality delete removed in the meantime would come back
    (apache/iceberg#10312).

    Groups whose files another writer has removed, or deleted rows from, are excluded and their new files deleted.
    Retrying them could livelock.
    """

    table: IcebergTable
    snapshot_id: int  # that the groups were planned from; later commits of others are checked against it
    groups: Sequence[RewrittenGroup]
    level_changes: LevelChanges
    record: RoundRecord = field(default_factory=RoundRecord)
    change: TableChange = field(default_factory=TableChange)  # of the table, besides its blocks
    # The groups to replace, without those that conflicted with other writers; and by the ids of their snapshots, once
    # the catalog may have these.
    remaining: Sequence[RewrittenGroup] = field(init=False)
    sent: Mapping[int, Sequence[RewrittenGroup]] = field(default_factory=dict, init=False)
    conflicts: int = field(default=0, init=False)  # attempts that another writer's commit has undone
    orphans: list[str] = field(default_factory=list, init=False)  # of excluded groups, not deleted

    def __post_init__(self) -> None:
        self.remaining = self.groups

    def run(self) -> None:
        """Commit at least one group.

        Raises:
            ConcurrentChangeError: Other writers changed files of every group, or were faster too often. The new files
                are deleted.
            CommitFailedError: The catalog could not be reached, or refused, or the counts of the new snapshot were
                wrong. The new files are deleted.
            CommitMismatchError: Another writer committed meanwhile, and the committed counts are wrong.
            CommitStateUnknownError: The catalog did not answer. The new files are kept, and named.
            OrphanFilesError: The commit failed, and some of the new files could not be deleted.
        """
        try:
            committed = self._attempt()
        except ConcurrentChangeError:
            raise
        except BaseException as e:
            if not self.sent:
                discard_files(self.table, _paths(self.remaining), e)
            if isinstance(e, Exception):
                raise (self._unknown(e) if self.sent else self._failed(e)) from e
            if self.sent:
                logger.warning("%s", self._unknown(e))
            raise  # KeyboardInterrupt
        verify_committed(self.table, committed, self.sent)

    def _attempt(self) -> IcebergTable:
        """Make attempts until one succeeds; return the table in a state that has the snapshots."""
        summary = self.record.summary(self.remaining)
        retries = self.table.number_property("commit.retry.num-retries", 4, least=0)
        while True:
            try:
                with table_lock(self.table.lock_name):
                    return self._send(summary)
            except _ConflictError as conflict:
                # Validate the next attempt from this snapshot; otherwise a delete in between goes unnoticed. Another
                # thread may refresh the table at any time.
                self.table.refresh()
                current = self.table.snapshot_id
                if self._is_committed(conflict, current):
                    return self.table
                self.sent = {}
                self.conflicts += 1
                if conflict.is_of_blocks:
                    self._exclude_changed(current)
                if not self.remaining or self.conflicts == MAX_ATTEMPTS * (1 + retries):
                    self._give_up(conflict.cause)
                if conflict.is_of_blocks:
                    summary = self.record.summary(self.remaining)
                back_off(self.conflicts)

    def _give_up(self, cause: BaseException) -> NoReturn:
        self.orphans += delete_files(self.table, _paths(self.remaining))
        raise ConcurrentChangeError(
            f"Another writer changed blocks of {self.table.name} while they were merged: {short_message(cause)}",
            orphans=self.orphans,
        ) from cause

    def _send(self, summary: Mapping[str, str]) -> IcebergTable:
        """Make one attempt; return the table as it was committed."""
        try:
            transaction, added = self._transaction(summary)
        except ConcurrentChangeError as e:
            self._give_up(e)
        except Exception as e:
            if is_caused_by(e, f"{_EXCEPTIONS}ValidationException"):
                raise _ConflictError(e, is_of_blocks=True) from e
            raise
        self.sent = added
        try:
            self.table.commit(transaction.java)
        except Exception as e:
            if is_caused_by(e, f"{_EXCEPTIONS}CommitStateUnknownException"):
                raise
            is_of_blocks = is_caused_by(e, f"{_EXCEPTIONS}ValidationException")
            if is_of_blocks or is_caused_by(e, f"{_EXCEPTIONS}CommitFailedException"):
                raise _ConflictError(e, transaction.base, is_of_blocks=is_of_blocks) from e
            if is_instance(e, f"{_EXCEPTIONS}CleanableFailure"):
                self.sent = {}
            raise
        # If Iceberg has applied the changes again, these are the ones that it sent last.
        return transaction.table

    def _transaction(self, summary: Mapping[str, str]) -> tuple[Transaction, Mapping[int, Sequence[RewrittenGroup]]]:
        """Return the transaction, and the groups that its snapshots replace by their ids."""
        # After another commit Iceberg applies the changes again, and none may fail then: Iceberg would take that for a
        # failed commit and delete its manifests, even if the catalog has it and only the answer was lost. So committed
        # counts are verified afterwards.
        transaction = Transaction.begin(self.table)
        try:
            self.change.add_to(transaction)
            added = self._rewrite(transaction, summary)
            _carry_statistics(transaction)
            all_replaced = len(self.remaining) == len(self.groups)
            levels = {snapshot_id: run[0].source.level for snapshot_id, run in added.items()}
            transaction.set_properties(
                self.level_changes.properties(transaction.table, levels, all_replaced=all_replaced)
            )
            transaction.set_properties(self.record.properties(list(added), transaction.table))
        except BaseException:
            clean_up(self.table.spark, transaction.java)
            raise
        return transaction, added

    def _rewrite(self, transaction: Transaction, summary: Mapping[str, str]) -> dict[int, list[RewrittenGroup]]:
        """Replace the files of each run; return the runs by the ids of their snapshots."""
        added = {}
        by_run = sorted(self.remaining, key=lambda group: group.source.run)
        for _, members in groupby(by_run, key=lambda group: group.source.run):
            run, before = list(members), transaction.table.current_snapshot()
            rewrite = transaction.java.newRewrite().validateFromSnapshot(self.snapshot_id)
            if self.table.branch is not None:
                rewrite.toBranch(self.table.branch)
            for group in run:
                self._replace(rewrite, group, transaction.table.java.sortOrder())
            for name, value in summary.items():
                rewrite.set(name, value)
            if (loaded_at := _loaded_at(transaction.table, before)) is not None:
                rewrite.set(LOADED_AT, str(loaded_at))
            rewrite.set(f"{PREFIX}level", str(run[0].source.level))
            rewrite.commit()
            after = transaction.table.current_snapshot()
            assert before is not None
            assert after is not None
            verify_counts(before, after, run)
            added[after.id] = run
        return added

    def _replace(self, rewrite: Any, group: RewrittenGroup, order: Any) -> None:
        iceberg = self.table.iceberg
        for file in group.source.files:
            rewrite.deleteFile(file.task.file())
            for delete in java_items(file.task.deletes()) if file.deletes else ():
                # Deletes of this file alone have been applied and would dangle; others may apply elsewhere.
                if iceberg.util.ContentFileUtil.isFileScoped(delete):
                    rewrite.deleteFile(delete)
        for new_file in group.files:
            spec = self.table.java.specs().get(new_file.specId())
            rewrite.addFile(iceberg.DataFiles.builder(spec).copy(new_file).withSortOrder(order).build())

    def _is_committed(self, conflict: _ConflictError, current: int | None) -> bool:
        """Return whether the commit that was reported as a conflict is in the table.

        A catalog whose first answer was lost may report the retry as a conflict with the first commit. The files of an
        existing snapshot must never be deleted, even if another writer has replaced them since.
        """
        if current is None or conflict.base is None or not self.sent:
            return False
        if any(map(self.table.has_snapshot, self.sent)):
            return True
        if self.table.is_ancestor(conflict.base, of=current):
            return False  # the later snapshots are all there, and not ours
        return bool(SnapshotScan(self.table, current).tasks(_paths(self.remaining)))

    def _exclude_changed(self, current: int | None) -> None:
        """Exclude the groups with a file that was removed, or has other delete files than when it was read."""
        planned = {file.path: file.task for group in self.remaining for file in group.source.files}
        changed = changed_tasks(self.table, current, planned)
        excluded = [g for g in self.remaining if any(file.path in changed for file in g.source.files)]
        self.orphans += delete_files(self.table, _paths(excluded))
        self.remaining = [group for group in self.remaining if group not in excluded]
        if current is not None:
            self.snapshot_id = current

    def _failed(self, error: Exception) -> CommitFailedError:
        return CommitFailedError(
            f"The recluster of {self.table.name} could not be committed: {self.table.explain(error)}. "
            "This round changed nothing, and its new files are deleted."
        )

    def _unknown(self, error: BaseException) -> CommitStateUnknownError | CommitMismatchError:
        try:
            self.table.refresh()
            verify_committed(self.table, self.table, self.sent)
        except CommitMismatchError as mismatch:
            return mismatch
        except Exception:
            logger.debug("%s cannot be read after a commit", self.table.name, exc_info=True)
        files = _paths(self.remaining)
        return CommitStateUnknownError(
            f"Whether the recluster of {self.table.name} was committed is unknown: {short_message(error)}. The table "
            f"is as before or as after. If it is as before, {orphan_note(self.table.name, files, kept=True)}.",
            orphans=files,
        )


def _carry_statistics(transaction: Transaction) -> None:
    """Give the new snapshot the statistics file of its nearest ancestor that has one, if that has the same rows.

    An expiry keeps a file that another snapshot names. Trino's optimize copies it. Partition statistics count files, so
    they are not carried over.
    """
    table = transaction.table
    files = {int(file.snapshotId()): file for file in java_items(table.java.statisticsFiles())}
    if not files:
        return
    current, *ancestors = reversed(table.snapshots())
    same_rows = takewhile(lambda pair: pair[0].operation == "replace", pairwise([current, *ancestors]))
    file = next((files[snapshot.id] for _, snapshot in same_rows if snapshot.id in files), None)
    if file is not None:
        sizes = file.fileSizeInBytes(), file.fileFooterSizeInBytes()
        carried = table.iceberg.GenericStatisticsFile(current.id, file.path(), *sizes, file.blobMetadata())
        transaction.java.updateStatistics().setStatistics(carried).commit()


class _ConflictError(Exception):
    """Another writer committed first. No file has been deleted yet."""

    def __init__(self, cause: BaseException, base: int | None = None, *, is_of_blocks: bool):
        super().__init__(str(cause))
        self.cause = cause
        self.base = base  # the snapshot of the attempt; None if it was not sent to the catalog
        self.is_of_blocks = is_of_blocks  # whether blocks of the groups may have changed


def _loaded_at(table: IcebergTable, snapshot: Snapshot | None) -> int | None:
    """Return when the rows of a snapshot were last changed, in milliseconds since 1970, or None.

    Rewrites do not count. A recluster records the time because the load's snapshot may expire first.
    """
    while snapshot is not None and snapshot.operation == "replace":
        if (recorded := snapshot.count(LOADED_AT)) is not None:
            return recorded
        snapshot = None if snapshot.parent is None else table.snapshot(snapshot.parent)
    return None if snapshot is None else round(snapshot.at.timestamp() * 1000)


def verify_counts(before: Snapshot, after: Snapshot, groups: Sequence[RewrittenGroup]) -> None:
    """Raise a CommitFailedError if the counts of an uncommitted snapshot are not those of its rewrite."""
    if difference := _wrong_count(before, after, groups):
        raise CommitFailedError(
            f"the new snapshot would have {difference}. A file that the table lists more than once may be the reason"
        )


def verify_committed(
    table: IcebergTable, committed: IcebergTable, added: Mapping[int, Sequence[RewrittenGroup]]
) -> None:
    """Compare the counts of snapshots once more after their commit.

    If another commit comes after :func:`verify_counts`, Iceberg silently applies the changes again, to its snapshot.
    ``added`` has the groups that each snapshot replaces, by its id; ``committed`` is the table in a state that has
    these snapshots, of which expired ones are skipped.

    Raises:
        CommitMismatchError: They differ. No file is deleted, so the parent snapshot still has all rows.
    """
    for snapshot_id, groups in added.items():
        after = committed.snapshot(snapshot_id)
        if after is None or after.parent is None:
            continue
        if difference := _wrong_count(committed.snapshot(after.parent), after, groups):
            raise CommitMismatchError(_how_to_roll_back(table, after, after.parent, difference))


def _wrong_count(before: Snapshot | None, after: Snapshot, groups: Sequence[RewrittenGroup]) -> str | None:
    """Return the first count in a snapshot's summary that shows a change of other rows; a parent may lack totals."""
    # Iceberg counts a path that one manifest lists twice as one file removed and as one duplicate.
    expected = {"added-delete-files": 0, "deleted-duplicate-files": 0}
    for what, removed, added in (
        ("data-files", sum(len(g.source.files) for g in groups), sum(len(g.files) for g in groups)),
        ("records", sum(g.source.rows for g in groups), sum(g.rows for g in groups)),
    ):
        expected |= {f"added-{what}": added, f"deleted-{what}": removed}
        total = None if before is None else before.count(f"total-{what}")
        if total is not None and total + added >= removed:
            expected[f"total-{what}"] = total + added - removed
    for name, count in expected.items():
        if (actual := after.count(name) or 0) != count:
            return f"{name} = {actual}, which must be {count}"
    return None


def _how_to_roll_back(table: IcebergTable, after: Snapshot, parent: int, difference: str) -> str:
    name = name_parts(table.identifier)
    rollback = f"CALL {join_parts(name[:1])}.system.rollback_to_snapshot({sql_literal(join_parts(name))}, {parent})"
    if table.branch is not None:
        branch = f"{join_parts(name)} CREATE OR REPLACE BRANCH `{table.branch}`"
        rollback = f"ALTER TABLE {branch} AS OF VERSION {parent}"
    mismatch = (
        f"{table.name} was reclustered, but another writer committed at the same moment, and snapshot {after.id} has "
        f"{difference}. A file that the table lists more than once may be the reason. No file was deleted: snapshot "
        f"{parent} has the rows as they were"
    )
    undone = "what is committed after it is undone too"
    with suppress(Exception):  # the catalog may be gone by now
        table.refresh()
        if not table.has_snapshot(parent):
            return f"{mismatch}, but it has expired since, and its files may be deleted."
        ancestors = [snapshot.id for snapshot in table.snapshots()]
        later = ancestors[ancestors.index(after.id) + 1 :]
        if later:
            undone = f"it undoes {', '.join(map(str, later))} too, committed by others since: load that again"
    return f"{mismatch}. Until it expires, {rollback} restores it; {undone}."


def _paths(groups: Sequence[RewrittenGroup]) -> list[str]:
    return [path for group in groups for path in group.paths]
