"""Commit the merges of a round: one Iceberg transaction, after which the table is as before or as after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from dbt_recluster.exceptions import CommitStateUnknownError, ConcurrentChangeError
from dbt_recluster.iceberg.block_set import MergedSet
from dbt_recluster.iceberg.errors import is_caused_by, short_message
from dbt_recluster.iceberg.levels import obsolete_properties, property_name
from dbt_recluster.iceberg.locks import table_lock
from dbt_recluster.iceberg.writing import delete_files

if TYPE_CHECKING:
    from dbt_recluster.iceberg.blocks import IntArray
    from dbt_recluster.iceberg.table import IcebergTable

_EXCEPTIONS = "org.apache.iceberg.exceptions."


def commit_merges(
    table: IcebergTable,
    snapshot_id: int,
    merges: Sequence[MergedSet],
    live_snapshots: IntArray,
    summary: Mapping[str, str],
) -> list[int]:
    """Replace the blocks that were merged by the blocks that were written.

    Merges of one run become one snapshot, so that a run is a snapshot; its level is set as a property of the
    table in the same transaction. No data sequence number is set: with one, a row that an equality delete
    removed meanwhile comes back (apache/iceberg#10312).

    Args:
        table: The table.
        snapshot_id: The snapshot the blocks were chosen from; what others committed since is checked against
            it.
        merges: What was merged.
        live_snapshots: The snapshots that added the blocks that stay; level properties of others are dropped.
        summary: Figures for the snapshots' summaries.

    Returns:
        The ids of the new snapshots.

    Raises:
        ConcurrentChangeError: Another writer changed one of the blocks. The new files are deleted.
        CommitStateUnknownError: The catalog did not answer. The new files are kept.
    """
    with table_lock(table.lock_name):
        try:
            transaction, snapshots = _prepare(table, snapshot_id, merges, live_snapshots, summary)
        except BaseException as e:
            _give_up(table, merges, e)
            raise
        try:
            transaction.commitTransaction()
        except Exception as e:
            _explain(table, merges, e)
            raise
    return snapshots


def _give_up(table: IcebergTable, merges: Sequence[MergedSet], error: BaseException) -> None:
    """Nothing is committed yet, so the new files belong to nobody."""
    for merge in merges:
        delete_files(table, merge.files)
    if is_caused_by(error, f"{_EXCEPTIONS}ValidationException"):
        raise _conflict(table, error) from error


def _explain(table: IcebergTable, merges: Sequence[MergedSet], error: Exception) -> None:
    """Raise what a failed commit means; an error that tells nothing of the outcome is left to the caller."""
    if is_caused_by(error, f"{_EXCEPTIONS}CommitStateUnknownException"):
        raise CommitStateUnknownError(
            f"The catalog did not say whether the recluster of {table.name} took place: {short_message(error)}. "
            "The table is as before or as after. The new files are kept; if the table does not use them, "
            "remove_orphan_files removes them."
        ) from error
    if is_caused_by(error, f"{_EXCEPTIONS}ValidationException", f"{_EXCEPTIONS}CommitFailedException"):
        for merge in merges:
            delete_files(table, merge.files)
        raise _conflict(table, error) from error


def _conflict(table: IcebergTable, error: BaseException) -> ConcurrentChangeError:
    return ConcurrentChangeError(
        f"Another writer changed blocks of {table.name} while they were merged: {short_message(error)}"
    )


def _prepare(
    table: IcebergTable,
    snapshot_id: int,
    merges: Sequence[MergedSet],
    live_snapshots: IntArray,
    summary: Mapping[str, str],
) -> tuple[Any, list[int]]:
    """Return the transaction with everything in it, and the ids of its snapshots."""
    order = table.java.sortOrder()
    transaction = table.java.newTransaction()
    levels: dict[int, int] = {}
    by_run = sorted(merges, key=lambda merge: merge.run)
    for _, group in groupby(by_run, key=lambda merge: merge.run):
        sets = list(group)
        rewrite = transaction.newRewrite().validateFromSnapshot(snapshot_id)
        for merge in sets:
            _replace(table, rewrite, merge, order)
        for name, value in summary.items():
            rewrite.set(name, value)
        rewrite.set("recluster.level", str(sets[0].level))
        rewrite.commit()
        levels[int(transaction.table().currentSnapshot().snapshotId())] = sets[0].level
    update = transaction.updateProperties()
    for snapshot, level in levels.items():
        update.set(property_name(snapshot), str(level))
    for name in obsolete_properties(table.properties, np.append(live_snapshots, list(levels))):
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
