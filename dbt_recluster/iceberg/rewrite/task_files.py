"""The files that the tasks of a failed write have left behind.

Iceberg deletes what a task wrote that fails. What other tasks of the same job wrote before stays, and only Spark knew
it: their names are made of the tasks' numbers and of the id that Spark gave to the query.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from dbt_recluster.iceberg.session.java_functions import JavaFunctions, split_fields, split_lines
from dbt_recluster.iceberg.session.jvm import java_class, jvm

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

T = TypeVar("T")
_LISTENER = "org.apache.spark.sql.util.QueryExecutionListener"
_TASK = "org.apache.spark.status.api.v1.TaskData"
_REWRITE = "rewritten-file-scan-task-set-id"
# Seconds to wait until the tasks of a cancelled job have ended.
_LONGEST_WAIT = 30.0
_ALL = 2**31 - 1


class TaskFiles:
    """Where the tasks of one write put their files.

    Args:
        table: The table.
        set_id: The id of the rewrite, which is the tag of its jobs too.
        spec_id: The partition spec to write under.
        partitions: For each Spark partition, the table's partition that its rows belong to: a Java ``StructLike``.
    """

    def __init__(self, table: IcebergTable, set_id: str, spec_id: int, partitions: Sequence[Any]) -> None:
        self._table = table
        self._set_id = set_id
        self._spec = table.java.specs().get(spec_id)
        self._partitions = partitions
        self._ended = jvm(table.spark).java.util.concurrent.ConcurrentLinkedQueue()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Have Spark report the queries that end in this block, failed or not."""
        manager = self._table.spark._jsparkSession.listenerManager()
        listener = JavaFunctions(self._table.spark).recorder(_LISTENER, self._ended)
        manager.register(listener)
        try:
            yield
        finally:
            with suppress(Exception):  # Spark may be gone
                manager.unregister(listener)

    def paths(self) -> list[str]:
        """Return the files that the tasks may have written, once all tasks have ended; call it in that block.

        Raises:
            TimeoutError: Tasks go on, or Spark does not report the query.
        """
        tasks = self._tasks()
        if not tasks:
            return []
        prefix, locations = f"-{self._query_id()}-0-00001", self._table.java.locationProvider()
        extension = self._extension()
        paths = []
        for index, task_id in tasks:
            name = extension(f"{index:05d}-{task_id}{prefix}")  # as Iceberg's OutputFileFactory
            if self._spec.isUnpartitioned():
                paths.append(str(locations.newDataLocation(name)))
            else:
                paths.append(str(locations.newDataLocation(self._spec, self._partitions[index], name)))
        return paths

    def _tasks(self) -> list[tuple[int, int]]:
        """Return the index and the id of each task of the stage that writes, once all have ended."""
        context: Any = self._table.spark.sparkContext._jsc
        spark_context = context.sc()
        tracker, store = spark_context.statusTracker(), spark_context.statusStore()
        with suppress(Exception):  # it is busy with what others do
            spark_context.listenerBus().waitUntilEmpty()
        jobs = list(tracker.getJobIdsForTag(self._set_id))
        if not jobs:
            return []
        # The last stage of the last job; the others only shuffle.
        stage = max(tracker.getJobInfo(max(jobs)).get().stageIds())
        self._wait(lambda: not _is_active(tracker, max(jobs), stage))
        if not tracker.getStageInfo(stage).isDefined():
            return []
        attempts = range(store.lastStageAttempt(stage).attemptId() + 1)
        tasks = (
            task for attempt in attempts for task in self._tasks_of(store.taskList(stage, attempt, _ALL))
        )
        return [(index, task_id) for index, task_id in tasks if index < len(self._partitions)]

    def _query_id(self) -> str:
        """Return the id that Spark gave to the query that writes."""
        write = self._wait(self._write)
        field = java_class(self._table.spark, "org.apache.iceberg.spark.source.SparkWrite").getDeclaredField(
            "queryId"
        )
        field.setAccessible(True)
        return str(field.get(write))

    def _write(self) -> Any:
        """Return Iceberg's part of the query that writes, or None if Spark has not reported it yet."""
        while (event := self._ended.poll()) is not None:
            if len(event) < 3:  # not one of the listener's own methods
                continue
            plan = event[1].optimizedPlan()
            if plan.getClass().getSimpleName() == "AppendData" and plan.write().isDefined():
                rewrite = plan.writeOptions().get(_REWRITE)
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

    def _tasks_of(self, tasks: Any) -> Iterator[tuple[int, int]]:
        functions = JavaFunctions(self._table.spark)
        fields = [functions.method(_TASK, "index", "int"), functions.method(_TASK, "taskId", "long")]
        as_java = jvm(self._table.spark).scala.collection.JavaConverters.seqAsJavaList(tasks)
        stream = as_java.stream().map(functions.function(functions.fields(_TASK, fields)))
        for line in split_lines(functions.lines(stream)):
            index, task_id = split_fields(line)
            yield int(index), int(task_id)

    def _extension(self) -> Any:
        """Return a function that adds the extension of the table's format to a name."""
        name = self._table.properties.get("write.format.default", "parquet")
        return self._table.iceberg.FileFormat.fromString(name).addExtension


def _is_active(tracker: Any, job: int, stage: int) -> bool:
    """Whether a job, or a task of its stage, still runs: tasks may go on for a while after it was cancelled."""
    info = tracker.getStageInfo(stage)
    runs = str(tracker.getJobInfo(job).get().status()) == "RUNNING"
    return runs or (info.isDefined() and bool(info.get().numActiveTasks()))
