"""Estimates by simulation: what reclustering to the end would cost and gain, and what keeping a table clustered costs.

The planner works on the bounds of the blocks that are there, and of those that were loaded in the past week. Nothing is
changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any

import numpy as np

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.clustering.history import HistoryEntry, rewrite_speed, table_history
from dbt_recluster.clustering.keyed_table import KeyedTable
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.values import parse_since
from dbt_recluster.iceberg.block_metadata import BlockMetadata, read_blocks_added
from dbt_recluster.iceberg.recorded_levels import levels_and_runs
from dbt_recluster.iceberg.sort_order import is_cluster_key
from dbt_recluster.planner import Blocks, Policy, clustering_information, plan
from dbt_recluster.planner.simulation import simulate, simulate_final

DAYS = 7
_MOST_LOADS = 200
_MOST_ROUNDS = 100


@dataclass(frozen=True)
class ReclusterEstimate:
    """The cost and gain of reclustering a table until nothing is left to do.

    Attributes:
        table: The table's identifier.
        cluster_key: The key, as users write it.
        blocks: Blocks now.
        depth: Average depth now.
        expected_depth: Average depth at the end.
        rounds: Rounds until the end.
        bytes: Bytes that they read.
        rows: Rows that they rewrite.
        estimated_seconds: Their duration at the speed of this table's own rounds, or None if there were none.
    """

    table: str
    cluster_key: str
    blocks: int
    depth: float
    expected_depth: float
    rounds: int
    bytes: int
    rows: int
    estimated_seconds: float | None

    @property
    def gain(self) -> float:
        """How many blocks fewer a query for one key opens on average."""
        return max(0.0, self.depth - self.expected_depth)

    @property
    def gain_per_byte(self) -> float:
        """The gain for each byte rewritten, by which a budget is best spent."""
        return self.gain / self.bytes if self.bytes else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**asdict(self), "gain": round(self.gain, 4)}


@dataclass(frozen=True)
class CostEstimate:
    """The cost of clustering a table.

    Attributes:
        table: The table's identifier.
        cluster_key: The key, as users write it.
        depth: Average depth now.
        expected_depth: Average depth after the first clustering.
        first_bytes: Bytes that the first clustering reads.
        first_seconds: Its duration, least and most by the speeds of this table's rounds; None if there were none.
        loads: Recent loads that were replayed.
        days: Days that they cover, at least one.
        loaded_bytes_per_day: Bytes that they added per day.
        bytes_per_day: Bytes that reclustering after each load reads per day: least with one round after each load, most
            with rounds until nothing is left to do.
        seconds_per_day: Likewise, by the least and the greatest speed.
        actual_bytes_per_day: Bytes that reclustering read in these days; None under another key than the table's own,
            or if nothing was reclustered.
    """

    table: str
    cluster_key: str
    depth: float
    expected_depth: float
    first_bytes: int
    first_seconds: tuple[float, float] | None
    loads: int
    days: float
    loaded_bytes_per_day: int
    bytes_per_day: tuple[int, int]
    seconds_per_day: tuple[float, float] | None
    actual_bytes_per_day: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return asdict(self)


def estimate_recluster(table: KeyedTable, options: ReclusterOptions) -> ReclusterEstimate:
    """Simulate a recluster with ``final`` and these options; ``max_bytes`` is ignored.

    Raises:
        ClusterKeyError, PredicateError: Bad input.
    """
    snapshot = table.blocks(options.where)
    blocks = snapshot.blocks
    policy = replace(options.policy, max_bytes=None, block_bytes=table.block_bytes)
    end = simulate_final(snapshot.planned, policy, rounds=_MOST_ROUNDS)
    eligible = end.blocks.take(np.flatnonzero(end.blocks.level >= 0))
    speed = rewrite_speed(table)
    return ReclusterEstimate(
        table=table.name,
        cluster_key=str(table.key),
        blocks=len(blocks),
        depth=clustering_information(blocks).average_depth,
        expected_depth=clustering_information(eligible).average_depth,
        rounds=len(end.plans),
        bytes=end.bytes,
        rows=end.rows,
        estimated_seconds=None if speed is None else round(end.bytes / speed, 1),
    )


class CostModel:
    """Estimates the cost of clustering a table by its key, or by some items of it.

    The blocks of now and of the past week are read once, with the bounds of all items.

    Args:
        table: The table. Its key may have more items than any key that is tried.
        policy: The planner's policy.
        now: The end of the week, by default now.
    """

    def __init__(self, table: KeyedTable, policy: Policy, now: datetime | None = None) -> None:
        self._table = table
        self._policy = replace(policy, max_bytes=None, block_bytes=table.block_bytes)
        self._now = parse_since(now) or datetime.now(timezone.utc)
        self._parents = {snapshot.id: snapshot.parent for snapshot in table.snapshots()}
        self._entries = table_history(table, self._now - timedelta(days=DAYS))

    def estimate(self, items: Sequence[int] | None = None) -> CostEstimate:
        """Estimate the cost under the key of the items at these positions, or under the whole key."""
        table = self._table if items is None else _items_of(self._table, items)
        metadata = self._table.metadata()
        here = table.planner_blocks(metadata if items is None else metadata.items(items))
        first = simulate_final(here, self._policy, rounds=_MOST_ROUNDS)
        per_day = self._bytes_per_day(table, items)
        rounds = [entry for entry in self._entries if entry.is_recluster]
        speeds = [entry.bytes_in / entry.seconds for entry in rounds if entry.seconds and entry.bytes_in]
        actual = sum(entry.bytes_in for entry in rounds)
        is_own_key = is_cluster_key(table.iceberg, table.key)
        return CostEstimate(
            table=table.name,
            cluster_key=str(table.key),
            depth=clustering_information(here).average_depth,
            expected_depth=clustering_information(first.blocks).average_depth,
            first_bytes=first.bytes,
            first_seconds=_seconds((first.bytes, first.bytes), speeds),
            loads=len(self._loads),
            days=round(self._days, 2),
            loaded_bytes_per_day=round(sum(entry.bytes_out for entry in self._loads) / self._days),
            bytes_per_day=per_day,
            seconds_per_day=_seconds(per_day, speeds),
            actual_bytes_per_day=round(actual / self._days) if is_own_key and rounds else None,
        )

    @cached_property
    def _days(self) -> float:
        """The days that the snapshots cover, at least one."""
        first = self._entries[0].at if self._entries else self._now
        return max(1.0, (self._now - first).total_seconds() / 86400)

    @cached_property
    def _loads(self) -> list[HistoryEntry]:
        """The loads, except one that came on top of a snapshot that has expired."""
        loads = [entry for entry in self._entries if entry.is_load]
        if loads:
            parent = self._parents[loads[0].snapshot_ids[0]]
            if parent is not None and parent not in self._parents:
                return loads[1:]
        return loads

    @cached_property
    def _replayed(self) -> list[HistoryEntry]:
        """The loads to replay: the last ones, if there are many."""
        return self._loads[-_MOST_LOADS:]

    @cached_property
    def _start(self) -> BlockMetadata | None:
        """The blocks that the first replayed load came on top of; None if the table was new."""
        snapshot = self._parents[self._replayed[0].snapshot_ids[0]]
        return None if snapshot is None else self._table.metadata(snapshot)

    @cached_property
    def _added(self) -> BlockMetadata:
        """Every block of the start and of the replayed loads that some snapshot still refers to."""
        ids = {snapshot for entry in self._replayed for snapshot in entry.snapshot_ids}
        if self._start is not None:
            ids.update(map(int, np.unique(self._start.added_by)))
        return read_blocks_added(self._table.iceberg, self._table.key, sorted(ids))

    def _bytes_per_day(self, table: KeyedTable, items: Sequence[int] | None) -> tuple[int, int]:
        """Return the bytes that keeping the table clustered reads per day, least and most."""
        if not self._replayed:
            return 0, 0
        blocks, waiting = self._arrivals(table, items)
        one_round, all_rounds = (self._replay(blocks, waiting, rounds) for rounds in (1, _MOST_ROUNDS))
        scale = len(self._loads) / len(self._replayed) / self._days
        return round(min(one_round, all_rounds) * scale), round(max(one_round, all_rounds) * scale)

    def _arrivals(self, table: KeyedTable, items: Sequence[int] | None) -> tuple[Blocks, list[int]]:
        """Return the blocks of the start and of all loads on one axis, and the level at which each load waits.

        The planner never touches a block of the greatest level or above. So a load that has not arrived yet waits at
        such a level, and arrives by becoming level 0.
        """
        added = self._added if items is None else self._added.items(items)
        places, level, run, waiting = [], [], [], []
        if self._start is not None:
            start_paths = self._start.path.to_numpy(zero_copy_only=False)
            live = np.flatnonzero(np.isin(added.path.to_numpy(zero_copy_only=False), start_paths))
            live_level, live_run = levels_and_runs(table.iceberg, added.take(live), table.key)
            places.append(live)
            level.append(live_level)
            run.append(live_run)
        for number, entry in enumerate(self._replayed):
            brought = np.flatnonzero(np.isin(added.added_by, entry.snapshot_ids))
            if not len(brought):
                continue  # no snapshot refers to its files any more
            waiting.append(self._policy.max_level + 1 + number)
            places.append(brought)
            level.append(np.full(len(brought), waiting[-1]))
            run.append(np.zeros(len(brought), np.int64))
        nothing = np.zeros(0, np.int64)
        place, levels, runs = (np.concatenate([nothing, *parts]) for parts in (places, level, run))
        return table.planner_blocks(added.take(place), levels, runs), waiting

    def _replay(self, blocks: Blocks, waiting: Sequence[int], rounds: int) -> int:
        """Return the bytes that reclustering reads with at most ``rounds`` rounds after each load."""
        blocks = simulate_final(blocks, self._policy, rounds=_MOST_ROUNDS).blocks
        spent = 0
        for level in waiting:
            blocks = replace(blocks, level=np.where(blocks.level == level, 0, blocks.level))
            for _ in range(rounds):
                step = plan(blocks, self._policy)
                if not step.block_sets:
                    break
                spent += step.bytes
                blocks = simulate(blocks, step, self._policy)
        return spent


def _items_of(table: KeyedTable, items: Sequence[int]) -> KeyedTable:
    return table.under(ClusterKey(tuple(table.key.fields[item] for item in items)))


def _seconds(amount: tuple[int, int], speeds: Sequence[float]) -> tuple[float, float] | None:
    return (round(amount[0] / max(speeds), 1), round(amount[1] / min(speeds), 1)) if speeds else None
