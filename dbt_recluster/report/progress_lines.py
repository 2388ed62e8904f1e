"""The progress of a recluster: one line that is overwritten on a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any, TextIO

from dbt_recluster.clustering.result import Progress
from dbt_recluster.text import size

# Seconds between two plain lines of one round.
_INTERVAL = 10.0


class ProgressLines:
    """A progress callback for ``recluster``.

    Args:
        log: Takes a message with ``{}`` placeholders and their values, like dbt's loggers, whose JSON log keeps the
            values.
        terminal: Shows the current round until it ends, if this is a terminal.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        log: Callable[..., Any],
        terminal: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._terminal = terminal if terminal is not None and terminal.isatty() else None
        self._clock = clock
        self._logged = 0.0

    def __call__(self, progress: Progress) -> None:
        """Show a round that starts, is being merged, or has ended."""
        message, facts = describe(progress)
        ended = progress.committed or progress.failed
        if self._terminal is not None:
            # A line that wraps could not be overwritten.
            width = shutil.get_terminal_size().columns - 1
            self._terminal.write("\r\x1b[K" + ("" if ended else message.format(*facts)[:width]))
            self._terminal.flush()
        if progress.failed:
            return
        if self._terminal is not None:
            if progress.committed:
                self._log(message, *facts)
        elif progress.merged is None or self._clock() - self._logged >= _INTERVAL:
            self._logged = self._clock()
            self._log(message, *facts)


def describe(progress: Progress) -> tuple[str, tuple[str, ...]]:
    """Return a message and the values of its ``{}`` placeholders."""
    message, facts = _started_or_ended(progress) if progress.merged is None else _merging(progress)
    # Strings, because dbt's log events turn every number into a float.
    return message, tuple(map(str, facts))


def _started_or_ended(progress: Progress) -> tuple[str, list[Any]]:
    verb = "merged" if progress.committed else "merges"
    blocks, sets = _plural(progress.blocks), _plural(progress.sets)
    message = f"{{}}: round {{}} {verb} {{}} block{blocks} in {{}} set{sets}, {{}}"
    facts = [progress.table, progress.round, progress.blocks, progress.sets, size(progress.bytes)]
    if progress.committed:
        message += ", in {} s"
        facts.append(f"{progress.seconds or 0:.1f}")
    elif progress.seconds is not None:
        message += ", about {} s by this table's history"
        facts.append(f"{progress.seconds:.0f}")
    if progress.percent is not None:
        message += ", {} % of the bytes allowed"
        facts.append(progress.percent)
    return message, facts


def _merging(progress: Progress) -> tuple[str, list[Any]]:
    # A narrow terminal cuts the end off, so the changing values come first.
    message = "{}: round {}, {} % done"
    facts = [progress.table, progress.round, int(100 * (progress.merged or 0))]
    if progress.sets > 1:
        message += " ({} of {} sets)"
        facts += [progress.merged_sets, progress.sets]
    if progress.seconds is not None:
        message += ", about {} s left"
        facts.append(f"{progress.seconds:.0f}")
    return message + f": {{}} block{_plural(progress.blocks)}, {{}}", [
        *facts,
        progress.blocks,
        size(progress.bytes),
    ]


def _plural(count: int) -> str:
    return "" if count == 1 else "s"
