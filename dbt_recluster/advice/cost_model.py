"""The cost of clustering a table and of keeping it clustered, the benefit, and the threshold by both.

The cost comes from a simulation. Nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from dbt_recluster import table_properties
from dbt_recluster.advice.replay import DAYS, Week
from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.clustering.information import daily_bytes
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.prices import PriceList
from dbt_recluster.clustering.result import MAX_ROUNDS, Figures
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import AUTO, parse_iso_time, parse_number
from dbt_recluster.iceberg.sort_order import is_cluster_key
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.curve import Curve
from dbt_recluster.planner import (
    Blocks,
    Plan,
    Policy,
    best_threshold,
    clustering_information,
    costs_by_threshold,
    relative_rewriting,
)
from dbt_recluster.planner.planning import simulate_rounds

# Reads and loads change little from one build to the next.
_DEPTH_HOLDS = timedelta(days=1)


@dataclass(frozen=True)
class Balance:
    """Bytes per day of the past week that reclustering rewrote, saved reads from opening, and left for them to open.

    The snapshots cover ``days`` of that week.
    """

    rewritten: int
    saved: int
    opened: int
    days: float


@dataclass(frozen=True)
class CostEstimate(Figures):
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
        actual_seconds_per_day: Seconds of its rounds in these days; None also if a round has not recorded them.
        saved_bytes_per_day: Bytes that reads did not open because of it; None also without reads, or if
            nothing was loaded.
        first_cost, cost_per_day, spent_per_day, saved_per_day: Money for first_seconds, seconds_per_day,
            actual_seconds_per_day and saved_bytes_per_day; None without prices too.
        assumption: What money stands for, in one line; None without prices.
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
    actual_seconds_per_day: float | None
    saved_bytes_per_day: int | None
    first_cost: tuple[float | None, ...] | None = None
    cost_per_day: tuple[float | None, ...] | None = None
    spent_per_day: float | None = None
    saved_per_day: float | None = None
    assumption: str | None = None

    def priced(self, prices: PriceList | None) -> CostEstimate:
        """Return the estimate with money by these prices."""
        if prices is None:
            return self
        return replace(
            self,
            first_cost=self.first_seconds and tuple(map(prices.of_seconds, self.first_seconds)),
            cost_per_day=self.seconds_per_day and tuple(map(prices.of_seconds, self.seconds_per_day)),
            spent_per_day=prices.of_seconds(self.actual_seconds_per_day),
            saved_per_day=prices.of_bytes(self.saved_bytes_per_day),
            assumption=prices.assumption,
        )


@dataclass(frozen=True)
class ReclusterEstimate(Figures):
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
        return {**super().as_dict(), "gain": round(self.gain, 4)}


class CostModel:
    """Estimates the cost of clustering a table by its key, or by some items of it.

    The cost of keeping it so comes from the commits of the past week until ``now``, which the planner replays.
    """

    def __init__(self, table: ClusteredTable, policy: Policy, now: datetime | None = None) -> None:
        self._table = table
        self._policy = replace(policy, max_bytes=None, block_bytes=table.block_bytes)
        self._now = now

    @classmethod
    def of(cls, table: ClusteredTable, options: ReclusterOptions, now: datetime | None = None) -> CostModel:
        """Return the model of a table that is reclustered with some options, whose reads it follows from here on."""
        table.reads.follow(options.reads)
        return cls(table, with_depth(table, options)[0].policy, now)

    @cached_property
    def _week(self) -> Week:
        return Week(self._table, self._policy, self._now)

    def recluster(self, where: str | None = None) -> ReclusterEstimate:
        """Estimate a recluster of the blocks that ``where`` admits until nothing is left to do, without a budget."""
        snapshot = self._table.blocks(where)
        return self._recluster(self._table, snapshot.blocks, snapshot.planned)

    def _recluster(self, table: ClusteredTable, blocks: Blocks, planned: Blocks) -> ReclusterEstimate:
        plans: list[Plan] = []
        eligible, speed = planned, rewrite_speed(table)
        for step, after in islice(simulate_rounds(planned, self._policy), MAX_ROUNDS):
            plans.append(step)
            eligible = after
        read = sum(step.bytes for step in plans)
        if planned is not blocks:
            eligible = eligible.take(np.flatnonzero(~eligible.fixed))
        return ReclusterEstimate(
            table=table.name,
            cluster_key=str(table.key),
            blocks=len(blocks),
            depth=clustering_information(blocks).average_depth,
            expected_depth=clustering_information(eligible).average_depth,
            rounds=len(plans),
            bytes=read,
            rows=sum(step.rows for step in plans),
            estimated_seconds=None if speed is None else round(read / speed, 1),
        )

    def estimate(self, items: Sequence[int] | None = None, curve: Curve | None = None) -> CostEstimate:
        """Estimate the cost under the key of the items at these positions, or under the whole key.

        ``curve`` is the curve that these items lie on, if they do.
        """
        table, metadata, week = self._table, self._table.metadata(), self._week
        if items is not None:
            fields = tuple(table.key.fields[item] for item in items)
            table = table.under(ClusterKey(fields, curve=len(fields) if curve else 0))
            table.drawn_curve, metadata = curve, metadata.items(items)
        here = table.planner_blocks(metadata)
        first = self._recluster(table, here, here)
        per_day = (0, 0)
        if week.changes:
            read = [week.bytes_read(table, items, rounds, MAX_ROUNDS) for rounds in (1, MAX_ROUNDS)]
            scale = week.scale / week.days
            per_day = (round(min(read) * scale), round(max(read) * scale))
        speeds = [entry.bytes_in / entry.seconds for entry in week.rounds if entry.seconds and entry.bytes_in]
        is_own_key = is_cluster_key(table.iceberg, table.key)
        balance = self.balance() if items is None else None
        return CostEstimate(
            table=table.name,
            cluster_key=first.cluster_key,
            depth=first.depth,
            expected_depth=first.expected_depth,
            first_bytes=first.bytes,
            first_seconds=_seconds((first.bytes, first.bytes), speeds),
            loads=len(week.loads),
            rewrites=sum(bool(entry.blocks_out and not entry.rows_loaded) for entry in week.changes),
            days=round(week.days, 2),
            loaded_bytes_per_day=week.loaded_bytes_per_day,
            bytes_per_day=per_day,
            seconds_per_day=_seconds(per_day, speeds),
            actual_bytes_per_day=week.rewritten_bytes_per_day if is_own_key else None,
            actual_seconds_per_day=week.rewriting_seconds_per_day if is_own_key else None,
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
        table = self._table
        if not is_cluster_key(table.iceberg, table.key) or table.reads.restricting(table.key).reads is None:
            return None
        week = self._week
        if not week.rounds:
            return Balance(0, 0, round(daily_bytes(table, table.metadata()).opened), week.days)
        if not week.changes:
            return None
        blocks, current = week.unmerged(), table.metadata()
        without, now = daily_bytes(table, blocks).wasted, daily_bytes(table, current)
        # The unmerged blocks still hold rows that a later commit replaced in merged ones, in proportion to the rows.
        without *= min(1.0, float(current.rows.sum()) / max(1, int(blocks.rows.sum())))
        saved = max(0.0, without - now.wasted) / 2 * week.scale
        return Balance(week.rewritten_bytes_per_day, round(saved), round(now.opened), week.days)

    def loss(self) -> int | None:
        """Return the bytes a day by which the week's reclustering cost more than it saved, or None.

        A table's first week says nothing of the next ones: its merges catch up, and save later.
        """
        balance = None if self._week.is_first else self.balance()
        return balance.rewritten - balance.saved if balance and balance.rewritten > balance.saved else None


def _seconds(amount: tuple[int, int], speeds: Sequence[float]) -> tuple[float, float] | None:
    return (round(amount[0] / max(speeds), 1), round(amount[1] / min(speeds), 1)) if speeds else None


@dataclass(frozen=True)
class AutoDepth:
    """The threshold of a table with ``recluster_depth: auto``, where rewriting and reading cost least together."""

    depth: float  # the threshold
    since: datetime  # when it became the threshold
    at: datetime  # when it was last worked out
    rewriting: float = 1.0  # how much the table rewrites, relative to what was measured of the planner

    def as_properties(self) -> dict[str, str]:
        """Return the property that records it."""
        since, at = (time.isoformat(timespec="seconds") for time in (self.since, self.at))
        value = {"depth": self.depth, "since": since, "at": at, "rewriting": round(self.rewriting, 3)}
        return {table_properties.AUTO_DEPTH: json.dumps(value)}


def auto_depth(table: ClusteredTable) -> AutoDepth:
    """Return the threshold that a table records, or a new one if that is a day old.

    The week's history has the bytes of new blocks each day, and the reads the bytes that they waste for
    each unit of depth. Without reads of the key the threshold is the default; without new blocks it stays.
    """
    recorded = recorded_depth(table)
    if recorded is not None and datetime.now(timezone.utc) - recorded.at < _DEPTH_HOLDS:
        return recorded
    week = Week(table, Policy())
    rewriting = 1.0 if recorded is None else recorded.rewriting
    # Only a week under one threshold says how much the table rewrites under it: the first days catch up.
    if recorded is not None and week.now - recorded.since >= timedelta(days=DAYS) and week.changes:
        rewriting = relative_rewriting(
            week.written_bytes_per_day, week.rewritten_bytes_per_day, recorded.depth, table.key.curve
        )
    wasted_per_depth = daily_bytes(table, table.current_blocks().metadata).per_depth
    depth = Policy().depth
    if wasted_per_depth and week.changes:
        costs = costs_by_threshold(week.written_bytes_per_day, rewriting, wasted_per_depth, table.key.curve)
        depth = best_threshold(costs, None if recorded is None else recorded.depth)
    elif wasted_per_depth and recorded is not None:
        depth = recorded.depth
    is_kept = recorded is not None and recorded.depth == depth
    return AutoDepth(depth, recorded.since if recorded and is_kept else week.now, week.now, rewriting)


def with_depth(table: ClusteredTable, options: ReclusterOptions) -> tuple[ReclusterOptions, AutoDepth | None]:
    """Return options with a number in place of ``auto``, and the threshold that it stands for, or None."""
    if options.depth != AUTO:
        return options, None
    depth = auto_depth(table)
    return replace(options, depth=depth.depth), depth


def recorded_depth(table: ClusteredTable) -> AutoDepth | None:
    """Return the threshold that a table records, or None. A malformed property counts as none."""
    try:
        value = json.loads(table.iceberg.properties.get(table_properties.AUTO_DEPTH, "null"))
        depth, rewriting = parse_number(value["depth"]), parse_number(value.get("rewriting", 1))
        since, at = parse_iso_time(value["since"]), parse_iso_time(value["at"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if depth is None or depth < 1 or rewriting is None or rewriting <= 0:
        return None
    return AutoDepth(depth, since, at, rewriting)
