"""The simulated cost of clustering a table and of keeping it clustered, the benefit, and the threshold by both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from dbt_recluster.advice.prices import PriceList
from dbt_recluster.advice.replay import DAYS, Week
from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.clustering.information import read_costs_of
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.clustering.result import MAX_ROUNDS, Figures, ReclusterResult
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import AUTO, parse_iso_time, parse_number
from dbt_recluster.iceberg.iceberg_table import Changes
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.iceberg.predicates import Predicate
from dbt_recluster.iceberg.sort_order import is_cluster_key
from dbt_recluster.iceberg.table_properties import AUTO_DEPTH
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.curve import Curve
from dbt_recluster.planner import (
    Blocks,
    Policy,
    best_threshold,
    clustering_information,
    costs_by_threshold,
    relative_rewriting,
)
from dbt_recluster.planner.planning import simulate_rounds


@dataclass(frozen=True)
class Balance:
    """Bytes per day of the ``days`` of the past week that snapshots cover."""

    rewritten: int  # by reclustering
    saved: int  # not opened by reads because of it
    opened: int  # by reads
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

    For the cost of keeping it so, the planner replays the commits of the past week until ``now``.
    """

    def __init__(self, table: ClusteredTable, policy: Policy, now: datetime | None = None) -> None:
        self._table = table
        self._policy = replace(policy, max_bytes=None, block_bytes=table.block_bytes)
        self._now = now

    @classmethod
    def of(cls, table: ClusteredTable, options: ReclusterOptions, now: datetime | None = None) -> CostModel:
        """Return the model of a table under some options; the table follows their reads from here on."""
        table.reads.follow(options.reads)
        return cls(table, with_depth(table, options).policy, now)

    @cached_property
    def _week(self) -> Week:
        return Week(self._table, self._policy, self._now)

    def recluster(self, where: Predicate | None = None) -> ReclusterEstimate:
        """Estimate a final recluster of the blocks that ``where`` admits, without a budget."""
        snapshot = self._table.blocks(where)
        return self._recluster(self._table, snapshot.blocks, snapshot.planned)

    def _recluster(self, table: ClusteredTable, blocks: Blocks, planned: Blocks) -> ReclusterEstimate:
        rounds = list(islice(simulate_rounds(planned, self._policy), MAX_ROUNDS))
        after = rounds[-1][1] if rounds else planned
        read, speed = sum(step.bytes for step, _ in rounds), rewrite_speed(table)
        if planned is not blocks:
            after = after.take(np.flatnonzero(~after.fixed))
        return ReclusterEstimate(
            table=table.name,
            cluster_key=str(table.key),
            blocks=len(blocks),
            depth=clustering_information(blocks).average_depth,
            expected_depth=clustering_information(after).average_depth,
            rounds=len(rounds),
            bytes=read,
            rows=sum(step.rows for step, _ in rounds),
            estimated_seconds=None if speed is None else round(read / speed, 1),
        )

    def estimate(self, items: Sequence[int] | None = None, curve: Curve | None = None) -> CostEstimate:
        """Estimate the cost under the whole key, or under the key of some items, which may lie on a curve."""
        table, metadata, week = self._table, self._table.metadata(), self._week
        if items is not None:
            fields = tuple(table.key.fields[item] for item in items)
            table = table.under(ClusterKey(fields, curve=len(fields) if curve else 0))
            table.key_curve.drawn, metadata = curve, metadata.items(items)
        here = table.planner_blocks(metadata)
        first = self._recluster(table, here, here)
        per_day = (0, 0)
        if week.changes:
            read = [week.bytes_read(table, items, rounds) for rounds in (1, MAX_ROUNDS)]
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
        """Return the cost and the benefit of the week's reclustering under the table's own key, or None if unknown.

        Merges save what reads would waste of unmerged blocks, less what they waste now: nothing at the start of the
        week and all at its end, a half on average. What they save in later weeks does not count.
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
        # The unmerged blocks still hold rows that later commits replaced in merged ones.
        without *= min(1.0, float(current.rows.sum()) / max(1, int(blocks.rows.sum())))
        saved = max(0.0, without - now.wasted) / 2 * week.scale
        return Balance(week.rewritten_bytes_per_day, round(saved), round(now.opened), week.days)

    def loss(self) -> int | None:
        """Return the bytes a day by which reclustering cost more than it saved, or None; the first week catches up."""
        balance = None if self._week.is_first else self.balance()
        return balance.rewritten - balance.saved if balance and balance.rewritten > balance.saved else None


def _seconds(amount: tuple[int, int], speeds: Sequence[float]) -> tuple[float, float] | None:
    return (round(amount[0] / max(speeds), 1), round(amount[1] / min(speeds), 1)) if speeds else None


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
    daily = np.array([recorded.daily(read) for read in table.reads.restricting(table.key).ranges])
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
    week = Week(table, Policy())
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
    """Return options with a number in place of ``auto``."""
    return replace(options, depth=auto_depth(table).depth) if options.depth == AUTO else options


def recluster_table(
    table: ClusteredTable, options: ReclusterOptions, changes: Changes | None = None
) -> ReclusterResult:
    """Recluster a table; resolve ``auto`` before, and estimate the loss of the past week after.

    ``changes`` are further properties to set with the first commit.
    """
    if options.depth == AUTO:
        table.predicate(options.where)  # which is refused first
        table.reads.follow(options.reads)
        depth = auto_depth(table)
        options, changes = replace(options, depth=depth.depth), {**(changes or {}), **depth.as_properties()}
    result = Recluster(table, options, changes).run()
    if result.rounds and table.reads.restricting(table.key).reads is not None:
        with suppress(Exception):  # an expiry meanwhile; the rounds are committed
            result.loss = CostModel(table, options.policy).loss()
    return result


def recorded_depth(table: ClusteredTable) -> AutoDepth | None:
    """Return the threshold that a table records, or None."""

    def read(value: Mapping[str, Any]) -> AutoDepth | None:
        depth, rewriting = parse_number(value["depth"]), parse_number(value.get("rewriting", 1))
        if depth is None or depth < 1 or rewriting is None or rewriting <= 0:
            return None
        return AutoDepth(depth, parse_iso_time(value["since"]), parse_iso_time(value["at"]), rewriting)

    return AUTO_DEPTH.load(table.iceberg.properties.get(AUTO_DEPTH), read)
