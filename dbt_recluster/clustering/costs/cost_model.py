"""The cost of clustering a table and of keeping it clustered, and the benefit, by simulation. Nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.clustering.costs.auto_depth import with_depth
from dbt_recluster.clustering.costs.replay import Replay, Week
from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.reads.reads_information import daily_wasted_bytes
from dbt_recluster.clustering.result import MAX_ROUNDS
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.curve import Curve
from dbt_recluster.iceberg.sort_order import is_cluster_key
from dbt_recluster.planner import Policy, clustering_information
from dbt_recluster.planner.planning import simulate_final


@dataclass(frozen=True)
class Balance:
    """The cost and the benefit of a table's reclustering, in bytes per day of the past week.

    Attributes:
        rewritten: Bytes that reclustering read.
        saved: Bytes that reads did not open because of it.
    """

    rewritten: int
    saved: int

    @property
    def loss(self) -> int | None:
        """Bytes by which the cost is greater than the benefit, or None if it is not."""
        return self.rewritten - self.saved if self.rewritten > self.saved else None


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
        loads: Recent commits that brought new rows, and were replayed.
        rewrites: Those that only wrote rows of replaced blocks again, as updates and deletes by copy-on-write do; they
            were replayed too.
        days: Days that they cover, at least one.
        loaded_bytes_per_day: Bytes of new rows per day: a commit counts with the rows that it added, less those of the
            blocks that it replaced.
        bytes_per_day: Bytes that reclustering after each of these commits reads per day: least with one round after
            each, most with rounds until nothing is left to do.
        seconds_per_day: Likewise, by the least and the greatest speed.
        actual_bytes_per_day: Bytes that reclustering read in these days; None under another key than the table's own.
        saved_bytes_per_day: Bytes that reads did not open because of it; None also without reads, or if
            nothing was loaded.
    """

    table: str
    cluster_key: str
    depth: float
    expected_depth: float
    first_bytes: int
    first_seconds: tuple[float, float] | None
    loads: int
    rewrites: int
    days: float
    loaded_bytes_per_day: int
    bytes_per_day: tuple[int, int]
    seconds_per_day: tuple[float, float] | None
    actual_bytes_per_day: int | None
    saved_bytes_per_day: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return asdict(self)


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
        gain: How many blocks fewer a query for one key opens on average.
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


