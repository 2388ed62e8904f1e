"""The commits of other writers in the past week, replayed by the bounds of their blocks with a recluster after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property

import numpy as np

from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import parse_moment
from dbt_recluster.iceberg.metadata.block_metadata import (
    BlockMetadata,
    IntArray,
    read_blocks_added,
    removed_paths,
)
from dbt_recluster.iceberg.recorded_levels import levels_and_runs
from dbt_recluster.planner import Blocks, Policy, plan
from dbt_recluster.planner.planning import simulate

DAYS = 7
_START_OF_TIME = datetime.min.replace(tzinfo=timezone.utc)
_MOST_COMMITS = 200
# The origin of a block that a simulated merge wrote.
_MERGED = -1


class Week:
    """The commits of a table in the past seven days, as far as its snapshots have them.

    Args:
        table: The table.
        now: The end of the week, by default now.

    Attributes:
        now: The end of the week.
        entries: The commits, oldest first.
        rounds: The rounds of reclustering among them.
    """

    def __init__(self, table: ClusteredTable, now: datetime | None = None) -> None:
        self.now = datetime.now(timezone.utc) if now is None else parse_moment("now", now)
        snapshots = table.snapshots()
        self._first = snapshots[0].at if snapshots else self.now
        self.parents = {snapshot.id: snapshot.parent for snapshot in snapshots}
        self._first_parent = snapshots[0].parent if snapshots else None
        self._since = self.now - min(timedelta(days=DAYS), self.now - _START_OF_TIME)
        self.entries = [entry for entry in table_history(table, self._since) if entry.at <= self.now]
        self.rounds = [entry for entry in self.entries if entry.is_recluster]

    @cached_property
    def days(self) -> float:
        """The days that the snapshots cover, from one to seven."""
        return min(float(DAYS), max(1.0, (self.now - self._first).total_seconds() / 86400))

    @property
    def is_first(self) -> bool:
        """Whether the table's first snapshot, if it has not expired, is of this week."""
        return self._first_parent is None and self._first > self._since

    @cached_property
    def changes(self) -> list[HistoryEntry]:
        """The commits of others that changed rows, except one that came on top of a snapshot that has expired."""
        changes = [entry for entry in self.entries if entry.is_change]
        if changes:
            parent = self.parents[changes[0].snapshot_ids[0]]
            if parent is not None and parent not in self.parents:
                return changes[1:]
        return changes

    @cached_property
    def loads(self) -> list[HistoryEntry]:
        """Those of them that brought new rows."""
        return [entry for entry in self.changes if entry.rows_loaded]

    @property
    def loaded_bytes_per_day(self) -> int:
        """Bytes of new rows per day."""
        return round(sum(entry.bytes_loaded for entry in self.loads) / self.days)

    @property
    def written_bytes_per_day(self) -> int:
        """Bytes of new blocks per day, also of those that hold rows of the blocks that they replaced."""
        return round(sum(entry.bytes_out for entry in self.changes) / self.days)

    @property
    def rewritten_bytes_per_day(self) -> int:
        """Bytes that reclustering read per day."""
        return round(sum(entry.bytes_in for entry in self.rounds) / self.days)


@dataclass(frozen=True)
class _Arrival:
    """What a commit changed.

    Attributes:
        level: The level at which its blocks wait, or None if it brought none.
        removed: Positions of the blocks that it removed, among all that were read.
        rows: Rows that it removed, also with blocks that were not read because a recluster wrote them.
    """

    level: int | None
    removed: IntArray
    rows: int


