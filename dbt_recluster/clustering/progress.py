"""Progress of a recluster: the start of each round, how far its merge is, and its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from dbt_recluster.iceberg.session.interruption import current_interruptible

# The remaining time is not estimated until this share of a merge is done.
_LEAST_SHARE = 0.05


@dataclass(frozen=True)
class Progress:
    """A round that starts, that is being merged, that is committed, or that failed.

    Attributes:
        table: The table's identifier.
        round: The number of the round, from 1.
        sets: Block sets of the round.
        blocks: Blocks in them.
        bytes: Bytes in them.
        committed: Whether the round is committed.
        seconds: For a committed round its duration; for one that starts, the duration that the table's history
            suggests; for one that is being merged, the time left at its current speed. None if unknown.
        bytes_before: Bytes of the earlier rounds.
        max_bytes: The most bytes to rewrite over all rounds, or None for no limit.
        merged: While a round is being merged, the merged share of its bytes, 0 to 1, by the Spark tasks that have
            ended; otherwise None.
        merged_sets: While a round is being merged, the number of its sets that are merged, give or take one.
        failed: Whether the round ended without a commit; the error says why.
    """

    table: str
    round: int
    sets: int
    blocks: int
    bytes: int
    committed: bool = False
    seconds: float | None = None
    bytes_before: int = 0
    max_bytes: int | None = None
    merged: float | None = None
    merged_sets: int = 0
    failed: bool = False

    @property
    def percent(self) -> int | None:
        """The share of ``max_bytes`` that is spent once this round is committed, or None if there is no limit."""
        return None if self.max_bytes is None else 100 * (self.bytes_before + self.bytes) // self.max_bytes


ProgressCallback = Callable[[Progress], None]


class RoundProgress:
    """Reports the progress of one round to a callback; that of its merge until an interruption of the thread.

    Args:
        start: The round as it starts.
        callback: Receives the progress, or None.
    """

    def __init__(self, start: Progress, callback: ProgressCallback | None) -> None:
        self._start = start
        self._callback = callback
        self._block = current_interruptible()
        self._first_report: tuple[float, float] | None = None

    def started(self) -> None:
        """Report that the round starts."""
        self._report_safely(self._start)

    @property
    def merging(self) -> Callable[[float, int], None] | None:
        """Callback for the progress of the merge, or None."""
        return None if self._callback is None else self._merging

    def _merging(self, share: float, sets: int) -> None:
        if self._block is not None and self._block.requested:
            return
        # The time before the first report went into planning and sampling, and is no measure of what is left.
        now = time.monotonic()
        since, share_then = self._first_report = self._first_report or (now, share)
        done = share - share_then
        left = (now - since) * (1 - share) / done if done >= _LEAST_SHARE else None
        self._report(replace(self._start, merged=share, merged_sets=sets, seconds=left))

    def committed(self, sets: int, blocks: int, rewritten_bytes: int, seconds: float) -> None:
        """Report what was committed; sets that other writers touched are not part of it."""
        end = replace(self._start, sets=sets, blocks=blocks, bytes=rewritten_bytes, seconds=seconds)
        self._report_safely(replace(end, committed=True))

    def failed(self) -> None:
        """Report that the round ended without a commit."""
        self._report_safely(replace(self._start, failed=True))

    def _report(self, progress: Progress) -> None:
        if self._callback is not None:
            self._callback(progress)

    def _report_safely(self, progress: Progress) -> None:
        # A terminal that is gone must not make a committed round look as if it had failed. During a merge an error may
        # surface: it ends the reports of the watching thread.
        with suppress(Exception):
            self._report(progress)
