"""Tell, while a Spark job runs, how many of its tasks have ended."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.jvm import is_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds between two looks. The first comes after that long, so a short job is never looked at.
INTERVAL = 0.5

Told = Callable[[float], None]


@contextmanager
def task_progress(spark: SparkSession, tag: str, stages: int, told: Told | None) -> Iterator[None]:
    """Tell how much of the jobs with ``tag`` is done, until the block ends, and 1 when it ends well.

    Args:
        spark: The session.
        tag: The tag that the jobs carry (:func:`dbt_recluster.iceberg.jobs.job_tag`).
        stages: How many stages they run, each counted as the same share of the work.
        told: Takes the share of the work that is done, which never falls. Called from a thread of its own; that
            thread has ended when this returns. An error in it ends the telling and nothing else. None tells nobody.
    """
    if told is None:
        yield
        return
    from pyspark import InheritableThread  # closes its connection to the JVM when it ends

    ended = threading.Event()
    # dbt's loggers keep what they know of the node in context variables.
    context = contextvars.copy_context()
    thread = InheritableThread(lambda: context.run(_watch, spark, tag, stages, told, ended))
    thread.daemon = True  # should the JVM never answer, Python can still exit
    thread.name = f"recluster-progress-{tag}"
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    with suppress(Exception):
        told(1.0)


def _watch(spark: SparkSession, tag: str, stages: int, told: Told, ended: threading.Event) -> None:
    last = 0.0
    while not ended.wait(INTERVAL):
        try:
            if is_stopped(spark):
                return
            share = min(1.0, _stages_done(spark, tag) / stages)
            if share > last and not ended.is_set():
                last = share
                told(share)
        except Exception:
            return  # the merge itself tells what is wrong


def _stages_done(spark: SparkSession, tag: str) -> float:
    """Return how many stages' worth of tasks has ended; a stage that is skipped or waits counts nothing."""
    # Python's tracker finds jobs by their group only, and dbt gives one group to all jobs of a connection.
    context: Any = spark.sparkContext._jsc
    tracker = context.sc().statusTracker()
    done = 0.0
    for job in tracker.getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        for stage in info.get().stageIds() if info.isDefined() else ():
            found = tracker.getStageInfo(stage)
            if found.isDefined() and found.get().numTasks():
                done += found.get().numCompletedTasks() / found.get().numTasks()
    return done
