"""Commit the merges of a round: one Iceberg transaction, after which the table is as before or as after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from dbt_recluster.exceptions import CommitStateUnknownError, ConcurrentChangeError
from dbt_recluster.iceberg.errors import is_caused_by, short_message
from dbt_recluster.iceberg.levels import obsolete_properties, property_name
from dbt_recluster.iceberg.locks import table_lock
from dbt_recluster.iceberg.merge import MergedSet, delete_files

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
    try:
        with table_lock(table.lock_name):
            return _commit(table, snapshot_id, merges, live_snapshots, summary)
    except Exception as e:
        if is_caused_by(e, f"{_EXCEPTIONS}CommitStateUnknownException"):
            raise CommitStateUnknownError(
                f"The catalog did not say whether the recluster of {table.name} took place: {short_message(e)}. "
                "The table is as before or as after. The new files are kept; if the table does not use them, "
                "remove_orphan_files removes them."
            ) from e
        if is_caused_by(e, f"{_EXCEPTIONS}ValidationException", f"{_EXCEPTIONS}CommitFailedException"):
            for merge in merges:
                delete_files(table, merge.files)
            raise ConcurrentChangeError(
                f"Another writer changed blocks of {table.name} while they were merged: {short_message(e)}"
            ) from e
        raise


def _commit(
    table: IcebergTable,
    snapshot_id: int,
    merges: Sequence[MergedSet],
    live_snapshots: IntArray,
    summary: Mapping[str, str],
) -> list[int]:
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
    transaction.commitTransaction()
    return list(levels)


def _replace(table: IcebergTable, rewrite: Any, merge: MergedSet, order: Any) -> None:
    for task in merge.tasks:
        rewrite.deleteFile(task.file())
        for delete in task.deletes():
            if _belongs_to_one_file(table, delete):
                rewrite.deleteFile(delete)
    for file in merge.files:
        spec = table.java.specs().get(file.specId())
        rewrite.addFile(table.iceberg.DataFiles.builder(spec).copy(file).withSortOrder(order).build())


def _belongs_to_one_file(table: IcebergTable, delete: Any) -> bool:
    """Deletion vectors (v3) go with their data file; position deletes of one file are dropped by Iceberg itself."""
    return bool(table.iceberg.util.ContentFileUtil.isDV(delete))
