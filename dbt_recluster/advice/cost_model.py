"""The simulated cost of clustering a table and of keeping it clustered, its benefit, and the prices of both.

Commits of other writers in the past week are replayed by the bounds of blocks; loads and reads give the threshold of
auto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from itertools import islice, takewhile
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from annotated_types import Ge, Le, MaxLen
from annotated_types import Predicate as Satisfies
from pydantic import BeforeValidator
from pydantic_core.core_schema import ValidationInfo

from dbt_recluster.clustering.history import HistoryEntry, rewrite_speed, table_history
from dbt_recluster.clustering.information import read_costs_of
from dbt_recluster.clustering.options import AUTO, NUMBER, Expected, ReclusterOptions, parse_iso_time, parse_number
from dbt_recluster.clustering.result import MAX_ROUNDS, Result
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.verdict import Stop
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, read_blocks_added, removed_paths
from dbt_recluster.iceberg.predicates import Predicate
from dbt_recluster.iceberg.recorded_levels import levels_and_runs
from dbt_recluster.iceberg.sort_order import is_cluster_key
from dbt_recluster.iceberg.table_properties import AUTO_DEPTH
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.types import IntArray
from dbt_recluster.planner import Blocks, Policy, Reason, clustering_information
from dbt_recluster.planner.planning import simulate_rounds
from dbt_recluster.text import did_you_mean

DAYS = 7
_START_OF_TIME = datetime.min.replace(tzinfo=timezone.utc)
# The origin of a block that a simulated merge wrote.
_MERGED = -1
# A lower threshold rewrites more, and reads waste less. Of strategy `payback` over sorted loads, 100 of a plain key and
# 30 along a curve: thresholds, rows rewritten for each row loaded (geometric mean of the workloads), and blocks that a
# read opens (mean), by the columns on a curve. Workloads in order rewrite almost nothing and are left out. Those of a
# plain key, 0, are of the workloads of benchmarks/results/frontier.json. Blocks along a curve are multiples of those
# that the read opens in a table sorted at once ("What a threshold means" in docs/design/curves.md).
THRESHOLDS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
REWRITTEN = {
    0: (47.02, 25.85, 6.14, 2.35, 1.45, 0.80, 0.63, 0.45, 0.35),
    2: (11.79, 6.09, 3.73, 2.84, 2.02, 1.40, 1.18),
    3: (11.13, 5.04, 3.59, 2.24, 1.76, 1.32, 1.19),
    4: (8.53, 5.40, 3.20, 2.54, 1.62, 1.28, 0.88),
}
SCAN = {
    0: (0.98, 1.40, 1.82, 2.58, 3.25, 4.42, 5.50, 7.49, 9.23),
    2: (1.05, 1.16, 1.28, 1.44, 1.63, 1.84, 2.05),
    3: (1.02, 1.13, 1.17, 1.33, 1.42, 1.51, 1.67),
    4: (1.02, 1.07, 1.16, 1.24, 1.38, 1.43, 1.55),
}

# Clamp the measured-to-expected rewriting ratio. More than four times the mean is a first clustering or a backlog.
LEAST, MOST = 0.1, 4.0
# A table keeps its threshold unless another one saves this share, so that it does not move back and forth.
_LEAST_GAIN = 0.1


class PastWeek:
    """The commits of a table in the seven days until ``now``, as far as it has their snapshots, and their replay."""

    def __init__(self, table: ClusteredTable, policy: Policy, now: datetime | None = None) -> None:
        self._table, self._policy = table, policy
        self.now = now or datetime.now(timezone.utc)
        snapshots = table.snapshots()
        self.parents = {snapshot.id: snapshot.parent for snapshot in snapshots}
        since = self.now - min(timedelta(days=DAYS), self.now - _START_OF_TIME)
        entries = [entry for entry in table_history(table, since) if entry.at <= self.now]
        self.rounds = [entry for entry in entries if entry.is_recluster]
        # The commits of others that changed rows, except the table's first, which is no daily load, and one whose
        # parent has expired.
        changes = [entry for entry in entries if entry.is_change]
        self.changes = [entry for entry in changes if self.parents[entry.snapshot_ids[0]] in self.parents]
        self.replacements = sum(self.parents[entry.snapshot_ids[0]] is None for entry in changes)
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
    def _blocks(self) -> tuple[BlockMetadata, IntArray]:
        """The blocks before the first change and those of the changes, by the whole key; and places of the former."""
        start = self._table.metadata(self.parents[self.replayed[0].snapshot_ids[0]])
        ids = {*self._snapshots, *start.added_by.tolist()}
        blocks = read_blocks_added(self._table.iceberg, self._table.key, sorted(ids))
        return blocks, np.flatnonzero(np.asarray(pc.is_in(blocks.path, value_set=start.path)))

    @cached_property
    def _removed(self) -> dict[int, IntArray]:
        """Places in ``_blocks`` of those that each snapshot removed."""
        if not any(entry.blocks_in for entry in self.replayed):
            return {}
        place = {path: number for number, path in enumerate(self._blocks[0].path.to_pylist())}
        removed = removed_paths(self._table.iceberg, self._snapshots).items()
        return {of: np.array([place[p] for p in paths if p in place], np.int64) for of, paths in removed}

    def unmerged(self) -> BlockMetadata:
        """Return the blocks that the table would have without the week's merges."""
        blocks, first = self._blocks
        unmerged = np.isin(blocks.added_by, self._snapshots)
        unmerged[first] = True
        for removed in self._removed.values():
            unmerged[removed] = False
        return blocks.take(unmerged)

    def bytes_read(self, table: ClusteredTable, items: Sequence[int] | None, rounds: int) -> int:
        """Return the bytes that at most ``rounds`` read after each change, following as many as it takes at the start.

        ``table`` is under the tried key, and ``items`` its positions in the whole key, None for all.
        """
        added, first = self._blocks
        added = added if items is None else added.items(items)
        level, run = levels_and_runs(table.iceberg, added.take(first), table.key)
        places, levels = [first], [level]
        # The planner merges no block above the greatest level. Those of later commits stay there until their commit.
        waiting = [self._policy.max_level + 1 + number for number in range(len(self.replayed))]
        for entry, at in zip(self.replayed, waiting, strict=True):
            places.append(np.flatnonzero(np.isin(added.added_by, entry.snapshot_ids)))
            levels.append(np.full(len(places[-1]), at))
        # The position of each block in `_blocks`.
        origin = np.concatenate(places)
        run = np.pad(run, (0, len(origin) - len(run)))
        blocks = table.planner_blocks(added.take(origin), np.concatenate(levels), run)
        policy = table.policy(self._policy)
        blocks, origin, _ = self._recluster(blocks, origin, policy, MAX_ROUNDS)
        read = 0
        for entry, at in zip(self.replayed, waiting, strict=True):
            blocks, origin = self._without(blocks, origin, entry)
            blocks = replace(blocks, level=np.where(blocks.level == at, 0, blocks.level))
            blocks, origin, step = self._recluster(blocks, origin, policy, rounds)
            read += step
        return read

    @staticmethod
    def _recluster(blocks: Blocks, origin: IntArray, policy: Policy, rounds: int) -> tuple[Blocks, IntArray, int]:
        """Simulate rounds; return the blocks, their origins, and the bytes read."""
        read = 0
        for step, after in islice(simulate_rounds(blocks, policy), rounds):
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


