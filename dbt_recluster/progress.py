"""What a recluster tells while it works: the beginning of each round, how far its merge is, and its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from dbt_recluster.history import speed
from dbt_recluster.iceberg.round_jobs import RoundTold
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.outcome import ReclusterReport, Round
from dbt_recluster.planner import Plan

# Before that much more is done than at the first look, its time says little of how long the rest takes.
_TELLING_SHARE = 0.05


@dataclass(frozen=True)
class Progress:
    """A round that begins, one whose merge is under way, or one that is committed.

    Attributes:
        table: The table's identifier.
        round: The number of the round, from 1.
        sets: Block sets of the round.
        blocks: Blocks they hold.
        bytes: Bytes they hold.
        committed: Whether it is committed; else it begins or is under way.
        seconds: For a round that is committed what it took, for one that begins what the table's own history makes
            expect, for one that is under way what is left at its own speed; None where that is not known.
        bytes_before: Bytes of the rounds before.
        max_bytes: The most bytes to rewrite in all rounds, None where there is no limit.
        merged: For a round that is under way, the share of its bytes that is merged, by the Spark tasks that have
            ended, 0 to 1; else None.
        merged_sets: For a round that is under way, how many of its sets are merged, one more or less.
        failed: Whether it ended without a commit; the error tells why.
    """

    table: str
    round: int
    sets: int
    blocks: int
    bytes: int
    committed: bool
    seconds: float | None
    bytes_before: int = 0
    max_bytes: int | None = None
    merged: float | None = None
    merged_sets: int = 0
    failed: bool = False

    @property
    def percent(self) -> int | None:
        """How much of ``max_bytes`` is spent once this round is committed, None where there is no limit."""
        return None if self.max_bytes is None else 100 * (self.bytes_before + self.bytes) // self.max_bytes


Listener = Callable[[Progress], None]


class Teller:
    """Tells a listener of the next round.

    Args:
        listener: Who is told; None is nobody.
        table: The table.
        report: The rounds before.
        chosen: What the round merges.
        budget: The most bytes to rewrite in all rounds.
    """

    def __init__(
        self,
        listener: Listener | None,
        table: IcebergTable,
        report: ReclusterReport,
        chosen: Plan,
        budget: int | None,
    ) -> None:
        self._listener = listener
        self._first: tuple[float, float] | None = None
        rate = None if listener is None else speed(table)
        self._round = Progress(
            table=report.table,
            round=len(report.rounds) + 1,
            sets=len(chosen.tasks),
            blocks=sum(len(task.blocks) for task in chosen.tasks),
            bytes=chosen.bytes,
            committed=False,
            seconds=None if rate is None else chosen.bytes / rate,
            bytes_before=report.bytes_in,
            max_bytes=budget,
        )

    def begins(self) -> None:
        """Tell that the round begins."""
        self._tell_safely(self._round)

    @property
    def under_way(self) -> RoundTold | None:
        """What takes how much is merged, None where nobody wants to know."""
        return None if self._listener is None else self._under_way

    def _under_way(self, share: float, sets: int) -> None:
        # From the first look on: what came before it, planning and choosing where to cut, is no measure of the rest.
        now = time.monotonic()
        since, share_then = self._first = self._first or (now, share)
        done = share - share_then
        left = (now - since) * (1 - share) / done if done >= _TELLING_SHARE else None
        self._tell(replace(self._round, merged=share, merged_sets=sets, seconds=left))

    def ends(self, done: Round) -> None:
        """Tell what the round came to; sets that another writer touched were left out."""
        ends = replace(self._round, sets=done.sets, blocks=done.blocks_in, bytes=done.bytes_in)
        self._tell_safely(replace(ends, committed=True, seconds=done.seconds))

    def fails(self) -> None:
        """Tell that the round ended without a commit."""
        self._tell_safely(replace(self._round, failed=True))

    def _tell(self, progress: Progress) -> None:
        if self._listener is not None:
            self._listener(progress)

    def _tell_safely(self, progress: Progress) -> None:
        # A terminal that is gone must not make a round that was committed look as if it were not. What is told while
        # a merge is under way may fail: the watching thread then tells no more.
        with suppress(Exception):
            self._tell(progress)
