"""The progress of a recluster as people see it: a line that goes away again on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TextIO

from dbt_recluster.progress import Progress
from dbt_recluster.report.text import size


class ProgressLines:
    """Shows a recluster's progress; give it to ``recluster`` as its listener.

    Args:
        log: Takes a message and its arguments, as dbt's loggers do (``{}`` for each): its JSON log keeps
            the figures beside the text.
        terminal: Where a round that is under way is shown until it ends, when this is a terminal.
    """

    def __init__(self, log: Callable[..., Any], terminal: TextIO | None = None) -> None:
        self._log = log
        self._terminal = terminal if terminal is not None and terminal.isatty() else None

    def __call__(self, progress: Progress) -> None:
        """Show that a round begins, or what it came to."""
        message, facts = describe(progress)
        if self._terminal is not None:
            self._terminal.write("\r\x1b[K" + ("" if progress.committed else message.format(*facts)))
            self._terminal.flush()
        if self._terminal is None or progress.committed:
            self._log(message, *facts)


def describe(progress: Progress) -> tuple[str, tuple[str, ...]]:
    """Return a message and the figures that stand in its ``{}``."""
    message = "{}: round {} " + ("merged" if progress.committed else "merges") + " {} blocks in {} sets, {}"
    facts: list[Any] = [progress.table, progress.round, progress.blocks, progress.sets, size(progress.bytes)]
    if progress.committed:
        message += ", in {} s"
        facts.append(f"{progress.seconds or 0:.1f}")
    elif progress.seconds is not None:
        message += ", about {} s by this table's history"
        facts.append(f"{progress.seconds:.0f}")
    if progress.percent is not None:
        message += ", {} % of the bytes allowed"
        facts.append(progress.percent)
    # As text: dbt's log events hold every number as a float.
    return message, tuple(map(str, facts))