def relative_rewriting(loaded: float, rewritten: float, loads: float, threshold: float, columns: int = 0) -> float:
    """Return a table's rewriting relative to the measured workloads, by bytes and loads of one time.

    ``columns`` are those on a curve, 0 for a plain key.
    """
    work = REWRITTEN[columns]
    usual = loaded * float(np.interp(np.log(threshold), np.log(THRESHOLDS[: len(work)]), work))
    # One merge more, of as many loads as the threshold, on both sides: few loads may not have caused any yet.
    merge = threshold * loaded / max(loads, 1)
    ratio = (rewritten + merge) / (usual + merge) if usual else 1.0
    return float(np.clip(ratio ** (1 / _freedom(threshold)), LEAST, MOST)) if threshold > 1 else 1.0


def _freedom(threshold: float) -> float:
    """Exponent of a table's relative rewriting: at a threshold of 1, every load rewrites every table."""
    return 1 - 1 / threshold


def costs_by_threshold(
    loaded: float, rewriting: float, wasted_per_depth: float, columns: int = 0
) -> dict[float, float]:
    """Estimate the cost of each of `THRESHOLDS` that was measured: bytes rewritten, and bytes that reads waste.

    The table loads these bytes in the time in which reads waste ``wasted_per_depth`` for each unit of read depth above
    1, or on a curve open as many in a table sorted at once. ``rewriting`` is its `relative_rewriting`.
    """
    return {
        threshold: rewriting ** _freedom(threshold) * loaded * work + wasted_per_depth * (scan - 1)
        for threshold, work, scan in zip(THRESHOLDS, REWRITTEN[columns], SCAN[columns], strict=False)
    }


