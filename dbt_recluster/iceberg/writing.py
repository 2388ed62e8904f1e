"""Write a DataFrame as data files of a table, without a snapshot, and take such files back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.jobs import cancel_tagged, job_tag
from dbt_recluster.iceberg.key_columns import drop_key_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.table import IcebergTable

# Blocks are cut by rows. The writer's own limit by bytes is an estimate that rolls over too early (twice the
# files in a trial), so it is set out of reach.
_NO_LIMIT_BYTES = 1 << 50


def write_files(
    table: IcebergTable, frame: DataFrame, names: Sequence[str], set_id: str, spec_id: int
) -> list[Any]:
    """Write one file a partition of ``frame``, sorted by the columns ``names``.

    Args:
        table: The table.
        frame: The rows; each partition holds rows of one partition of the table.
        names: SQL that names the columns to sort by.
        set_id: The id under which the files it is read from are staged.
        spec_id: The partition spec to write under.

    Returns:
        The Java data files. When this raises, none of them stay behind.
    """
    from pyspark.sql import functions as F

    spark = table.spark
    coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
    ordered = drop_key_columns(frame.sortWithinPartitions(*(F.expr(name) for name in names)))
    try:
        with job_tag(spark, set_id):
            (
                ordered.write.format("iceberg")
                .option("rewritten-file-scan-task-set-id", set_id)
                .option("use-table-distribution-and-ordering", "false")
                .option("target-file-size-bytes", str(_NO_LIMIT_BYTES))
                .option("output-spec-id", str(spec_id))
                .mode("append")
                .save(table.name)
            )
        return list(coordinator.fetchNewFiles(table.java, set_id))
    except BaseException:
        # Spark deletes what a failed job has written. An interrupt (Ctrl-C) is raised in Python only, and
        # leaves the job running or its files staged.
        cancel_tagged(spark, set_id)
        if coordinator.fetchSetIds(table.java).contains(set_id):
            delete_files(table, list(coordinator.fetchNewFiles(table.java, set_id)))
        raise


def delete_files(table: IcebergTable, files: Sequence[Any]) -> None:
    """Delete files that never became part of the table; one that cannot be deleted stays as an orphan."""
    io = table.java.io()
    for file in files:
        try:
            io.deleteFile(file.location())
        except Exception:
            continue
