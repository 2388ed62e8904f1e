"""The progress of a recluster as people see it: a line that goes away again on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any, TextIO

from dbt_recluster.progress import Progress
from dbt_recluster.report.text import size

# Seconds between two plain lines of one round.
_SELDOM = 10.0


class ProgressLines:
    """Shows a recluster's progress; give it to ``recluster`` as its listener.

    Args:
        log: Takes a message and its arguments, as dbt's loggers do (``{}`` for each): its JSON log keeps
            the figures beside the text.
        terminal: Where a round that is under way is shown until it ends, when this is a terminal.
        clock: Tells the time in seconds.
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
        """Show that a round begins, how far it is, or what it came to."""
        message, facts = describe(progress)
        ended = progress.committed or progress.failed
        if self._terminal is not None:
            # One that wraps could not be taken back.
            width = shutil.get_terminal_size().columns - 1
            self._terminal.write("\r\x1b[K" + ("" if ended else message.format(*facts)[:width]))
            self._terminal.flush()
        if progress.failed:
            return
        if self._terminal is not None:
            if progress.committed:
                self._log(message, *facts)
        elif progress.merged is None or self._clock() - self._logged >= _SELDOM:
            self._logged = self._clock()
            self._log(message, *facts)


def describe(progress: Progress) -> tuple[str, tuple[str, ...]]:
    """Return a message and the figures that stand in its ``{}``."""
    message, facts = _begun_or_ended(progress) if progress.merged is None else _under_way(progress)
    # As text: dbt's log events hold every number as a float.
    return message, tuple(map(str, facts))


def _begun_or_ended(progress: Progress) -> tuple[str, list[Any]]:
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


def _under_way(progress: Progress) -> tuple[str, list[Any]]:
    # What changes comes first: a narrow terminal cuts the end off.
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
