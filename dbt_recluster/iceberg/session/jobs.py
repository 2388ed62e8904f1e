"""The Spark jobs of a thread: their names in Spark's UI, their cancellation, and the progress of a merge.

Spark's status tracker finds jobs by group from Python, but dbt gives one group to all jobs of a connection. A tag of
our own tells the jobs of one write apart.
"""

from __future__ import annotations

import contextvars
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.session.jvm import is_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Receives the merged share of a round's bytes, 0 to 1, and the number of its block sets that are merged.
MergeProgress = Callable[[float, int], None]

# Seconds between two looks at a running job. The first look comes after one interval, so short jobs report nothing.
PROGRESS_INTERVAL = 0.5
# Seconds between two cancellations of a group's jobs.
_CANCEL_INTERVAL = 0.1

_GROUP = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"
_INTERRUPT = "spark.job.interruptOnCancel"

# The job groups of the main thread, of which the last one is that of the next job.
_of_main_thread: list[tuple[SparkSession, str]] = []


@contextmanager
def job_group(spark: SparkSession, group: str) -> Iterator[None]:
    """Run this thread's jobs under ``group``, for :func:`cancel_jobs`; restore the previous group afterwards."""
    groups = _of_main_thread if threading.current_thread() is threading.main_thread() else []
    groups.append((spark, group))
    try:
        with _local_properties(spark, {_GROUP: group, _INTERRUPT: "true"}):
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
        with suppress(Exception):  # Spark may have gone away, and the error that ends the block says so
            for name, old in before.items():
                context.setLocalProperty(name, old)  # type: ignore[arg-type]  # None unsets it


def job_step(spark: SparkSession, step: str) -> AbstractContextManager[None]:
    """Append ``step`` to the description of this thread's jobs."""
    before = spark.sparkContext.getLocalProperty(_DESCRIPTION)
    return job_description(spark, f"{before}: {step}" if before else step)


def cancel_jobs(spark: SparkSession, group: str) -> None:
    """Cancel the running jobs of ``group``; does nothing if Spark has stopped."""
    if not is_stopped(spark):
        spark.sparkContext.cancelJobGroup(group)


class Cancellation:
    """Cancels the jobs of a piece of work, several of which may follow one another.

    Args:
        groups: Their sessions and groups; None are those that the main thread has at the time.
    """

    def __init__(self, groups: Sequence[tuple[SparkSession, str]] | None = None) -> None:
        self._groups = _of_main_thread if groups is None else groups
        self._closed = threading.Event()

    def cancel(self) -> None:
        """Cancel them until :meth:`close`. This calls no Java, so that a signal handler may call it.

        Spark before 4.0 cancels only running jobs, and between two jobs of a merge there is none.
        """
        threading.Thread(target=self._keep_cancelling, name="recluster-cancel", daemon=True).start()

    def close(self) -> None:
        """No more jobs will come."""
        self._closed.set()

    def _keep_cancelling(self) -> None:
        while not self._closed.is_set():
            with suppress(Exception):  # Spark may go away first
                for spark, group in list(self._groups):
                    cancel_jobs(spark, group)
            self._closed.wait(_CANCEL_INTERVAL)


class CancellableJobs(Cancellation):
    """The Spark jobs of a session that belong to a group (:func:`job_group`)."""

    def __init__(self, spark: SparkSession, group: str) -> None:
        super().__init__([(spark, group)])
        self.group = group


class RoundJobs:
    """The jobs that write the blocks of one round, one after the other; ``sizes`` are the bytes of its block sets."""

    def __init__(self, spark: SparkSession, sizes: Sequence[int], progress: MergeProgress | None) -> None:
        self._spark = spark
        self._sizes = sizes
        self._progress = progress
        self._bytes_before = 0
        self._sets_before = 0

    @contextmanager
    def write(self, step: str, tag: str, set_of: Sequence[int], stages: int) -> Iterator[None]:
        """Name and tag the jobs of a block of code, and report progress while they run.

        Args:
            step: What the jobs do, for Spark's UI.
            tag: The tag of the jobs.
            set_of: For each task of the last stage, in order, the block set that it writes a block of.
            stages: Stages of the jobs; each counts as the same share of the work.
        """
        tasks = Counter(set_of)
        sets, last_tasks = list(tasks), list(accumulate(tasks.values()))
        own, total = sum(self._sizes[number] for number in sets), max(1, sum(self._sizes))

        def report(share: float) -> None:
            # Spark starts tasks in order, so those that have ended are the first ones, give or take a few.
            ended = (share * stages - (stages - 1)) * len(set_of)
            merged_sets = self._sets_before + bisect_right(last_tasks, ended + 1e-6)
            if self._progress is not None:
                self._progress((self._bytes_before + share * own) / total, merged_sets)

        name = f"{step} of {'sets' if len(sets) > 1 else 'set'} {_numbers(sets)}"
        watch = nullcontext() if self._progress is None else _watched(self._spark, tag, stages, report)
        with job_step(self._spark, name):
            self._spark.sparkContext.addJobTag(tag)
            try:
                with watch:
                    yield
            finally:
                self._spark.sparkContext.removeJobTag(tag)
        self._bytes_before += own
        self._sets_before += len(sets)


@contextmanager
def _watched(spark: SparkSession, tag: str, stages: int, report: Callable[[float], None]) -> Iterator[None]:
    """Report the share of the tagged jobs that is done, from a thread that ends with this block; 1 if all went well.

    An error in ``report`` ends the reports and nothing else.
    """
    from pyspark import InheritableThread  # closes its connection to the JVM when it ends

    ended = threading.Event()

    def watch() -> None:
        last = 0.0
        while not ended.wait(PROGRESS_INTERVAL):
            try:
                if is_stopped(spark):
                    return
                share = min(1.0, _stages_done(spark, tag) / stages)
                if share > last and not ended.is_set():
                    last = share
                    report(share)
            except Exception:
                return  # the merge itself will report what is wrong

    # dbt's loggers find the current node in context variables.
    context = contextvars.copy_context()
    thread = InheritableThread(lambda: context.run(watch))
    thread.daemon = True  # so that Python can exit if the JVM never answers
    thread.name = f"recluster-progress-{tag}"
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    with suppress(Exception):
        report(1.0)


def _stages_done(spark: SparkSession, tag: str) -> float:
    """Return how many stages' worth of tasks has ended; skipped and waiting stages count as 0."""
    context: Any = spark.sparkContext._jsc
    tracker = context.sc().statusTracker()
    done = 0.0
    for job in tracker.getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        for stage in info.get().stageIds() if info.isDefined() else ():
            tasks = tracker.getStageInfo(stage)
            if tasks.isDefined() and tasks.get().numTasks():
                done += tasks.get().numCompletedTasks() / tasks.get().numTasks()
    return done


def _numbers(positions: Sequence[int]) -> str:
    """Write positions as numbers from 1, consecutive ones together: ``1 to 3, 5``."""
    spans: list[list[int]] = []
    for number in sorted(position + 1 for position in positions):
        if spans and spans[-1][1] + 1 == number:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans)
