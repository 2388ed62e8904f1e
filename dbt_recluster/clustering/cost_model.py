"""The cost of keeping a table clustered, and its benefit for known reads.

The planner replays the loads of the past week by the bounds of their blocks. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.compute as pc

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.clustering.estimate import MOST_ROUNDS
from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.keyed_table import KeyedTable
from dbt_recluster.clustering.reads_information import daily_bytes_in_vain
from dbt_recluster.clustering.values import parse_moment
from dbt_recluster.iceberg.block_metadata import BlockMetadata, read_blocks_added
from dbt_recluster.iceberg.recorded_levels import levels_and_runs
from dbt_recluster.iceberg.sort_order import is_cluster_key
from dbt_recluster.planner import Blocks, Policy, clustering_information, plan
from dbt_recluster.planner.simulation import simulate, simulate_final

DAYS = 7
_START_OF_TIME = datetime.min.replace(tzinfo=timezone.utc)
_MOST_LOADS = 200


@dataclass(frozen=True)
class Balance:
    """The cost and the benefit of a table's reclustering, in bytes per day of the past week.

    Attributes:
        rewritten: Bytes that reclustering read.
        saved: Bytes that known reads did not open because of it.
    """

    rewritten: int
    saved: int


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

    def __init__(self, table: KeyedTable, now: datetime | None = None) -> None:
        self.now = parse_moment("now", now) or datetime.now(timezone.utc)
        snapshots = table.snapshots()
        self._first = snapshots[0].at if snapshots else self.now
        self.parents = {snapshot.id: snapshot.parent for snapshot in snapshots}
        since = self.now - min(timedelta(days=DAYS), self.now - _START_OF_TIME)
        self.entries = [entry for entry in table_history(table, since) if entry.at <= self.now]
        self.rounds = [entry for entry in self.entries if entry.is_recluster]

    @cached_property
    def days(self) -> float:
        """The days that the snapshots cover, from one to seven."""
        return min(float(DAYS), max(1.0, (self.now - self._first).total_seconds() / 86400))

    @cached_property
    def loads(self) -> list[HistoryEntry]:
        """The loads, except one that came on top of a snapshot that has expired."""
        loads = [entry for entry in self.entries if entry.is_load]
        if loads:
            parent = self.parents[loads[0].snapshot_ids[0]]
            if parent is not None and parent not in self.parents:
                return loads[1:]
        return loads

    @property
    def loaded_bytes_per_day(self) -> int:
        """Bytes that the loads added per day."""
        return round(sum(entry.bytes_out for entry in self.loads) / self.days)

    @property
    def rewritten_bytes_per_day(self) -> int:
        """Bytes that reclustering read per day."""
        return round(sum(entry.bytes_in for entry in self.rounds) / self.days)


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
        saved_bytes_per_day: Bytes that known reads did not open because of it; None also without loads or known reads.
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
    saved_bytes_per_day: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return asdict(self)


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
        self._week = Week(table, now)

    def estimate(self, items: Sequence[int] | None = None) -> CostEstimate:
        """Estimate the cost under the key of the items at these positions, or under the whole key."""
        table = self._table if items is None else _items_of(self._table, items)
        metadata = self._table.metadata()
        here = table.planner_blocks(metadata if items is None else metadata.items(items))
        first = simulate_final(here, self._policy, rounds=MOST_ROUNDS)
        per_day = self._bytes_per_day(table, items)
        week = self._week
        speeds = [entry.bytes_in / entry.seconds for entry in week.rounds if entry.seconds and entry.bytes_in]
        is_actual = bool(week.rounds) and is_cluster_key(table.iceberg, table.key)
        balance = self.balance() if is_actual and items is None else None
        return CostEstimate(
            table=table.name,
            cluster_key=str(table.key),
            depth=clustering_information(here).average_depth,
            expected_depth=clustering_information(first.blocks).average_depth,
            first_bytes=first.bytes,
            first_seconds=_seconds((first.bytes, first.bytes), speeds),
            loads=len(week.loads),
            days=round(week.days, 2),
            loaded_bytes_per_day=week.loaded_bytes_per_day,
            bytes_per_day=per_day,
            seconds_per_day=_seconds(per_day, speeds),
            actual_bytes_per_day=week.rewritten_bytes_per_day if is_actual else None,
            saved_bytes_per_day=None if balance is None else balance.saved,
        )

    def balance(self) -> Balance | None:
        """Return the cost and the benefit of the week's reclustering under the table's own key.

        Known reads were saved what they would open in vain if no block of the week had been merged, less what they open
        in vain now: nothing of it at the start of the week and all at its end, a half on average. What the merges save
        in later weeks does not count.

        Returns:
            None under another key than the table's own, or if no read of the key is known, or nothing was loaded or
            reclustered.
        """
        is_own_key = is_cluster_key(self._table.iceberg, self._table.key)
        if not is_own_key or self._table.reads is None or not self._week.rounds or not self._replayed:
            return None
        loads = {snapshot for entry in self._replayed for snapshot in entry.snapshot_ids}
        unmerged = np.isin(self._added.added_by, list(loads))
        if self._start is not None:
            unmerged |= pc.is_in(self._added.path, self._start.path).to_numpy(zero_copy_only=False)
        blocks, current = self._added.take(unmerged), self._table.metadata()
        without, _ = daily_bytes_in_vain(self._table, blocks)
        now, _ = daily_bytes_in_vain(self._table, current)
        # Blocks that a later load replaced are among the unmerged ones; the rows tell how many.
        without *= min(1.0, float(current.rows.sum()) / max(1, int(blocks.rows.sum())))
        saved = max(0.0, without - now) / 2 * len(self._week.loads) / len(self._replayed)
        return Balance(self._week.rewritten_bytes_per_day, round(saved))

    @cached_property
    def _replayed(self) -> list[HistoryEntry]:
        """The loads to replay: the last ones, if there are many."""
        return self._week.loads[-_MOST_LOADS:]

    @cached_property
    def _start(self) -> BlockMetadata | None:
        """The blocks that the first replayed load came on top of; None if the table was new."""
        snapshot = self._week.parents[self._replayed[0].snapshot_ids[0]]
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
        one_round, all_rounds = (self._replay(blocks, waiting, rounds) for rounds in (1, MOST_ROUNDS))
        scale = len(self._week.loads) / len(self._replayed) / self._week.days
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
        blocks = simulate_final(blocks, self._policy, rounds=MOST_ROUNDS).blocks
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
