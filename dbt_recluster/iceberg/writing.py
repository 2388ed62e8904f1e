"""Write a DataFrame as data files of a table, without a snapshot, and take such files back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import OrphanFilesError
from dbt_recluster.iceberg.errors import short_message
from dbt_recluster.iceberg.jobs import cancel_tagged, job_tag
from dbt_recluster.iceberg.key_columns import AddedColumns
from dbt_recluster.iceberg.task_progress import Told, task_progress
from dbt_recluster.orphans import orphan_note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.table import IcebergTable

# Blocks are cut by rows. The writer's own limit by bytes is an estimate that rolls over too early (twice the
# files in a trial), so it is set out of reach.
_NO_LIMIT_BYTES = 1 << 50


def write_files(
    table: IcebergTable,
    frame: DataFrame,
    names: Sequence[str],
    added: AddedColumns,
    set_id: str,
    spec_id: int,
    *,
    stages: int,
    told: Told | None = None,
) -> list[Any]:
    """Write one file a partition of ``frame``, sorted by the columns ``names``.

    Args:
        table: The table.
        frame: The rows; each partition holds rows of one partition of the table.
        names: SQL that names the columns to sort by.
        added: The columns of ``frame`` that are not the table's.
        set_id: The id under which the files it is read from are staged.
        spec_id: The partition spec to write under.
        stages: How many stages Spark makes of it.
        told: Told the share of it that is done, while it runs.

    Returns:
        The Java data files, in the order of the partitions that wrote them. When this raises, none of them stay
        behind.
    """
    from pyspark.sql import functions as F

    spark = table.spark
    coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
    ordered = added.drop(frame.sortWithinPartitions(*(F.expr(name) for name in names)))
    try:
        with job_tag(spark, set_id), task_progress(spark, set_id, stages, told):
            (
                ordered.write.format("iceberg")
                .option("rewritten-file-scan-task-set-id", set_id)
                .option("use-table-distribution-and-ordering", "false")
                .option("target-file-size-bytes", str(_NO_LIMIT_BYTES))
                .option("output-spec-id", str(spec_id))
                .mode("append")
                .save(table.identifier)
            )
        return list(coordinator.fetchNewFiles(table.java, set_id))
    except BaseException as e:
        # Spark deletes what a failed job has written. An interrupt (Ctrl-C) is raised in Python only, and
        # leaves the job running or its files staged.
        written: list[Any] = []
        with suppress(Exception):  # where Spark itself is gone, ``e`` says why
            cancel_tagged(spark, set_id)
            if coordinator.fetchSetIds(table.java).contains(set_id):
                written = list(coordinator.fetchNewFiles(table.java, set_id))
        take_back(table, written, e)
        raise


def delete_files(table: IcebergTable, files: Sequence[Any]) -> list[str]:
    """Delete files that never became part of the table; return those that could not be deleted and stay as orphans."""
    io = table.java.io()
    left = []
    for file in files:
        path = str(file.location())
        try:
            io.deleteFile(path)
        except Exception:
            left.append(path)
    return left


def take_back(table: IcebergTable, files: Sequence[Any], error: BaseException) -> None:
    """Delete what was written before ``error``, which the caller then raises again.

    Raises:
        OrphanFilesError: Some could not be deleted. ``error`` is its cause, and part of what it says.
    """
    try:
        left = delete_files(table, files)
    except Exception:
        return  # where Spark itself is gone, ``error`` says why
    if not left or not isinstance(error, Exception):  # Ctrl-C stays Ctrl-C
        return
    if isinstance(error, OrphanFilesError) and error.__cause__ is not None:
        left, error = [*error.orphans, *left], error.__cause__
    raise OrphanFilesError(
        f"Reclustering {table.name} failed: {short_message(error)}. This round changed nothing. "
        f"{orphan_note(table.name, left)}.",
        orphans=left,
    ) from error