class CostModel:
    """Estimates the cost of clustering a table by its key, or by some items of it.

    The cost of keeping it so comes from the commits of the past week, which the planner replays.

    Args:
        table: The table. Its key may have more items than any key that is tried.
        policy: The planner's policy.
        now: The end of the week, by default now.
    """

    def __init__(self, table: ClusteredTable, policy: Policy, now: datetime | None = None) -> None:
        self._table = table
        self._policy = replace(policy, max_bytes=None, block_bytes=table.block_bytes)
        self._now = now

    @classmethod
    def of(cls, table: ClusteredTable, options: ReclusterOptions, now: datetime | None = None) -> CostModel:
        """Return the model of a table that is reclustered with some options, whose reads it follows from here on.

        Raises:
            ClusterKeyError, OptionError: Bad input.
        """
        table.reads.follow(options.reads)
        return cls(table, with_depth(table, options)[0].policy, now)

    @cached_property
    def _week(self) -> Week:
        return Week(self._table, self._now)

    @cached_property
    def _replay(self) -> Replay:
        return Replay(self._table, self._week, self._policy)

    def recluster(self, where: str | None = None) -> ReclusterEstimate:
        """Estimate a recluster until nothing is left to do, whatever its ``max_bytes``.

        Args:
            where: A predicate; only blocks that may hold a matching row are considered.

        Raises:
            PredicateError: It cannot choose blocks.
        """
        table, snapshot = self._table, self._table.blocks(where)
        end = simulate_final(snapshot.planned, self._policy, rounds=MAX_ROUNDS)
        eligible = end.blocks.take(np.flatnonzero(~end.blocks.fixed))
        speed = rewrite_speed(table)
        return ReclusterEstimate(
            table=table.name,
            cluster_key=str(table.key),
            blocks=len(snapshot.blocks),
            depth=clustering_information(snapshot.blocks).average_depth,
            expected_depth=clustering_information(eligible).average_depth,
            rounds=len(end.plans),
            bytes=end.bytes,
            rows=end.rows,
            estimated_seconds=None if speed is None else round(end.bytes / speed, 1),
        )

    def estimate(self, items: Sequence[int] | None = None, curve: Curve | None = None) -> CostEstimate:
        """Estimate the cost under the key of the items at these positions, or under the whole key.

        Args:
            items: The positions; None is the whole key.
            curve: The curve that these items lie on, if they do.
        """
        table = self._table if items is None else _items_of(self._table, items, curve)
        metadata = self._table.metadata()
        here = table.planner_blocks(metadata if items is None else metadata.items(items))
        first = simulate_final(here, self._policy, rounds=MAX_ROUNDS)
        per_day = self._bytes_per_day(table, items)
        week = self._week
        speeds = [entry.bytes_in / entry.seconds for entry in week.rounds if entry.seconds and entry.bytes_in]
        is_own_key = is_cluster_key(table.iceberg, table.key)
        balance = self.balance() if is_own_key and items is None else None
        return CostEstimate(
            table=table.name,
            cluster_key=str(table.key),
            depth=clustering_information(here).average_depth,
            expected_depth=clustering_information(first.blocks).average_depth,
            first_bytes=first.bytes,
            first_seconds=_seconds((first.bytes, first.bytes), speeds),
            loads=len(week.loads),
            rewrites=sum(bool(entry.blocks_out and not entry.rows_loaded) for entry in week.changes),
            days=round(week.days, 2),
            loaded_bytes_per_day=week.loaded_bytes_per_day,
            bytes_per_day=per_day,
            seconds_per_day=_seconds(per_day, speeds),
            actual_bytes_per_day=week.rewritten_bytes_per_day if is_own_key else None,
            saved_bytes_per_day=None if balance is None else balance.saved,
        )

    def balance(self) -> Balance | None:
        """Return the cost and the benefit of the week's reclustering under the table's own key.

        Reads were saved what they would waste if no block of the week had been merged, less what they
        waste now: nothing of it at the start of the week and all at its end, a half on average. What the merges save
        in later weeks does not count.

        Returns:
            None under another key than the table's own, or if no read of the key is known, or there was something to
            recluster but nothing was loaded.
        """
        week, replay = self._week, self._replay
        table = self._table
        if not is_cluster_key(table.iceberg, table.key) or table.reads.restricting(table.key).reads is None:
            return None
        if not week.rounds:
            return Balance(0, 0)
        if not replay.changes:
            return None
        unmerged = np.isin(
            replay.blocks.added_by, [s for entry in replay.changes for s in entry.snapshot_ids]
        )
        unmerged[replay.starting] = True
        unmerged[np.concatenate([np.zeros(0, np.int64), *replay.removed.values()])] = False
        blocks, current = replay.blocks.take(unmerged), self._table.metadata()
        without, _ = daily_wasted_bytes(self._table, blocks)
        now, _ = daily_wasted_bytes(self._table, current)
        # Rows of merged blocks that a later commit replaced are among the unmerged ones; the rows tell how many.
        without *= min(1.0, float(current.rows.sum()) / max(1, int(blocks.rows.sum())))
        saved = max(0.0, without - now) / 2 * replay.scale
        return Balance(week.rewritten_bytes_per_day, round(saved))

    def loss(self) -> int | None:
        """Return the bytes a day by which the week's reclustering cost more than it saved, or None.

        A table's first week says nothing of the next ones: its merges catch up, and save later.
        """
        balance = None if self._week.is_first else self.balance()
        return None if balance is None else balance.loss

    def _bytes_per_day(self, table: ClusteredTable, items: Sequence[int] | None) -> tuple[int, int]:
        """Return the bytes that keeping the table clustered reads per day, least and most."""
        if not self._replay.changes:
            return 0, 0
        read = [self._replay.bytes_read(table, items, rounds, MAX_ROUNDS) for rounds in (1, MAX_ROUNDS)]
        scale = self._replay.scale / self._week.days
        return round(min(read) * scale), round(max(read) * scale)


def _items_of(table: ClusteredTable, items: Sequence[int], curve: Curve | None) -> ClusteredTable:
    fields = tuple(table.key.fields[item] for item in items)
    if curve is None:
        return table.under(ClusterKey(fields))
    other = table.under(ClusterKey(fields, curve=len(fields)))
    other.curve = curve
    return other


def _seconds(amount: tuple[int, int], speeds: Sequence[float]) -> tuple[float, float] | None:
    return (round(amount[0] / max(speeds), 1), round(amount[1] / min(speeds), 1)) if speeds else None
