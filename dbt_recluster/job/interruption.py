"""Ctrl-C and SIGTERM: Spark's jobs are cancelled, and a merge ends as after any failure of Spark."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dbt_recluster.iceberg.jobs import CancellableJobs, job_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GROUP = "dbt-recluster"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def cancel_on_signals(spark: SparkSession) -> Iterator[threading.Event]:
    """Cancel this thread's Spark jobs at the first signal; at the second one, raise KeyboardInterrupt.

    pyspark's handler calls Java, and Python's raises, in the middle of another call to Java: both lose the connection.

    Args:
        spark: The session.

    Yields:
        An event that is set at the first signal.
    """
    interrupted, jobs = threading.Event(), CancellableJobs(spark, _GROUP)

    def handle(*_: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        jobs.cancel()

    is_main = threading.current_thread() is threading.main_thread()  # others cannot handle signals
    before = {number: signal.signal(number, handle) for number in _SIGNALS} if is_main else {}
    try:
        with job_group(spark, jobs.group):
            yield interrupted
    finally:
        jobs.close()
        for number, handler in before.items():
            signal.signal(number, handler)
