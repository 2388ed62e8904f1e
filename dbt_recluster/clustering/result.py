"""Results of a recluster: its progress, its rounds, and the plan of a dry run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from dbt_recluster.iceberg.session.jobs import current_interruptible
from dbt_recluster.planner import Reason

# A recluster with `final` gives up after this many rounds.
MAX_ROUNDS = 100
# Sums over all rounds.
_TOTALS = ("blocks_in", "blocks_out", "bytes_in", "bytes_out", "rows")


@dataclass(frozen=True)
class Result:
    """The base of results, whose fields are figures."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return asdict(self, dict_factory=lambda pairs: {name: _as_json(value) for name, value in pairs})


def _as_json(value: Any) -> Any:
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value


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
    """Reports one round to a callback; its merge only until an interruption of the thread."""

    def __init__(self, start: Progress, callback: ProgressCallback | None) -> None:
        self._start, self._callback, self._block = start, callback, current_interruptible()
        self._first_report: tuple[float, float] | None = None

    def report(self, **changes: Any) -> None:
        """Report the round with its changes since it started."""
        # A closed terminal must not make a committed round look failed.
        with suppress(Exception):
            if self._callback is not None:
                self._callback(replace(self._start, **changes))

    @property
    def merging(self) -> Callable[[float, int], None] | None:
        """Callback for the progress of the merge, or None. Its errors end the thread that watches the merge."""
        callback = self._callback
        if callback is None:
            return None

        def report(share: float, sets: int) -> None:
            if self._block is not None and self._block.requested:
                return
            # Up to the first report, the time went into planning and sampling.
            now = time.monotonic()
            since, share_then = self._first_report = self._first_report or (now, share)
            done = share - share_then
            left = (now - since) * (1 - share) / done if done >= 0.05 else None
            callback(replace(self._start, merged=share, merged_sets=sets, seconds=left))

        return report


@dataclass(frozen=True)
class Round:
    """A committed round: plan, merge, commit.

    Attributes:
        sets: Block sets merged.
        blocks_in, blocks_out: Blocks read and written.
        bytes_in, bytes_out: Their bytes.
        rows: Rows rewritten.
        seconds: Time that the round took.
        snapshot_ids: Its snapshots.
        conflicts: How often its commit was attempted again because another writer was faster.
        orphans: Files of sets that were left out and could not be deleted.
        reasons: Of its plan.
    """

    sets: int
    blocks_in: int
    blocks_out: int
    bytes_in: int
    bytes_out: int
    rows: int
    seconds: float
    snapshot_ids: tuple[int, ...]
    conflicts: int = 0
    orphans: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class PlannedSet:
    """A block set of a plan.

    Attributes:
        level: The greatest level of its blocks.
        new_level: The level of the blocks that the merge will write.
        blocks: Blocks in it.
        expected_blocks: Blocks that the merge will write.
        rows: Rows in it.
        bytes: Bytes in it.
        lower, upper: The least and the greatest value of each item of the key.
        depth: The most of its blocks over one key.
        expected_depth: The greatest depth over its keys after the round.
    """

    level: int
    new_level: int
    blocks: int
    expected_blocks: int
    rows: int
    bytes: int
    lower: str
    upper: str
    depth: int
    expected_depth: int


@dataclass(frozen=True)
class RewritePlan:
    """The plan of a round.

    Attributes:
        sets: Its block sets, best first.
        bytes: Bytes in them.
        rows: Rows in them.
        expected_depth: The depth that is compared with the threshold, after the round, by a simulation that only knows
            bounds and row counts.
        estimated_seconds: Duration at the speed of this table's own rounds, or None if there were none.
        key_read_bytes: Bytes that a read of one key opens, estimated as in ``clustering_information``; None if the
            table writes no Parquet.
        expected_key_read_bytes: The same after the round.
        writer: What will write the blocks, as far as it is known before, as in ``clustering_history``.
    """

    sets: tuple[PlannedSet, ...]
    bytes: int
    rows: int
    expected_depth: float
    estimated_seconds: float | None
    key_read_bytes: int | None = None
    expected_key_read_bytes: int | None = None
    writer: str = ""


def _total(name: str) -> property:
    """Return a property that sums up a figure over all rounds."""
    return property(lambda result: sum(getattr(done, name) for done in result.rounds))


