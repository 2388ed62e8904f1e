"""The past week of a table: other writers' commits replayed by blocks' bounds, and the threshold by loads and reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.information import read_costs_of
from dbt_recluster.clustering.options import (
    AUTO,
    ReclusterOptions,
    parse_iso_time,
    parse_moment,
    parse_number,
)
from dbt_recluster.clustering.result import MAX_ROUNDS
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.metadata.block_metadata import (
    BlockMetadata,
    IntArray,
    read_blocks_added,
    removed_paths,
)
from dbt_recluster.iceberg.recorded_levels import levels_and_runs
from dbt_recluster.iceberg.table_properties import AUTO_DEPTH
from dbt_recluster.planner import Blocks, Policy, best_threshold, costs_by_threshold, relative_rewriting
from dbt_recluster.planner.planning import simulate_rounds

DAYS = 7
_START_OF_TIME = datetime.min.replace(tzinfo=timezone.utc)
# The origin of a block that a simulated merge wrote.
_MERGED = -1


class PastWeek:
    """The commits of a table in the seven days until ``now``, as far as it has their snapshots, and their replay."""

    def __init__(self, table: ClusteredTable, policy: Policy, now: datetime | None = None) -> None:
        self._table, self._policy = table, policy
        self.now = datetime.now(timezone.utc) if now is None else parse_moment("now", now)
        snapshots = table.snapshots()
        self.parents = {snapshot.id: snapshot.parent for snapshot in snapshots}
        since = self.now - min(timedelta(days=DAYS), self.now - _START_OF_TIME)
        entries = [entry for entry in table_history(table, since) if entry.at <= self.now]
        self.rounds = [entry for entry in entries if entry.is_recluster]
        # The commits of others that changed rows, except the table's first, which is no daily load, and one whose
        # parent has expired.
        changes = (entry for entry in entries if entry.is_change)
        self.changes = [entry for entry in changes if self.parents[entry.snapshot_ids[0]] in self.parents]
        self.replayed = self.changes[-200:]
        self._snapshots = [snapshot for entry in self.replayed for snapshot in entry.snapshot_ids]
        self.loads = [entry for entry in self.changes if entry.rows_loaded]
        first = snapshots[0].at if snapshots else self.now
        # The days that the snapshots cover, and whether the table's first snapshot is known to be of this week.
        self.days = min(float(DAYS), max(1.0, (self.now - first) / timedelta(days=1)))
        self.is_first = first > since and (not snapshots or snapshots[0].parent is None)
        # Of new rows, of new blocks whether their rows are new or not, and those that reclustering read.
        self.loaded_bytes_per_day = round(sum(entry.bytes_loaded for entry in self.loads) / self.days)
        self.written_bytes_per_day = round(sum(entry.bytes_out for entry in self.changes) / self.days)
        self.rewritten_bytes_per_day = round(sum(entry.bytes_in for entry in self.rounds) / self.days)
        # None if a round has not recorded them.
        seconds = [entry.seconds for entry in self.rounds if entry.seconds is not None]
        is_known = len(seconds) == len(self.rounds)
        self.rewriting_seconds_per_day = round(sum(seconds) / self.days, 3) if is_known else None

    @property
    def scale(self) -> float:
        """Changes of the week for each one that is replayed."""
        return len(self.changes) / len(self.replayed)

    @cached_property
    def _start(self) -> BlockMetadata:
        """The blocks before the first change."""
        return self._table.metadata(self.parents[self.replayed[0].snapshot_ids[0]])

    @cached_property
    def _blocks(self) -> BlockMetadata:
        """The blocks of the start and of the changes that are still in a snapshot, with the bounds of the whole key."""
        ids = {*self._snapshots, *self._start.added_by.tolist()}
        return read_blocks_added(self._table.iceberg, self._table.key, sorted(ids))

    @cached_property
    def _removed(self) -> dict[int, IntArray]:
        """Positions in ``_blocks`` of those that each snapshot removed."""
        if not any(entry.blocks_in for entry in self.replayed):
            return {}
        place = {path: number for number, path in enumerate(self._blocks.path.to_pylist())}
        removed = removed_paths(self._table.iceberg, self._snapshots).items()
        return {of: np.array([place[p] for p in paths if p in place], np.int64) for of, paths in removed}

    @cached_property
    def _starting(self) -> IntArray:
        """Positions in ``_blocks`` of those of the start."""
        return np.flatnonzero(np.asarray(pc.is_in(self._blocks.path, value_set=self._start.path)))

    def unmerged(self) -> BlockMetadata:
        """Return the blocks that the table would have without the week's merges."""
        unmerged = np.isin(self._blocks.added_by, self._snapshots)
        unmerged[self._starting] = True
        for removed in self._removed.values():
            unmerged[removed] = False
        return self._blocks.take(unmerged)

    def bytes_read(self, table: ClusteredTable, items: Sequence[int] | None, rounds: int) -> int:
        """Return the bytes that at most ``rounds`` read after each change, following as many as it takes at the start.

        ``table`` is under the tried key, and ``items`` its positions in the whole key, None for all.
        """
        added = self._blocks if items is None else self._blocks.items(items)
        level, run = levels_and_runs(table.iceberg, added.take(self._starting), table.key)
        places, levels = [self._starting], [level]
        # The planner merges no block above the greatest level. Those of later commits stay there until their commit.
        waiting = [self._policy.max_level + 1 + number for number in range(len(self.replayed))]
        for entry, at in zip(self.replayed, waiting, strict=True):
            places.append(np.flatnonzero(np.isin(added.added_by, entry.snapshot_ids)))
            levels.append(np.full(len(places[-1]), at))
        # The position of each block in `_blocks`.
        origin = np.concatenate(places)
        run = np.pad(run, (0, len(origin) - len(run)))
        blocks = table.planner_blocks(added.take(origin), np.concatenate(levels), run)
        blocks, origin, _ = self._recluster(blocks, origin, MAX_ROUNDS)
        read = 0
        for entry, at in zip(self.replayed, waiting, strict=True):
            blocks, origin = self._without(blocks, origin, entry)
            blocks = replace(blocks, level=np.where(blocks.level == at, 0, blocks.level))
            blocks, origin, step = self._recluster(blocks, origin, rounds)
            read += step
        return read

    def _recluster(self, blocks: Blocks, origin: IntArray, rounds: int) -> tuple[Blocks, IntArray, int]:
        """Simulate rounds; return the blocks, their origins, and the bytes read."""
        read = 0
        for step, after in islice(simulate_rounds(blocks, self._policy), rounds):
            read += step.bytes
            left = np.delete(origin, step.members.member)
            blocks, origin = after, np.append(left, np.full(len(after) - len(left), _MERGED))
        return blocks, origin, read

    def _without(self, blocks: Blocks, origin: IntArray, entry: HistoryEntry) -> tuple[Blocks, IntArray]:
        """Return the blocks without the rows that a commit removed, which lie evenly in blocks merged since."""
        assert blocks.rows is not None
        assert blocks.bytes is not None
        gone = np.zeros(len(origin), np.bool_)
        for snapshot in entry.snapshot_ids:
            gone |= np.isin(origin, self._removed.get(snapshot, ()))
        left = entry.rows_in - int(blocks.rows[gone].sum())
        share = np.where(gone, 0.0, 1.0)
        arrived = blocks.level < self._policy.max_level
        for among in (origin == _MERGED, (origin != _MERGED) & arrived & ~gone):
            there = int(blocks.rows[among].sum())
            taken = min(left, there)
            if taken > 0:
                share[among] = 1 - taken / there
                left -= taken
        if (share == 1).all():
            return blocks, origin
        rows, bytes_ = (np.rint(column * share).astype(np.int64) for column in (blocks.rows, blocks.bytes))
        deleted = None if blocks.deleted is None else np.minimum(blocks.deleted, rows)
        stay = np.flatnonzero(rows > 0)
        return replace(blocks, rows=rows, bytes=bytes_, deleted=deleted).take(stay), origin[stay]


