"""The Spark jobs of a thread: names in Spark's UI, cancellation, interruption, progress, and the tasks of a write.

dbt gives one job group to all jobs of a connection, so the jobs of one write have their own tag.

On Ctrl-C and SIGTERM, pyspark's signal handler calls Java, and Python's raises, in the middle of a call to Java; both
lose the connection.
"""

from __future__ import annotations

import contextvars
import re
import signal
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from itertools import accumulate, groupby
from typing import Any, TypeVar

from dbt_recluster.exceptions import Interrupted
from dbt_recluster.iceberg.session.jvm import JavaFunctions, SparkSession, is_stopped, java_context, java_list, jvm
from dbt_recluster.text import span

T = TypeVar("T")

# Callback for the merged share of a round's bytes, 0 to 1, and the number of its merged block sets.
MergeProgress = Callable[[float, int], None]

# Seconds between two reports of progress, and before the first one.
PROGRESS_INTERVAL = 0.5
# Seconds to wait until the tasks of a cancelled job have ended.
_LONGEST_WAIT = 30.0
_DESCRIPTION = "spark.job.description"
_TASK = "org.apache.spark.status.api.v1.TaskData"
# What Spark says of tasks whose executor is lost for a reason of its own.
_LOST_NODE = re.compile("unrelated to the running tasks|disassociated")

# The job groups of the main thread; the last one is current.
_of_main_thread: list[tuple[SparkSession, str]] = []
# The outermost block of the main thread that a signal ends.
_current: Interruptible | None = None


@contextmanager
def job_group(spark: SparkSession, group: str) -> Iterator[None]:
    """Run this thread's jobs under ``group``, for :class:`CancellableJobs`; restore the previous group afterwards."""
    groups = _of_main_thread if threading.current_thread() is threading.main_thread() else []
    groups.append((spark, group))
    try:
        with _local_properties(spark, {"spark.jobGroup.id": group, "spark.job.interruptOnCancel": "true"}):
            yield
    finally:
        groups.pop()


def job_description(spark: SparkSession, description: str) -> AbstractContextManager[None]:
    """Describe this thread's jobs in Spark's UI; restore the previous description afterwards."""
    return _local_properties(spark, {_DESCRIPTION: description})


@contextmanager
def _local_properties(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in values}
    for name, value in values.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        with suppress(Exception):  # Spark may be gone, as the error that ends the block says
            for name, old in before.items():
                context.setLocalProperty(name, old)  # type: ignore[arg-type]  # None unsets it


def job_step(spark: SparkSession, step: str) -> AbstractContextManager[None]:
    """Append ``step`` to the description of this thread's jobs."""
    before = spark.sparkContext.getLocalProperty(_DESCRIPTION)
    return job_description(spark, f"{before}: {step}" if before else step)


class CancellableJobs:
    """Spark jobs to cancel, now and later: of a session's group, or of all groups that the main thread is in."""

    def __init__(self, spark: SparkSession | None = None, group: str = "") -> None:
        self.group = group
        self._groups = _of_main_thread if spark is None else [(spark, group)]
        self._closed = threading.Event()

    def cancel(self) -> None:
        """Cancel the jobs until :meth:`close`, from a thread, since a signal handler must not call Java.

        Spark before 4.0 cancels only running jobs, and there is none between two jobs of a merge.
        """
        threading.Thread(target=self._keep_cancelling, name="recluster-cancel", daemon=True).start()

    def close(self) -> None:
        """End the cancellation: no more jobs will come."""
        self._closed.set()

    def _keep_cancelling(self) -> None:
        while not self._closed.is_set():
            with suppress(Exception):  # Spark may go away first
                for spark, group in list(self._groups):
                    spark.sparkContext.cancelJobGroup(group)
            self._closed.wait(0.1)


