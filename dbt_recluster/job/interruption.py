"""Ctrl-C and SIGTERM: Spark's jobs are cancelled, and a merge ends as after any failure of Spark."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dbt_recluster.iceberg.jobs import cancel_jobs, job_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GROUP = "dbt-recluster"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds between two cancellations.
_CANCEL_INTERVAL = 0.1


@contextmanager
def cancel_on_signals(spark: SparkSession) -> Iterator[threading.Event]:
    """Cancel this thread's Spark jobs at the first signal; at the second one, raise KeyboardInterrupt.

    pyspark's handler calls Java, and Python's raises, in the middle of another call to Java: both lose the connection.

    Args:
        spark: The session.

    Yields:
        An event that is set at the first signal.
    """
    interrupted, ended = threading.Event(), threading.Event()

    def keep_cancelling() -> None:
        # Spark before 4.0 cancels only running jobs, and between two jobs of a merge there is none.
        while not ended.wait(_CANCEL_INTERVAL):
            with suppress(Exception):
                cancel_jobs(spark, _GROUP)

    def handle(*_: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        threading.Thread(target=keep_cancelling, name="recluster-cancel", daemon=True).start()

    is_main = threading.current_thread() is threading.main_thread()  # others cannot handle signals
    before = {number: signal.signal(number, handle) for number in _SIGNALS} if is_main else {}
    try:
        with job_group(spark, _GROUP):
            yield interrupted
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)
