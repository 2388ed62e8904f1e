"""Ctrl-C and SIGTERM in the main thread: cancel its Spark jobs and end the work between two calls to Java.

pyspark's signal handler calls Java, and Python's raises, in the middle of a call to Java; both lose the connection.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from dbt_recluster.exceptions import Interrupted
from dbt_recluster.iceberg.session.jobs import CancellableJobs, job_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GROUP = "dbt-recluster"
# The outermost one of the main thread.
_current: Interruptible | None = None


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
        """Install the signal handlers."""
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
                self._stack.enter_context(job_group(self._spark, _GROUP))
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
