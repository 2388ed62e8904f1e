"""Write rows as uncommitted data files, verify that they hold the rows of the files they replace, or delete them again.

Iceberg deletes the files of a failed task, but not those of the job's other tasks. Their names are made of the tasks'
numbers and of the id that Spark gave to the query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitMismatchError,
    MergeFailedError,
    OrphanFilesError,
    UnsupportedTableError,
    orphan_note,
)
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.manifest_entries import ColumnCounts, column_counts, written_counts
from dbt_recluster.iceberg.rewrite.file_groups import REWRITE_OPTION, FileGroup, RewrittenGroup, StagedFiles
from dbt_recluster.iceberg.session.jvm import JavaFunctions, java_class, jvm
from dbt_recluster.iceberg.session.redaction import short_message
from dbt_recluster.iceberg.snapshots import Snapshot
from dbt_recluster.key.columns import sql_literal
from dbt_recluster.names import join_parts, name_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

# Blocks are cut by rows; the writer's estimate of bytes starts new files too early (twice as many in one trial).
_NO_LIMIT_BYTES = 1 << 50
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


def write_files(
    table: IcebergTable, rows: DataFrame, source: StagedFiles, spec_id: int, partitions: Sequence[Any]
) -> list[Any]:
    """Write one data file for each partition of ``rows``.

    Args:
        table: The table.
        rows: Rows with the table's columns, sorted within partitions.
        source: The files that the rows come from; its id is the tag of the Spark jobs.
        spec_id: The partition spec to write under.
        partitions: The Java partition of the table for each partition of ``rows``.

    Returns:
        The Java data files, in the order of the partitions that wrote them.

    Raises:
        OrphanFilesError: The write failed, and some of the files could not be deleted, or are unknown. After other
            errors all are deleted.
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
            with suppress(Exception):  # Spark may be gone
                table.spark.sparkContext.cancelJobsWithTag(source.set_id)
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


