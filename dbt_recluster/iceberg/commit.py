"""Commit the merges of a round: one Iceberg transaction, after which the table is as before or as after."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import CommitFailedError, CommitStateUnknownError, ConcurrentChangeError
from dbt_recluster.iceberg.block_set import MergedSet
from dbt_recluster.iceberg.errors import is_caused_by, is_instance, short_message
from dbt_recluster.iceberg.levels import property_name
from dbt_recluster.iceberg.locks import table_lock
from dbt_recluster.iceberg.scan import scan_tasks
from dbt_recluster.iceberg.writing import delete_files, take_back
from dbt_recluster.orphans import orphan_note

if TYPE_CHECKING:
    from dbt_recluster.iceberg.table import IcebergTable

MAX_ATTEMPTS = 5

_EXCEPTIONS = "org.apache.iceberg.exceptions."


@dataclass(frozen=True)
class Committed:
    """What became part of the table.

    Attributes:
        merges: The merges that took place; those left out are not among them.
        snapshot_ids: The ids of the new snapshots.
        conflicts: How often another writer's commit made this one start again.
        orphans: Files of merges left out that could not be deleted.
    """

    merges: tuple[MergedSet, ...]
    snapshot_ids: tuple[int, ...]
    conflicts: int
    orphans: tuple[str, ...] = ()


def commit_merges(
    table: IcebergTable,
    snapshot_id: int,
    merges: Sequence[MergedSet],
    obsolete_levels: Sequence[str],
    summary: Callable[[Sequence[MergedSet]], Mapping[str, str]],
) -> Committed:
    """Replace the blocks that were merged by the blocks that were written.

    Merges of one run become one snapshot, so that a run is a snapshot; its level is set as a property of the
    table in the same transaction. No data sequence number is set: with one, a row that an equality delete
    removed meanwhile comes back (apache/iceberg#10312).

    A merge whose blocks another writer has removed, or deleted rows from, since they were chosen is left out
    and its new files are deleted: fighting for it would make one of both start again for ever. The others
    are committed.

    Args:
        table: The table.
        snapshot_id: The snapshot the blocks were chosen from; what others committed since is checked against
            it.
        merges: What was merged.
        obsolete_levels: Level properties that no block needs once all merges have taken place.
        summary: Returns the figures for the snapshots' summaries, given the merges to be committed.

    Returns:
        What took place: at least one merge.

    Raises:
        ConcurrentChangeError: Other writers changed blocks of every merge, or were faster too often. The new
            files are deleted.
        CommitFailedError: The catalog could not be reached, or refused. The new files are deleted.
        CommitStateUnknownError: The catalog did not answer. The new files are kept, and named.
        OrphanFilesError: The commit could not be made, and some of the new files could not be deleted.
    """
    left, conflicts = list(merges), 0
    orphans: list[str] = []
    while True:
        # What was left out still needs its levels; the next round drops what nothing needs any more.
        obsolete = obsolete_levels if len(left) == len(merges) else ()
        try:
            with table_lock(table.lock_name):
                snapshots = _commit(table, snapshot_id, left, obsolete, summary)
            return Committed(tuple(left), tuple(snapshots), conflicts, tuple(orphans))
        except _ConflictError as conflict:
            # Others may move a shared table object on at any time. What is compared now must be what the next
            # attempt is checked from, or a delete in between would be seen by neither.
            now, took_place = _look_again(table, left, conflict)
            if took_place:
                return Committed(tuple(left), conflict.snapshot_ids, conflicts, tuple(orphans))
            conflicts += 1
            try:
                left, undeleted = _leave_out(table, now, left)
                orphans += undeleted
                again = left and conflicts < MAX_ATTEMPTS
                if again:
                    back_off(conflicts)
            except BaseException as e:
                take_back(table, _files(left), e)
                if isinstance(e, Exception):
                    raise _failed(table, e) from e
                raise
            if not again:
                orphans += delete_files(table, _files(left))
                raise ConcurrentChangeError(
                    f"Another writer changed blocks of {table.name} while they were merged: "
                    f"{short_message(conflict.cause)}",
                    orphans=orphans,
                ) from conflict.cause
            assert now is not None  # without a snapshot nothing is left
            snapshot_id = now


def back_off(attempt: int) -> None:
    """Wait a random while, the longer the more attempts there were: who failed each other must not meet again."""
    time.sleep(random.uniform(0, 0.1 * 2**attempt))


class _ConflictError(Exception):
    """Another writer was faster, the catalog says; nothing is deleted yet.

    Attributes:
        cause: What Iceberg raised.
        snapshot_ids: The snapshots that were sent to the catalog; none where it did not come so far.
    """

    def __init__(self, cause: BaseException, snapshot_ids: Sequence[int] = ()):
        super().__init__(str(cause))
        self.cause = cause
        self.snapshot_ids = tuple(snapshot_ids)


def _commit(
    table: IcebergTable,
    snapshot_id: int,
    merges: Sequence[MergedSet],
    obsolete: Sequence[str],
    summary: Callable[[Sequence[MergedSet]], Mapping[str, str]],
) -> list[int]:
    try:
        transaction, snapshots = _prepare(table, snapshot_id, merges, obsolete, summary(merges))
    except BaseException as e:
        if is_caused_by(e, f"{_EXCEPTIONS}ValidationException"):
            raise _ConflictError(e) from e
        take_back(table, _files(merges), e)  # nothing is committed, so the new files belong to nobody
        if isinstance(e, Exception):  # Ctrl-C stays Ctrl-C
            raise _failed(table, e) from e
        raise
    try:
        transaction.commitTransaction()
    except Exception as e:
        if not is_caused_by(e, f"{_EXCEPTIONS}CommitStateUnknownException"):
            if is_caused_by(e, f"{_EXCEPTIONS}ValidationException", f"{_EXCEPTIONS}CommitFailedException"):
                raise _ConflictError(e, snapshots) from e
            if is_instance(e, f"{_EXCEPTIONS}CleanableFailure"):
                take_back(table, _files(merges), e)
                raise _failed(table, e) from e
        raise _unknown(table, merges, e) from e
    return snapshots


def _failed(table: IcebergTable, error: Exception) -> CommitFailedError:
    return CommitFailedError(
        f"The recluster of {table.name} could not be committed: {short_message(error)}. "
        "This round changed nothing, and its new files are deleted."
    )


def _unknown(table: IcebergTable, merges: Sequence[MergedSet], error: Exception) -> CommitStateUnknownError:
    files = [str(file.location()) for file in _files(merges)]
    note = orphan_note(table.name, files, kept=True)
    return CommitStateUnknownError(
        f"Whether the recluster of {table.name} took place is not known: {short_message(error)}. "
        f"The table is as before or as after. In case it is as before, {note}.",
        orphans=files,
    )


def _look_again(
    table: IcebergTable, merges: Sequence[MergedSet], conflict: _ConflictError
) -> tuple[int | None, bool]:
    """Return the table's snapshot now, and whether the commit that was called a conflict took place after all.

    A catalog that is asked twice, since its first answer was lost, may call the second one a conflict with the first.
    Files of a snapshot that is there must never be deleted, also when another writer has replaced them since.
    """
    try:
        table.refresh()
        now = table.snapshot_id
        if now is None or not conflict.snapshot_ids:
            return now, False
        known = any(table.java.snapshot(each) is not None for each in conflict.snapshot_ids)
        new = [str(file.location()) for file in _files(merges)]
        return now, known or bool(scan_tasks(table, now, new))
    except Exception as e:
        if conflict.snapshot_ids:  # they were sent
            raise _unknown(table, merges, e) from e
        take_back(table, _files(merges), e)
        raise _failed(table, e) from e


def _leave_out(
    table: IcebergTable, snapshot_id: int | None, merges: Sequence[MergedSet]
) -> tuple[list[MergedSet], list[str]]:
    """Return the merges whose blocks are as they were when they were read, and delete the files of the others.

    Also return those files that could not be deleted.
    """
    if snapshot_id is None:
        return [], delete_files(table, _files(merges))
    planned = {task.file().location(): task for merge in merges for task in merge.tasks}
    now = scan_tasks(table, snapshot_id, list(planned))
    changed = {
        path for path, task in planned.items() if path not in now or _deletes(task) != _deletes(now[path])
    }
    touched = [merge for merge in merges if any(task.file().location() in changed for task in merge.tasks)]
    left = delete_files(table, _files(touched))
    return [merge for merge in merges if merge not in touched], left


def _deletes(task: Any) -> set[tuple[str, Any]]:
    # Deletion vectors of several data files share one file, at different places.
    return {(delete.location(), delete.contentOffset()) for delete in task.deletes()}


def _files(merges: Sequence[MergedSet]) -> list[Any]:
    return [file for merge in merges for file in merge.files]


def _prepare(
    table: IcebergTable,
    snapshot_id: int,
    merges: Sequence[MergedSet],
    obsolete: Sequence[str],
    summary: Mapping[str, str],
) -> tuple[Any, list[int]]:
    """Return the transaction with everything in it, and the ids of its snapshots."""
    order = table.java.sortOrder()
    transaction = table.java.newTransaction()
    levels: dict[int, int] = {}
    by_run = sorted(merges, key=lambda merge: merge.source.run)
    for _, group in groupby(by_run, key=lambda merge: merge.source.run):
        sets = list(group)
        level = sets[0].source.level
        rewrite = transaction.newRewrite().validateFromSnapshot(snapshot_id)
        for merge in sets:
            _replace(table, rewrite, merge, order)
        for name, value in summary.items():
            rewrite.set(name, value)
        rewrite.set("recluster.level", str(level))
        rewrite.commit()
        levels[int(transaction.table().currentSnapshot().snapshotId())] = level
    update = transaction.updateProperties()
    for snapshot, level in levels.items():
        update.set(property_name(snapshot), str(level))
    for name in obsolete:
        update.remove(name)
    update.commit()
    return transaction, list(levels)


def _replace(table: IcebergTable, rewrite: Any, merge: MergedSet, order: Any) -> None:
    for task in merge.tasks:
        rewrite.deleteFile(task.file())
        for delete in task.deletes():
            # Deletes of this one file have been applied and would dangle: v3's deletion vectors, and v2's
            # position deletes where the writer keeps them by file. Others may still be needed elsewhere.
            if table.iceberg.util.ContentFileUtil.isFileScoped(delete):
                rewrite.deleteFile(delete)
    for file in merge.files:
        spec = table.java.specs().get(file.specId())
        rewrite.addFile(table.iceberg.DataFiles.builder(spec).copy(file).withSortOrder(order).build())
