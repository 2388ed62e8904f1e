"""Ctrl-C and SIGTERM in the main thread: its Spark jobs are cancelled, and the work ends between two calls to Java.

pyspark's handler calls Java, and Python's raises, in the middle of another call to Java: both lose the connection.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import Interrupted
from dbt_recluster.iceberg.session.jobs import Cancellation, job_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GROUP = "dbt-recluster"
# The outermost block of the main thread.
_current: Interruptible | None = None


class Interruptible:
    """A block of code that ends with :class:`Interrupted` after a signal, at a place where nothing is half done.

    The first signal cancels the Spark jobs of this thread, those that follow included; a second one raises
    ``KeyboardInterrupt`` at once, which may lose the connection to Spark. Of nested blocks the outermost one counts. In
    other threads than the main one, which no signal reaches, this does nothing.

    Args:
        spark: The session, if it runs already and the caller has no job group of its own.
        signals: The signals to handle.
    """

    def __init__(self, spark: SparkSession | None = None, signals: Sequence[int] = (signal.SIGINT,)) -> None:
        self._spark = spark
        self._signals = signals
        self._before: dict[int, Any] = {}
        self._stack = ExitStack()
        self._jobs = Cancellation()
        self.requested = False

    def __enter__(self) -> Interruptible:
        """Begin to handle signals."""
        global _current
        if _current is None and threading.current_thread() is threading.main_thread():
            _current = self
            for number in self._signals:
                if (before := signal.getsignal(number)) not in (None, signal.SIG_IGN):
                    with suppress(ValueError):  # the main thread of a subinterpreter
                        self._before[number] = signal.signal(number, self._handle) or before
            if self._spark is not None:
                self._stack.enter_context(job_group(self._spark, _GROUP))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Handle signals as before; raise Interrupted if one came, whatever became of the block."""
        global _current
        if _current is not self:
            return
        self._stack.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        _current = None
        self._jobs.close()
        if self.requested and not isinstance(error, Interrupted):
            raise Interrupted.by(error) from None

    def _handle(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._jobs.cancel()


def stop_if_interrupted(error: BaseException | None = None) -> None:
    """Raise Interrupted if a signal came: call it between steps, and with the error where one has failed.

    The error may name files that are left behind.
    """
    block = current_interruptible()
    if block is not None and block.requested:
        raise Interrupted.by(error) from None


def current_interruptible() -> Interruptible | None:
    """Return the block that this thread works in, or None if no signal reaches it."""
    return _current if threading.current_thread() is threading.main_thread() else None