class TaskFiles:
    """Finds the files that the tasks of one write have written; arguments as in :func:`write_files`."""

    def __init__(self, table: IcebergTable, set_id: str, spec_id: int, partitions: Sequence[Any]) -> None:
        self._table = table
        self._set_id = set_id
        self._spec = table.java.specs().get(spec_id)
        self._partitions = partitions
        self._functions = JavaFunctions(table.spark)
        self._ended = jvm(table.spark).java.util.concurrent.ConcurrentLinkedQueue()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record the queries that end in this block, failed or not."""
        manager = self._table.spark._jsparkSession.listenerManager()
        listener = self._functions.recorder("org.apache.spark.sql.util.QueryExecutionListener", self._ended)
        manager.register(listener)
        try:
            yield
        finally:
            with suppress(Exception):  # Spark may be gone
                manager.unregister(listener)

    def paths(self) -> list[str]:
        """Return the files that the tasks may have written, once all have ended; call it within :meth:`watched`.

        Raises:
            TimeoutError: Tasks still run, or Spark does not report the query.
        """
        tasks = self._tasks()
        if not tasks:
            return []
        query_id, locations = self._query_id(), self._table.java.locationProvider()
        format_name = self._table.properties.get("write.format.default", "parquet")
        file_format = self._table.iceberg.FileFormat.fromString(format_name)
        paths = []
        for index, task_id in tasks:
            # As Iceberg's OutputFileFactory names them.
            name = file_format.addExtension(f"{index:05d}-{task_id}-{query_id}-0-00001")
            if self._spec.isUnpartitioned():
                paths.append(str(locations.newDataLocation(name)))
            else:
                paths.append(str(locations.newDataLocation(self._spec, self._partitions[index], name)))
        return paths

    def _tasks(self) -> list[tuple[int, int]]:
        """Return the index and the id of each task of the writing stage, once all have ended."""
        java_context: Any = self._table.spark.sparkContext._jsc
        context = java_context.sc()
        tracker, store = context.statusTracker(), context.statusStore()
        with suppress(Exception):  # a timeout, if other queries keep it busy
            context.listenerBus().waitUntilEmpty()
        jobs = list(tracker.getJobIdsForTag(self._set_id))
        if not jobs:
            return []
        # The other stages only shuffle.
        stage = max(tracker.getJobInfo(max(jobs)).get().stageIds())

        def has_ended() -> bool:
            # Tasks may outlive their cancelled job.
            info = tracker.getStageInfo(stage)
            runs = str(tracker.getJobInfo(max(jobs)).get().status()) == "RUNNING"
            return not runs and not (info.isDefined() and info.get().numActiveTasks())

        self._wait(has_ended)
        if not tracker.getStageInfo(stage).isDefined():
            return []
        text = self._functions.function(self._functions.fields(_TASK, [("index", "int"), ("taskId", "long")]))
        as_java = jvm(self._table.spark).scala.collection.JavaConverters.seqAsJavaList
        tasks = []
        for attempt in range(store.lastStageAttempt(stage).attemptId() + 1):
            listed = as_java(store.taskList(stage, attempt, 2**31 - 1)).stream().map(text)
            records = self._functions.records(listed.iterator())
            tasks += [(int(index), int(task_id)) for index, task_id in records]
        return [(index, task_id) for index, task_id in tasks if index < len(self._partitions)]

    def _query_id(self) -> str:
        """Return the id that Spark gave to the query that writes."""
        write_class = java_class(self._table.spark, "org.apache.iceberg.spark.source.SparkWrite")
        field = write_class.getDeclaredField("queryId")
        field.setAccessible(True)
        return str(field.get(self._wait(self._write)))

    def _write(self) -> Any:
        """Return Iceberg's part of the query that writes, or None if Spark has not reported it yet."""
        while (event := self._ended.poll()) is not None:
            if len(event) < 3:  # a call of one of Object's methods
                continue
            plan = event[1].optimizedPlan()
            if plan.getClass().getSimpleName() == "AppendData" and plan.write().isDefined():
                rewrite = plan.writeOptions().get(REWRITE_OPTION)
                if rewrite.isDefined() and rewrite.get() == self._set_id:
                    return plan.write().get()
        return None

    def _wait(self, look: Callable[[], T]) -> T:
        """Call ``look`` until its result is true, and return that."""
        deadline = time.monotonic() + _LONGEST_WAIT
        while not (result := look()):
            if time.monotonic() > deadline:
                raise TimeoutError(self._set_id)
            time.sleep(0.1)
        return result


def assign_files(
    table: IcebergTable, files: Sequence[Any], groups: Sequence[FileGroup]
) -> list[RewrittenGroup]:
    """Assign the new files of one job to the file groups that they replace, in the order that Spark wrote them in.

    If no file ends where the rows of a group do, that is a MergeFailedError.
    """
    rewritten = []
    remaining = iter(files)
    for group in groups:
        own: list[Any] = []
        rows, expected = 0, group.live_rows or 0
        while rows < expected and (file := next(remaining, None)) is not None:
            own.append(file)
            rows += int(file.recordCount())
        if rows != expected:
            raise _error(table, group, f"read {expected} rows and wrote {rows}")
        rewritten.append(RewrittenGroup(group, tuple(own)))
    if surplus := sum(int(file.recordCount()) for file in remaining):
        raise _error(table, groups[-1], f"wrote {surplus} rows that no block had")
    return rewritten


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
            raise _error(table, group.source, "wrote rows into another partition")
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
            raise _error(table, group.source, difference)


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
    rollback = (
        f"CALL {join_parts(name[:1])}.system.rollback_to_snapshot({sql_literal(join_parts(name))}, {parent})"
    )
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


def _error(table: IcebergTable, group: FileGroup, what: str) -> MergeFailedError:
    return MergeFailedError(
        f"Merging {len(group.files)} blocks of {table.name} {what}. This round changed nothing. It is a fault of "
        "dbt-recluster, or of the writer that counted the blocks' rows; please report it."
    )