def best_threshold(costs: dict[float, float], current: float | None = None) -> float:
    """Return the threshold of least cost, or the current one, if any, where no other is cheaper by a tenth."""
    best = min(costs, key=lambda threshold: (costs[threshold], threshold))
    if current in costs and costs[best] > (1 - _LEAST_GAIN) * costs[current]:
        return current
    return best


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
    if (
        recorded is not None
        and recorded.depth > 1
        and week.now - recorded.since >= timedelta(days=DAYS)
        and week.changes
    ):
        loaded, rewritten = week.days * written, week.days * week.rewritten_bytes_per_day
        rewriting = relative_rewriting(loaded, rewritten, len(week.changes), recorded.depth, curve)
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


_EXAMPLE = "{currency: EUR, compute_hour: 3.20, terabyte_scanned: 5}"
_GREATEST = 1e9  # the sum of many amounts must stay finite
_RANGE = f"from 0 to {_GREATEST:,.0f}"
_Price = Annotated[float, Ge(0), Le(_GREATEST), NUMBER]
_has = partial(Expected, verb="have a")


@dataclass(frozen=True)
class PriceList:
    """The prices of a project. An amount is None if its price, seconds or bytes are unknown."""

    currency: Annotated[
        str, MaxLen(8), Satisfies(str.isalpha), BeforeValidator(str.strip), _has("currency such as EUR")
    ]
    # Of the session that reclusters, all its machines together.
    compute_hour: Annotated[_Price, _has(f"compute_hour {_RANGE}")] | None = None
    # Of 2^40 bytes that a query opens.
    terabyte_scanned: Annotated[_Price, _has(f"terabyte_scanned {_RANGE}")] | None = None

    def of_seconds(self, *seconds: float | None) -> float | None:
        """Return the price of some durations together."""
        return _product(self.compute_hour, seconds, 3600)

    def of_bytes(self, count: float | None) -> float | None:
        """Return the price of opening some bytes."""
        return _product(self.terabyte_scanned, [count], 2**40)

    def text(self, amount: float | None) -> str:
        """Return ``EUR 1.25``, ``EUR < 0.01`` or ``not known``."""
        amount_text = "< 0.01" if amount and amount < 0.01 else f"{amount or 0:,.2f}"
        return "not known" if amount is None else f"{self.currency} {amount_text}"

    @property
    def assumption(self) -> str:
        """The meaning of amounts, in one line."""
        hour = "an hour, for the seconds in which rounds read, sort and write"
        terabyte = "for 2^40 bytes that known reads do not open because of reclustering"
        units = (("spent", self.compute_hour, hour), ("saved", self.terabyte_scanned, terabyte))
        return "; ".join(
            f"{word}: {'no price' if price is None else f'{self.currency} {price:,.10g} {unit}'}"
            for word, price, unit in units
        )


def _product(price: float | None, amounts: Sequence[float | None], unit: int) -> float | None:
    known_amounts = [amount for amount in amounts if amount is not None]
    return None if price is None or len(known_amounts) < len(amounts) else round(price * sum(known_amounts) / unit, 6)


def _as_prices(value: Any, info: ValidationInfo) -> Any:
    """Return the mapping of ``currency=EUR,compute_hour=3.20`` from a command line; check the names of a mapping."""
    if isinstance(value, PriceList):
        return value
    given, example = value, _EXAMPLE
    if isinstance(value, str):
        example = "currency=EUR,compute_hour=3.20,terabyte_scanned=5"
        pairs = (part.partition("=") for part in value.split(","))
        value = {key.strip(): amount.strip() for key, _, amount in pairs}
    if isinstance(value, Mapping):
        value = {key: price for key, price in value.items() if price is not None}
    if not isinstance(value, Mapping) or len(value) < 2 or "currency" not in value:
        raise OptionError(f"{info.context} must be a currency and prices, such as {example}, not {given!r:.80}")
    names = [field.name for field in fields(PriceList)]
    if unknown := [str(key) for key in value if key not in names]:
        raise OptionError(f"{info.context} has no {unknown[0]!r}; {did_you_mean(unknown[0], names, 'it has')}")
    return value


Prices = Annotated[PriceList, BeforeValidator(_as_prices)]


@dataclass(frozen=True)
class Balance:
    """Bytes per day of the ``days`` of the past week that snapshots cover."""

    rewritten: int  # by reclustering
    saved: int  # not opened by reads because of it
    opened: int  # by reads
    days: float


