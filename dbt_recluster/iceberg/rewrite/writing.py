"""Write rows as data files of a table without a snapshot, and delete such files again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import OrphanFilesError, orphan_note
from dbt_recluster.iceberg.rewrite.staging import StagedFiles
from dbt_recluster.iceberg.rewrite.task_files import TaskFiles
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.jobs import cancel_tagged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.iceberg_table import IcebergTable

logger = logging.getLogger(__name__)

# Blocks are split by rows. The writer's own limit is an estimate that starts new files too early (twice as many in one
# trial), so it is put out of reach.
_NO_LIMIT_BYTES = 1 << 50


def write_files(
    table: IcebergTable, rows: DataFrame, source: StagedFiles, spec_id: int, partitions: Sequence[Any]
) -> list[Any]:
    """Write one data file for each partition of ``rows``.

    Args:
        table: The table.
        rows: Rows with the table's columns, sorted within partitions; each partition belongs to one partition of the
            table.
        source: The files that the rows come from; the tag of the Spark jobs is its id.
        spec_id: The partition spec to write under.
        partitions: For each partition of ``rows``, the Java partition of the table that its rows belong to.

    Returns:
        The Java data files, in the order of the partitions that wrote them. If this raises, the files are deleted.

    Raises:
        OrphanFilesError: The write failed, and some of the files could not be deleted, or are not known.
    """
    options = {
        "use-table-distribution-and-ordering": "false",
        "target-file-size-bytes": str(_NO_LIMIT_BYTES),
        "output-spec-id": str(spec_id),
    }
    tasks = TaskFiles(table, source.set_id, spec_id, partitions)
    with tasks.watched():
        try:
            return source.rewrite(table, rows, options)
        except BaseException as e:
            with suppress(Exception):  # a second Ctrl-C leaves it running
                cancel_tagged(table.spark, source.set_id)
            _delete_unfinished(table, tasks, e)
            raise


def _delete_unfinished(table: IcebergTable, tasks: TaskFiles, error: BaseException) -> None:
    """Delete what the tasks of a failed write have written; see :func:`discard_files`."""
    try:
        paths = tasks.paths()
    except Exception:
        if not isinstance(error, Exception):  # Ctrl-C stays Ctrl-C
            return
        raise OrphanFilesError(
            f"Reclustering {table.name} failed: {short_message(error)}. This round changed nothing. Files that Spark "
            "had begun may be left behind; remove_orphan_files removes them."
        ) from error
    discard_paths(table, paths, error)


def delete_files(table: IcebergTable, files: Iterable[Any]) -> list[str]:
    """Delete files that never became part of the table; return the paths of those that could not be deleted."""
    return delete_paths(table, (str(file.location()) for file in files))


def delete_paths(table: IcebergTable, paths: Iterable[str]) -> list[str]:
    """Delete files; return the paths of those that could not be deleted."""
    io = table.java.io()
    orphans = []
    for path in paths:
        try:
            io.deleteFile(path)
        except Exception:
            orphans.append(path)
    return orphans


def discard_files(table: IcebergTable, files: Sequence[Any], error: BaseException) -> None:
    """Delete the files that were written before ``error``, which the caller raises again.

    After a Ctrl-C, which stays one, those that could not be deleted are named in the log.

    Raises:
        OrphanFilesError: Some could not be deleted. ``error`` is the cause, and its message is part of this one.
    """
    discard_paths(table, [str(file.location()) for file in files], error)


def discard_paths(table: IcebergTable, paths: Sequence[str], error: BaseException) -> None:
    """Do what :func:`discard_files` does, given paths."""
    try:
        orphans = delete_paths(table, paths)
    except Exception:
        return  # if Spark itself is gone, ``error`` says why
    if not orphans:
        return
    if not isinstance(error, Exception):
        logger.warning("%s.", orphan_note(table.name, orphans))
        return
    if isinstance(error, OrphanFilesError) and error.__cause__ is not None:
        orphans, error = [*error.orphans, *orphans], error.__cause__
    raise OrphanFilesError(
        f"Reclustering {table.name} failed: {short_message(error)}. This round changed nothing. "
        f"{orphan_note(table.name, orphans)}.",
        orphans=orphans,
    ) from error
