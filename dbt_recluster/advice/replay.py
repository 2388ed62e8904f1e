"""The commits of other writers in the past week, replayed by their blocks' bounds with a recluster after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from itertools import islice

import numpy as np
import pyarrow.compute as pc

from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.result import MAX_ROUNDS
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import parse_moment
from dbt_recluster.iceberg.metadata.block_metadata import (
    BlockMetadata,
    IntArray,
    read_blocks_added,
    removed_paths,
)
from dbt_recluster.iceberg.recorded_levels import levels_and_runs
from dbt_recluster.planner import Blocks, Policy
from dbt_recluster.planner.planning import simulate_rounds

DAYS = 7
_START_OF_TIME = datetime.min.replace(tzinfo=timezone.utc)
# The origin of a block that a simulated merge wrote.
_MERGED = -1


class Week:
    """The commits of a table in the seven days until ``now``, as far as it has their snapshots, and their replay."""

    def __init__(self, table: ClusteredTable, policy: Policy, now: datetime | None = None) -> None:
        self._table, self._policy = table, policy
        self.now = datetime.now(timezone.utc) if now is None else parse_moment("now", now)
        snapshots = table.snapshots()
        self.parents = {snapshot.id: snapshot.parent for snapshot in snapshots}
        since = self.now - min(timedelta(days=DAYS), self.now - _START_OF_TIME)
        entries = [entry for entry in table_history(table, since) if entry.at <= self.now]
        self.rounds = [entry for entry in entries if entry.is_recluster]
        # The commits of others that changed rows, except one whose parent has expired.
        self.changes = [entry for entry in entries if entry.is_change]
        if self.changes:
            parent = self.parents[self.changes[0].snapshot_ids[0]]
            if parent is not None and parent not in self.parents:
                del self.changes[0]
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
    def _start(self) -> BlockMetadata | None:
        """The blocks before the first change; None if the table was new."""
        snapshot = self.parents[self.replayed[0].snapshot_ids[0]]
        return None if snapshot is None else self._table.metadata(snapshot)

    @cached_property
    def _blocks(self) -> BlockMetadata:
        """The blocks of the start and of the changes that are still in a snapshot, with the bounds of the whole key."""
        ids = set(self._snapshots)
        if self._start is not None:
            ids.update(self._start.added_by.tolist())
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
        if self._start is None:
            return np.zeros(0, np.int64)
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