class DailyBytes(NamedTuple):
    """Bytes of blocks each day."""

    opened: float  # by reads
    wasted: float  # those of them without a row
    per_depth: float  # wasted for each unit of depth above 1; under a curve, opened in a sorted table


def daily_bytes(table: ClusteredTable, metadata: BlockMetadata) -> DailyBytes:
    """Return the bytes of these blocks that the table's reads open and waste each day."""
    costs, recorded = read_costs_of(table, metadata), table.reads.recorded
    if costs is None or not len(metadata):
        return DailyBytes(0.0, 0.0, 0.0)
    daily = np.array([recorded.daily(read) for read in table.reads.for_key(table.key).ranges])
    of_reads = (costs.bytes, costs.bytes_wasted, costs.bytes_per_depth)
    return DailyBytes(*(float(daily @ column) for column in of_reads))


@dataclass(frozen=True)
class AutoDepth:
    """The threshold of ``recluster_depth: auto``, where rewriting and reading cost least together."""

    depth: float
    since: datetime  # when it became the threshold
    at: datetime  # when it was last chosen
    rewriting: float = 1.0  # bytes rewritten, relative to the planner's benchmark

    def as_properties(self) -> dict[str, str]:
        """Return the property that records it."""
        since, at = (time.isoformat(timespec="seconds") for time in (self.since, self.at))
        value = {"depth": self.depth, "since": since, "at": at, "rewriting": round(self.rewriting, 3)}
        return {AUTO_DEPTH: AUTO_DEPTH.dump(value)}