class Replay:
    """The changes of a week, from the blocks that the first of them came on top of.

    The blocks are read once, with the bounds of all items of the table's key.

    Args:
        table: The table. Its key may have more items than any key that is tried.
        week: The week.
        policy: The planner's policy.
    """

    def __init__(self, table: ClusteredTable, week: Week, policy: Policy) -> None:
        self._table, self._week, self._policy = table, week, policy

    @cached_property
    def changes(self) -> list[HistoryEntry]:
        """The changes that are replayed: the last ones, if there are many."""
        return self._week.changes[-_MOST_COMMITS:]

    @property
    def scale(self) -> float:
        """Changes of the week for each one that is replayed."""
        return len(self._week.changes) / len(self.changes)

    @cached_property
    def start(self) -> BlockMetadata | None:
        """The blocks that the first change came on top of; None if the table was new."""
        snapshot = self._week.parents[self.changes[0].snapshot_ids[0]]
        return None if snapshot is None else self._table.metadata(snapshot)

    @cached_property
    def blocks(self) -> BlockMetadata:
        """Every block of the start and of the changes that some snapshot still refers to."""
        ids = set(self._snapshots)
        if self.start is not None:
            ids.update(map(int, np.unique(self.start.added_by)))
        return read_blocks_added(self._table.iceberg, self._table.key, sorted(ids))

    @cached_property
    def removed(self) -> dict[int, IntArray]:
        """Positions in ``blocks`` of those that each snapshot removed."""
        if not any(entry.blocks_in for entry in self.changes):
            return {}
        place = {path: number for number, path in enumerate(self.blocks.path.to_pylist())}
        paths = removed_paths(self._table.iceberg, self._snapshots)
        return {
            snapshot: np.array([place[path] for path in removed if path in place], np.int64)
            for snapshot, removed in paths.items()
        }

    @cached_property
    def starting(self) -> IntArray:
        """Positions in ``blocks`` of those of the start."""
        if self.start is None:
            return np.zeros(0, np.int64)
        paths = self.start.path.to_numpy(zero_copy_only=False)
        return np.flatnonzero(np.isin(self.blocks.path.to_numpy(zero_copy_only=False), paths))

    @property
    def _snapshots(self) -> list[int]:
        return [snapshot for entry in self.changes for snapshot in entry.snapshot_ids]

    def bytes_read(self, key: ClusteredTable, items: Sequence[int] | None, rounds: int, most: int) -> int:
        """Return the bytes that reclustering reads after all changes.

        Args:
            key: The table under the key that is tried.
            items: Positions of its items in the whole key, or None for all.
            rounds: Most rounds after each change.
            most: Most rounds before the first one.
        """
        blocks, origin, arrivals = self._arrivals(key, items)
        blocks, origin, _ = self._recluster(blocks, origin, most)
        read = 0
        for arrival in arrivals:
            blocks, origin = self._without(blocks, origin, arrival)
            if arrival.level is not None:
                blocks = replace(blocks, level=np.where(blocks.level == arrival.level, 0, blocks.level))
            blocks, origin, step = self._recluster(blocks, origin, rounds)
            read += step
        return read

    def _arrivals(
        self, key: ClusteredTable, items: Sequence[int] | None
    ) -> tuple[Blocks, IntArray, list[_Arrival]]:
        """Return the blocks of the start and of all changes on one axis, their positions in ``blocks``, and the order.

        The planner never touches a block of the greatest level or above. So a block that has not arrived yet waits at
        such a level, and arrives by becoming level 0.
        """
        added = self.blocks if items is None else self.blocks.items(items)
        level, run = levels_and_runs(key.iceberg, added.take(self.starting), key.key)
        places, levels, runs, arrivals = [self.starting], [level], [run], []
        for number, entry in enumerate(self.changes):
            brought = np.flatnonzero(np.isin(added.added_by, entry.snapshot_ids))
            waiting = self._policy.max_level + 1 + number
            places.append(brought)
            levels.append(np.full(len(brought), waiting))
            runs.append(np.zeros(len(brought), np.int64))
            removed = [self.removed.get(snapshot, brought[:0]) for snapshot in entry.snapshot_ids]
            arrivals.append(
                _Arrival(waiting if len(brought) else None, np.concatenate(removed), entry.rows_in)
            )
        origin, all_levels, all_runs = (np.concatenate(parts) for parts in (places, levels, runs))
        return key.planner_blocks(added.take(origin), all_levels, all_runs), origin, arrivals

    def _recluster(self, blocks: Blocks, origin: IntArray, rounds: int) -> tuple[Blocks, IntArray, int]:
        """Simulate rounds until nothing is left to do; return the blocks, their origins, and the bytes read."""
        read = 0
        for _ in range(rounds):
            step = plan(blocks, self._policy)
            if not step.block_sets:
                break
            read += step.bytes
            kept = np.ones(len(blocks), np.bool_)
            kept[np.concatenate([block_set.blocks for block_set in step.block_sets])] = False
            blocks = simulate(blocks, step, self._policy)
            written = len(blocks) - np.count_nonzero(kept)
            origin = np.concatenate([origin[kept], np.full(written, _MERGED)])
        return blocks, origin, read

    def _without(self, blocks: Blocks, origin: IntArray, arrival: _Arrival) -> tuple[Blocks, IntArray]:
        """Return the blocks without the rows that a commit removed.

        Those that were merged since lie evenly in the merged blocks.
        """
        assert blocks.rows is not None
        assert blocks.bytes is not None
        gone = np.isin(origin, arrival.removed)
        left = arrival.rows - int(blocks.rows[gone].sum())
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