class Interruptible:
    """A block of code that a signal ends with :class:`Interrupted` between two steps.

    The first signal cancels this thread's Spark jobs, also later ones. A second one raises ``KeyboardInterrupt`` at
    once, which may lose the connection to Spark. Nested blocks, and those in other threads than the main one, do
    nothing. ``spark`` is the session if it runs and the caller has no job group.
    """

    def __init__(self, spark: SparkSession | None = None, signals: Sequence[int] = (signal.SIGINT,)) -> None:
        self._spark, self._signals = spark, signals
        self._stack = ExitStack()
        self._jobs = CancellableJobs()
        self.requested = False

    def __enter__(self) -> Interruptible:
        global _current
        if _current is None and threading.current_thread() is threading.main_thread():
            _current = self
            self._stack.callback(self._jobs.close)
            for number in self._signals:
                if (before := signal.getsignal(number)) not in (None, signal.SIG_IGN):
                    with suppress(ValueError):  # the main thread of a subinterpreter
                        signal.signal(number, self._handle)
                        self._stack.callback(signal.signal, number, before)
            if self._spark is not None:
                self._stack.enter_context(job_group(self._spark, "dbt-recluster"))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Restore the signal handlers; raise Interrupted if a signal arrived."""
        global _current
        if _current is self:
            self._stack.close()
            _current = None
            if self.requested and not isinstance(error, Interrupted):
                raise Interrupted.by(error) from None

    def _handle(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._jobs.cancel()


def stop_if_interrupted(error: BaseException | None = None) -> None:
    """Raise Interrupted if a signal arrived: call it between steps, and with the error of a step that failed."""
    block = current_interruptible()
    if block is not None and block.requested:
        raise Interrupted.by(error) from None


def current_interruptible() -> Interruptible | None:
    """Return the current block of the main thread, or None in any other thread."""
    return _current if threading.current_thread() is threading.main_thread() else None


class RoundJobs:
    """The jobs that write the blocks of one round in turn; ``sizes`` are the bytes of its block sets."""

    def __init__(self, spark: SparkSession, sizes: Sequence[int], progress: MergeProgress | None) -> None:
        self._spark, self._sizes, self._progress = spark, sizes, progress
        self._bytes_before = self._sets_before = 0

    @contextmanager
    def write(self, step: str, tag: str, set_of: Sequence[int], stages: int) -> Iterator[None]:
        """Name the jobs of a block of code by their step, tag them, and report progress while they run.

        ``set_of`` has the block set of each task of the last stage, in order. Each of the ``stages`` counts as the same
        share of the work.
        """
        tasks = Counter(set_of)
        sets, last_tasks = list(tasks), list(accumulate(tasks.values()))
        set_bytes, total = sum(self._sizes[number] for number in sets), max(1, sum(self._sizes))

        def report(share: float) -> None:
            # Spark starts tasks in order, so the first ones end first, give or take a few.
            ended = (share * stages - (stages - 1)) * len(set_of)
            merged_sets = self._sets_before + bisect_right(last_tasks, ended + 1e-6)
            if self._progress is not None:
                self._progress((self._bytes_before + share * set_bytes) / total, merged_sets)

        name = f"{step} of {'sets' if len(sets) > 1 else 'set'} {_numbers(sets)}"
        watch = nullcontext() if self._progress is None else _watched(self._spark, tag, stages, report)
        # The reporting thread must not inherit tag and step, so it starts first; the last report comes afterwards.
        with watch, job_step(self._spark, name):
            self._spark.sparkContext.addJobTag(tag)
            try:
                yield
            finally:
                self._spark.sparkContext.removeJobTag(tag)
        self._bytes_before += set_bytes
        self._sets_before += len(sets)


@contextmanager
def _watched(spark: SparkSession, tag: str, stages: int, report: Callable[[float], None]) -> Iterator[None]:
    """Report progress of the tagged jobs, 0 to 1, until the block ends; 1 unless it fails.

    An error in ``report`` only ends the reports.
    """
    last = 0.0

    def look() -> None:
        nonlocal last
        # Skipped and waiting stages count as 0.
        done = sum(stage.numCompletedTasks() / max(1, stage.numTasks()) for stage in _stages(spark, tag))
        if (share := min(1.0, done / stages)) > last:
            last = share
            report(share)

    with _polled(spark, f"recluster-progress-{tag}", look):
        yield
    with suppress(Exception):
        report(1.0)


@contextmanager
def ended_by_crash(spark: SparkSession, tag: str) -> Iterator[list[str]]:
    """Cancel the tagged jobs when a task of theirs crashes, and yield a list that then has the reason.

    Spark would try the task three times more, each at the cost of an executor if that is killed for its memory.
    """
    reasons: list[str] = []
    store, status = java_context(spark).statusStore(), jvm(spark).org.apache.spark.status.api.v1
    failed, order = java_list(spark, [status.TaskStatus.FAILED]), status.TaskSorting.ID

    def look() -> None:
        for stage in _stages(spark, tag):
            if reasons or not stage.numFailedTasks():
                continue
            tasks = store.taskList(stage.stageId(), stage.currentAttemptId(), 0, 100, order, failed)
            messages = (str(tasks.apply(number).errorMessage().get()) for number in range(tasks.size()))
            if crash := next((text for text in messages if not _LOST_NODE.search(text)), None):
                reasons.append(crash.partition("Reason: ")[2] or crash)
                spark.sparkContext.cancelJobsWithTag(tag)

    with _polled(spark, f"recluster-crash-{tag}", look):
        yield reasons


@contextmanager
def _polled(spark: SparkSession, name: str, look: Callable[[], None]) -> Iterator[None]:
    """Call ``look`` from a thread, until the block ends or an error is raised: the block itself will report that."""
    from pyspark import InheritableThread  # closes its connection to the JVM when it ends

    ended = threading.Event()

    def poll() -> None:
        with suppress(Exception):
            while not ended.wait(PROGRESS_INTERVAL) and not is_stopped(spark):
                look()

    # dbt's loggers find the current node in context variables.
    context = contextvars.copy_context()
    thread = InheritableThread(lambda: context.run(poll))
    thread.daemon = True  # so that Python can exit if the JVM never answers
    thread.name = name
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stages(spark: SparkSession, tag: str) -> Iterator[Any]:
    """Yield what Spark knows of the stages of the tagged jobs."""
    tracker = java_context(spark).statusTracker()
    for job in tracker.getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        for stage in info.get().stageIds() if info.isDefined() else ():
            if (stage_info := tracker.getStageInfo(stage)).isDefined():
                yield stage_info.get()


def _numbers(positions: Sequence[int]) -> str:
    """Write positions as ranges of numbers from 1: ``1 to 3, 5``."""
    runs = groupby(enumerate(sorted(positions)), lambda item: item[1] - item[0])
    spans = ([str(position + 1) for _, position in run] for _, run in runs)
    return ", ".join(span(numbers[0], numbers[-1]) for numbers in spans)


def task_attempts(spark: SparkSession, tag: str) -> list[tuple[int, int]]:
    """Return the index and the id of each attempt of a task that writes, once all have ended; ``tag`` is of their job.

    Raises:
        TimeoutError: Tasks still run.
    """
    context = java_context(spark)
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