def auto_depth(table: ClusteredTable) -> AutoDepth:
    """Return the threshold that a table records, or a new one if that is a day old.

    Without reads of the key it is the default; without new blocks in the past week it stays.
    """
    recorded = recorded_depth(table)
    if recorded is not None and datetime.now(timezone.utc) - recorded.at < timedelta(days=1):
        return recorded
    week = PastWeek(table, Policy())
    rewriting = 1.0 if recorded is None else recorded.rewriting
    written, curve = week.written_bytes_per_day, table.key.curve
    # Measured over a week under one threshold: the first days catch up.
    if recorded is not None and week.now - recorded.since >= timedelta(days=DAYS) and week.changes:
        rewriting = relative_rewriting(written, week.rewritten_bytes_per_day, recorded.depth, curve)
    wasted_per_depth = daily_bytes(table, table.current_blocks().metadata).per_depth
    depth = Policy().depth
    if wasted_per_depth and week.changes:
        costs = costs_by_threshold(written, rewriting, wasted_per_depth, curve)
        depth = best_threshold(costs, None if recorded is None else recorded.depth)
    elif wasted_per_depth and recorded is not None:
        depth = recorded.depth
    is_kept = recorded is not None and recorded.depth == depth
    return AutoDepth(depth, recorded.since if recorded and is_kept else week.now, week.now, rewriting)


def with_depth(table: ClusteredTable, options: ReclusterOptions) -> ReclusterOptions:
    """Return options with a number in place of ``auto``: the recorded threshold, or one chosen now."""
    if options.depth != AUTO:
        return options
    return replace(options, depth=(recorded_depth(table) or auto_depth(table)).depth)


def recorded_depth(table: ClusteredTable) -> AutoDepth | None:
    """Return the threshold that a table records, or None."""

    def read(value: Mapping[str, Any]) -> AutoDepth | None:
        depth, rewriting = parse_number(value["depth"]), parse_number(value.get("rewriting", 1))
        if depth is None or depth < 1 or rewriting is None or rewriting <= 0:
            return None
        return AutoDepth(depth, parse_iso_time(value["since"]), parse_iso_time(value["at"]), rewriting)

    return AUTO_DEPTH.load(table.iceberg.properties.get(AUTO_DEPTH), read)
