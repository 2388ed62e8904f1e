"""Merge a block set: read its files, sort them by the cluster key, cut them into new blocks.

Nothing is committed here. The parts are Iceberg's own, those its ``rewrite_data_files`` is made of: a staged
set of scan tasks is read through ``scan-task-set-id``, and a write with ``rewritten-file-scan-task-set-id``
leaves files and no snapshot.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.sorting import sort_columns

if TYPE_CHECKING:
    from dbt_recluster.iceberg.table import IcebergTable

# Blocks are cut by rows. The writer's own limit by bytes is an estimate that rolls over too early (twice the
# files in a trial), so it is set out of reach.
_NO_LIMIT_BYTES = 1 << 50
_TEMPORARY = "__recluster_key_"


@dataclass(frozen=True)
class MergedSet:
    """What one merge wrote.

    Attributes:
        tasks: The Java scan tasks of the blocks it read.
        files: The Java data files it wrote, not yet part of the table.
        rows: Rows in ``files``.
        bytes: Bytes in ``files``.
        level: The level of the new blocks.
        run: Sets of one round with equal numbers make one run (see :mod:`dbt_recluster.iceberg.commit`).
    """

    tasks: list[Any]
    files: list[Any]
    rows: int
    bytes: int
    level: int
    run: int


def merge_set(
    table: IcebergTable,
    tasks: Sequence[Any],
    key: ClusterKey,
    blocks: int,
    spec_id: int,
    level: int,
    run: int,
) -> MergedSet:
    """Merge the files of ``tasks`` into about ``blocks`` new files, sorted by ``key`` and disjoint.

    Args:
        table: The table.
        tasks: Scan tasks of one partition, with their delete files, which are applied.
        key: The cluster key.
        blocks: How many files to write.
        spec_id: The partition spec of the files, kept as it is.
        level: Passed on to the result.
        run: Passed on to the result.

    Raises:
        ReclusterError: Fewer or more rows came out than went in; the new files are deleted.
    """
    tasks = list(tasks)
    set_id = str(uuid.uuid4())
    manager = table.iceberg.spark.ScanTaskSetManager.get()
    coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
    manager.stageTasks(table.java, set_id, tasks)
    try:
        names = [f"{_TEMPORARY}{position}" for position in range(len(key.fields))]
        # load(), not table(): on v3 tables the latter drops the row ids without a word.
        frame = table.spark.read.format("iceberg").option("scan-task-set-id", set_id).load(table.name)
        for name, column in zip(names, sort_columns(table.spark, key), strict=True):
            frame = frame.withColumn(name, column)
        frame = frame.repartitionByRange(blocks, *names) if blocks > 1 else frame.coalesce(1)
        frame = frame.sortWithinPartitions(*names).drop(*names)
        (
            frame.write.format("iceberg")
            .option("rewritten-file-scan-task-set-id", set_id)
            .option("use-table-distribution-and-ordering", "false")
            .option("target-file-size-bytes", str(_NO_LIMIT_BYTES))
            .option("output-spec-id", str(spec_id))
            .mode("append")
            .save(table.name)
        )
        files = list(coordinator.fetchNewFiles(table.java, set_id))
    finally:
        manager.removeTasks(table.java, set_id)
        coordinator.clearRewrite(table.java, set_id)
    merged = MergedSet(
        tasks,
        files,
        rows=sum(file.recordCount() for file in files),
        bytes=sum(file.fileSizeInBytes() for file in files),
        level=level,
        run=run,
    )
    _check_rows(table, merged)
    return merged


def delete_files(table: IcebergTable, files: Sequence[Any]) -> None:
    """Delete files that never became part of the table; one that cannot be deleted stays as an orphan."""
    io = table.java.io()
    for file in files:
        try:
            io.deleteFile(file.location())
        except Exception:
            continue


def _check_rows(table: IcebergTable, merged: MergedSet) -> None:
    """Hold the one promise that matters most against the figures: a merge loses no row and makes none."""
    before = sum(task.file().recordCount() for task in merged.tasks)
    has_deletes = any(task.deletes() for task in merged.tasks)
    if merged.rows > before or (merged.rows < before and not has_deletes):
        delete_files(table, merged.files)
        raise ReclusterError(
            f"Merging {len(merged.tasks)} blocks of {table.name} read {before} rows and wrote {merged.rows}. "
            "The new files were deleted and the table is unchanged. This is a fault of dbt-recluster; please report it."
        )