@dataclass
class ReclusterResult:
    """The result of a recluster, or of its dry run.

    Attributes:
        table: The table's identifier.
        cluster_key: The key, as users write it.
        rounds: The committed rounds, in order; in JSON their number.
        blocks_in, blocks_out: Blocks rewritten and written, over all rounds.
        bytes_in, bytes_out: Their bytes.
        rows: Rows rewritten, over all rounds.
        blocks_before, blocks_after: Blocks of the table.
        depth_before, depth_after: The depth that is compared with the threshold, in the partition that is worst by it:
            the average depth, or the read depth, as far as merges could reduce it without limits. Of the whole table,
            or of the partitions that have changed. None if nothing was planned.
        average_depth_before, average_depth_after: Average depth of the blocks that ``where`` admits, by the bounds that
            queries see, touching ones included; None if these were not all read.
        read_depth_before, read_depth_after: Their read depth, by the same bounds, if that decides.
        key_read_bytes: Bytes that a read of one key opens in the end, estimated as in ``clustering_information``;
            None where the depths are, or if the table writes no Parquet.
        threshold: The greatest depth allowed; of a share of the blocks, that of the worst partition. None if nothing
            was planned.
        verdict: As in the overview; empty if nothing was planned.
        waits_for: What would meet a condition of ``recluster_after``, if none was met; or None.
        conflicts: How often work was planned or committed again because another writer was faster.
        seconds: Wall time of the whole call.
        reason: Why it ended.
        purpose: What the merges were for, besides a depth that they have lowered; empty if nothing else.
        cause: The reason without the depth comparison.
        held: With ``dry_run``, what keeps builds, or a suspension everybody, from reclustering it now; or None.
        condition_met: The condition that was met, of ``recluster_after`` and ``recluster_when``, or None.
        limited: Whether the table is not well clustered and a limit such as ``max_bytes`` kept it from being.
        suspended: When reclustering was suspended, if that ended it.
        loss: Bytes a day by which the past week's reclustering cost more than it saved reads, or None.
        plan: With ``dry_run``, the plan of the next round; JSON has it only if there is one.
        orphans: Files written for blocks that another writer then changed, which could not be deleted.
        warnings: What the user should know although everything went well.
        branch: The branch, or None for main.
    """

    table: str
    cluster_key: str
    rounds: list[Round] = field(default_factory=list)
    blocks_before: int = 0
    blocks_after: int = 0
    depth_before: float | None = None
    depth_after: float | None = None
    average_depth_before: float | None = None
    average_depth_after: float | None = None
    read_depth_before: float | None = None
    read_depth_after: float | None = None
    key_read_bytes: int | None = None
    threshold: float | None = None
    verdict: str = ""
    waits_for: str | None = None
    conflicts: int = 0
    seconds: float = 0.0
    reason: str = ""
    purpose: str = ""
    cause: str = ""
    held: str | None = None
    condition_met: str | None = None
    limited: bool = False
    suspended: str | None = None
    loss: int | None = None
    plan: RewritePlan | None = None
    orphans: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    branch: str | None = None

    blocks_in, blocks_out, bytes_in, bytes_out, rows = map(_total, _TOTALS)

    @classmethod
    def from_dict(cls, figures: Mapping[str, Any]) -> ReclusterResult:
        """Read what :meth:`as_dict` wrote; the first round gets the totals of all.

        Raises:
            ValueError: The table or the key is missing, or a value has the wrong type or range.
        """
        kinds = {f.name: str(f.type) for f in fields(cls) if f.name not in ("rounds", "plan")}
        for name, kind in {**kinds, **dict.fromkeys((*_TOTALS, "rounds"), "int")}.items():
            if name in figures and not _is_a(kind, figures[name]):
                raise ValueError(f"{name} is {figures[name]!r:.40}, which is not {kind}")
        if missing := {"table", "cluster_key"} - figures.keys():
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        if (rounds := int(figures.get("rounds", 0))) > MAX_ROUNDS:
            raise ValueError(f"rounds is {rounds}, and a recluster has at most {MAX_ROUNDS}")
        result = cls(**{name: figures[name] for name in kinds if name in figures})
        for number in range(rounds):
            sums: dict[str, Any] = {name: 0 if number else int(figures.get(name, 0)) for name in _TOTALS}
            result.rounds.append(Round(sets=0, **sums, seconds=0.0, snapshot_ids=()))
        return result

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        names = [f.name for f in fields(self) if f.name != "plan"]
        figures = {name: getattr(self, name) for name in ("table", "cluster_key", "rounds", *_TOTALS, *names)}
        figures |= {"rounds": len(self.rounds), "seconds": round(self.seconds, 3)}
        return {**figures, "plan": asdict(self.plan)} if self.plan else figures


def _is_a(kind: str, value: Any) -> bool:
    if value is None:
        return kind.endswith("None")
    if kind.startswith(("int", "float")):
        return type(value) in (int, float) and 0 <= value < 2**62
    if kind.startswith("list"):
        return isinstance(value, list) and all(isinstance(text, str) for text in value)
    return isinstance(value, bool if kind == "bool" else str)
