"""What a recluster tells while it works: the beginning and the end of each round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dbt_recluster.history import speed
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.outcome import ReclusterReport, Round
from dbt_recluster.planner import Plan


@dataclass(frozen=True)
class Progress:
    """A round that begins, or one that is committed.

    Attributes:
        table: The table's identifier.
        round: The number of the round, from 1.
        sets: Block sets of the round.
        blocks: Blocks they hold.
        bytes: Bytes they hold.
        committed: Whether it is committed; else it begins.
        seconds: For a round that is committed what it took, else what the table's own history makes expect, None
            where it tells nothing.
        bytes_before: Bytes of the rounds before.
        max_bytes: The most bytes to rewrite in all rounds, None where there is no limit.
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

    @property
    def percent(self) -> int | None:
        """How much of ``max_bytes`` is spent once this round is committed, None where there is no limit."""
        return None if self.max_bytes is None else 100 * (self.bytes_before + self.bytes) // self.max_bytes


Listener = Callable[[Progress], None]


def teller(
    listener: Listener | None, table: IcebergTable, report: ReclusterReport, chosen: Plan, budget: int | None
) -> Callable[[Round | None], None]:
    """Return what tells ``listener`` that the next round begins (None) and what it came to."""
    if listener is None:
        return _nothing
    rate = speed(table)
    begins = Progress(
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

    def tell(done: Round | None) -> None:
        if done is None:
            listener(begins)
        else:
            # Sets that another writer touched were left out.
            ends = replace(begins, sets=done.sets, blocks=done.blocks_in, bytes=done.bytes_in)
            listener(replace(ends, committed=True, seconds=done.seconds))

    return tell


def _nothing(_: Round | None) -> None:
    """Nobody listens."""
