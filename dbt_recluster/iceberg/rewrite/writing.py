"""Uncommitted data files: the tasks that write them, checks against the files that they replace, and deletion."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitMismatchError,
    MergeFailedError,
    OrphanFilesError,
    UnsupportedTableError,
    orphan_note,
)
from dbt_recluster.iceberg.iceberg_table import IcebergTable, Snapshot
from dbt_recluster.iceberg.metadata.manifest_entries import ColumnCounts, column_counts, written_counts
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, RewrittenGroup
from dbt_recluster.iceberg.session.jvm import JavaFunctions, jvm
from dbt_recluster.iceberg.session.redaction import short_message
from dbt_recluster.key.columns import sql_literal
from dbt_recluster.names import join_parts, name_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# Seconds to wait until the tasks of a cancelled job have ended.
_LONGEST_WAIT = 30.0
_TASK = "org.apache.spark.status.api.v1.TaskData"

T = TypeVar("T")


def check_location(table: IcebergTable) -> None:
    """Raise an UnsupportedTableError if the table's properties give new files no location. Creates no file."""
    try:
        table.java.io().newOutputFile(table.java.locationProvider().newDataLocation("none.parquet"))
    except Exception as e:
        raise UnsupportedTableError(
            f"{table.name} cannot write data files: {short_message(e)}. Nothing was changed; check its properties "
            "write.data.path, write.object-storage.path and write.location-provider.impl."
        ) from e


def task_attempts(spark: SparkSession, tag: str) -> list[tuple[int, int]]:
    """Return the index and the id of each attempt of a task that writes, once all have ended; ``tag`` is of their job.

    Raises:
        TimeoutError: Tasks still run.
    """
    context: Any = spark.sparkContext._jsc.sc()
    tracker, store = context.statusTracker(), context.statusStore()
    with suppress(Exception):  # a timeout, if other queries keep it busy
        context.listenerBus().waitUntilEmpty()
    jobs = list(tracker.getJobIdsForTag(tag))
    if not jobs:
        return []
    # The other stages only shuffle.
    stage = max(tracker.getJobInfo(max(jobs)).get().stageIds())

    def has_ended() -> bool:
        # Tasks may outlive their cancelled job.
        info = tracker.getStageInfo(stage)
        runs = str(tracker.getJobInfo(max(jobs)).get().status()) == "RUNNING"
        return not runs and not (info.isDefined() and info.get().numActiveTasks())

    wait_until(has_ended)
    if not tracker.getStageInfo(stage).isDefined():
        return []
    functions = JavaFunctions(spark)
    text = functions.function(functions.fields(_TASK, [("index", "int"), ("taskId", "long")]))
    as_java = jvm(spark).scala.collection.JavaConverters.seqAsJavaList
    tasks = []
    for attempt in range(store.lastStageAttempt(stage).attemptId() + 1):
        listed = as_java(store.taskList(stage, attempt, 2**31 - 1)).stream().map(text)
        tasks += [(int(index), int(task_id)) for index, task_id in functions.records(listed.iterator())]
    return tasks


def wait_until(look: Callable[[], T]) -> T:
    """Poll ``look`` until its result is true, and return that; a TimeoutError after 30 s."""
    deadline = time.monotonic() + _LONGEST_WAIT
    while not (result := look()):
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)
    return result


def delete_unfinished(table: IcebergTable, tag: str, find: Callable[[], list[str]], error: BaseException) -> None:
    """Cancel the tagged jobs of a failed write, and delete its files at the paths of ``find``; see `discard_files`."""
    with suppress(Exception):  # Spark may be gone
        table.spark.sparkContext.cancelJobsWithTag(tag)
    try:
        paths = find()
    except Exception:
        if not isinstance(error, Exception):  # Ctrl-C stays Ctrl-C
            return
        raise OrphanFilesError(
            f"Reclustering {table.name} failed: {short_message(error)}. This round changed nothing. Files that Spark "
            "had begun may be left behind; remove_orphan_files removes them."
        ) from error
    discard_files(table, paths, error)


def delete_files(table: IcebergTable, paths: Iterable[str]) -> list[str]:
    """Delete uncommitted files; return the paths of those that could not be deleted."""
    io = table.java.io()
    orphans = []
    for path in paths:
        try:
            io.deleteFile(path)
        except Exception:
            orphans.append(path)
    return orphans


def discard_files(table: IcebergTable, paths: Sequence[str], error: BaseException) -> None:
    """Delete the files written before ``error``, which the caller raises again.

    Raises:
        OrphanFilesError: Some could not be deleted; ``error`` is the cause. After Ctrl-C they are logged instead.
    """
    try:
        orphans = delete_files(table, paths)
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


def verify_rewrite(table: IcebergTable, snapshot_id: int, groups: Sequence[RewrittenGroup]) -> None:
    """Raise a MergeFailedError if partitions or counts of values and NULLs are not those of the replaced files.

    In groups without deletes, counts are compared for each column that all files have them of, old and new.
    """
    for group in groups:
        # Not by equals(): Java compares bytes by their identity, and a dropped field of v1 may have another type.
        kind = table.java.specs().get(group.source.spec_id).partitionType()
        wrapper = table.iceberg.util.StructLikeWrapper.forType(kind)
        partition = wrapper.copyFor(group.source.partition)
        if not all(partition.equals(wrapper.copyFor(file.partition())) for file in group.files):
            raise merge_error(table, group.source, "wrote rows into another partition")
    comparable = [g for g in groups if g.files and not any(file.deletes for file in g.source.files)]
    if not comparable:
        return
    columns = {field_id: path for path, _, field_id in table.primitive_fields()}
    old_paths = [file.path for group in comparable for file in group.source.files]
    old = column_counts(table, snapshot_id, old_paths)
    new = written_counts(table, [file for group in comparable for file in group.files])
    for group in comparable:
        before = [old[file.path] for file in group.source.files]
        after = [new[path] for path in group.paths]
        if difference := _difference(columns, before, after):
            raise merge_error(table, group.source, difference)


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


def _difference(
    columns: Mapping[int, str], before: Sequence[ColumnCounts], after: Sequence[ColumnCounts]
) -> str | None:
    """Describe the first difference between files before and after, or return None."""
    for what, noun in (("values", "values"), ("nulls", "NULLs")):
        old, new = ([getattr(file, what) for file in files] for files in (before, after))
        for field_id in columns.keys() & set.intersection(*map(set, [*old, *new])):
            read, wrote = (sum(counts[field_id] for counts in files) for files in (old, new))
            if read != wrote:
                return f"read {read} {noun} in column {columns[field_id]} and wrote {wrote}"
    return None


def merge_error(table: IcebergTable, group: FileGroup, what: str) -> MergeFailedError:
    """Return the error of new files that do not hold the rows of a group."""
    return MergeFailedError(
        f"Merging {len(group.files)} blocks of {table.name} {what}. This round changed nothing. It is a fault of "
        "dbt-recluster, or of the writer that counted the blocks' rows; please report it."
    )