@dataclass(frozen=True)
class CostEstimate(Result):
    """The cost of clustering a table.

    Attributes:
        table: The table's identifier.
        cluster_key: The key, as users write it.
        average_depth: Average depth now.
        expected_average_depth: Average depth after the first clustering.
        first_bytes: Bytes that the first clustering reads.
        first_seconds: Its duration, least and most by the speeds of this table's rounds; None if there were none.
        loads: Recent commits that brought new rows, and were replayed.
        rewrites: Those that only wrote rows of replaced blocks again, as updates and deletes by copy-on-write do; they
            were replayed too.
        replacements: Those that made the table, or replaced it as a whole; there is nothing to replay them on.
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
    average_depth: float
    expected_average_depth: float
    first_bytes: int
    first_seconds: tuple[float, float] | None
    loads: int
    rewrites: int
    replacements: int
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
class ReclusterEstimate(Result):
    """The cost and gain of reclustering a table until nothing is left to do.

    Attributes:
        table: The table's identifier.
        cluster_key: The key, as users write it.
        blocks: Blocks now.
        average_depth: Average depth now.
        expected_average_depth: Average depth at the end.
        rounds: Rounds until the end.
        bytes: Bytes that they read.
        rows: Rows that they rewrite.
        estimated_seconds: Their duration at the speed of this table's own rounds, or None if there were none.
        gain: How many blocks fewer a query for one key opens on average.
    """

    table: str
    cluster_key: str
    blocks: int
    average_depth: float
    expected_average_depth: float
    rounds: int
    bytes: int
    rows: int
    estimated_seconds: float | None

    @property
    def gain(self) -> float:
        """How many blocks fewer a query for one key opens on average."""
        return max(0.0, self.average_depth - self.expected_average_depth)

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
        self.policy = replace(policy, max_bytes=None)
        self._now = now

    @classmethod
    def from_options(cls, table: ClusteredTable, options: ReclusterOptions, now: datetime | None = None) -> CostModel:
        """Return the model of a table under some options; the table follows their reads from here on."""
        table.reads.follow(options.reads)
        return cls(table, with_depth(table, options).policy, now)

    @cached_property
    def _week(self) -> PastWeek:
        return PastWeek(self._table, self.policy, self._now)

    def recluster(self, where: Predicate | None = None) -> ReclusterEstimate:
        """Estimate a final recluster of the blocks that ``where`` admits, without a budget."""
        snapshot = self._table.blocks(where)
        return self._recluster(self._table, snapshot.blocks, snapshot.planned)

    def _recluster(self, table: ClusteredTable, blocks: Blocks, planned: Blocks) -> ReclusterEstimate:
        rounds = list(islice(simulate_rounds(planned, table.policy(self.policy)), MAX_ROUNDS))
        after = rounds[-1][1] if rounds else planned
        read, speed = sum(step.bytes for step, _ in rounds), rewrite_speed(table)
        if planned is not blocks:
            after = after.take(np.flatnonzero(~after.fixed))
        return ReclusterEstimate(
            table=table.name,
            cluster_key=str(table.key),
            blocks=len(blocks),
            average_depth=clustering_information(blocks).average_depth,
            expected_average_depth=clustering_information(after).average_depth,
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
            table = table.under(ClusterKey(fields, curve=len(fields) if curve else 0), curve)
            metadata = metadata.items(items)
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
            average_depth=first.average_depth,
            expected_average_depth=first.expected_average_depth,
            first_bytes=first.bytes,
            first_seconds=_seconds((first.bytes, first.bytes), speeds),
            loads=len(week.loads),
            rewrites=sum(bool(entry.blocks_out and not entry.rows_loaded) for entry in week.changes),
            replacements=week.replacements,
            days=round(week.days, 2),
            loaded_bytes_per_day=week.loaded_bytes_per_day,
            bytes_per_day=per_day,
            seconds_per_day=_seconds(per_day, speeds),
            actual_bytes_per_day=week.rewritten_bytes_per_day if is_own_key else None,
            actual_seconds_per_day=week.rewriting_seconds_per_day if is_own_key else None,
            saved_bytes_per_day=None if balance is None else balance.saved,
        )

    def shortfall(self, depth: float, threshold: float) -> tuple[Reason, ...]:
        """Return the reason with the bytes a day that loads add to rewrite if a budget does not keep up with them.

        It does not if the last rounds of the week, three or more, have left the table above its threshold, and it is
        deeper than before the first of them.
        """
        week = self._week
        rounds = list(takewhile(lambda r: (r.depth_after or 0.0) > threshold, reversed(week.rounds)))
        if len(rounds) < 3 or depth <= (rounds[-1].depth_before or 0.0):
            return ()
        added = round(week.bytes_read(self._table, None, 1) * week.scale / week.days) if week.changes else 0
        return (Reason(Stop.BUDGET_TOO_SMALL, (added,)),) if added > week.rewritten_bytes_per_day else ()

    def balance(self) -> Balance | None:
        """Return the cost and the benefit of the week's reclustering under the table's own key, or None if unknown.

        Merges save what reads would waste of unmerged blocks, less what they waste now: nothing at the start of the
        week and all at its end, a half on average. What they save in later weeks does not count.
        """
        table = self._table
        if not is_cluster_key(table.iceberg, table.key) or table.reads.for_key(table.key).reads is None:
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
