"""What clustering a table would cost: once, and for each day of loads like those of the past week.

The planner plays it through on the bounds of the blocks that are there and of those that were loaded. Nothing is
changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import numpy as np

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.history import HistoryEntry, clustering_history
from dbt_recluster.iceberg.blocks import read_blocks, read_blocks_added
from dbt_recluster.iceberg.levels import levels_and_runs
from dbt_recluster.iceberg.snapshots import current_history
from dbt_recluster.iceberg.sorting import is_cluster_key
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.observation import observe, planner_blocks, resolve_key
from dbt_recluster.options import planning_policy
from dbt_recluster.planner import Blocks, Policy, plan
from dbt_recluster.planner import clustering_information as planner_information
from dbt_recluster.planner.simulation import simulate, simulate_final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = 7
_MOST_LOADS = 200


@dataclass(frozen=True)
class CostEstimate:
    """What clustering would cost.

    Attributes:
        table: The table's identifier.
        cluster_key: The key, as users write it.
        depth: Average depth now.
        expected_depth: Average depth after the first clustering.
        first_bytes: Bytes that the first clustering reads.
        first_seconds: How long it takes, least and most by the speeds of this table's rounds; None where there
            were none.
        loads: Loads of the past days that were played through.
        days: Days they stand for, at least one.
        loaded_bytes_per_day: Bytes they brought a day.
        bytes_per_day: Bytes a day that reclustering after each load reads: least with one round after each load,
            most with rounds until there is nothing left to do.
        seconds_per_day: Likewise, by the least and the greatest speed.
        actual_bytes_per_day: What reclustering really read in these days; None under another key than the
            table's own, or where nothing was reclustered.
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


def estimate_clustering_cost(
    spark: SparkSession,
    table: str,
    cluster_by: str | Sequence[str] | None = None,
    *,
    depth: float | None = None,
    strategy: str | None = None,
    block_rows: int = 1_000_000,
    now: datetime | None = None,
) -> CostEstimate:
    """Play through the first clustering of a table, and the loads of the past seven days on what they came on top of.

    Args:
        spark: A session with Iceberg's extensions.
        table: ``schema.table`` or ``catalog.schema.table``.
        cluster_by: The key to cluster by; None takes the table's sort order.
        depth: The threshold, as in :func:`dbt_recluster.maintenance.recluster`.
        strategy: Likewise.
        block_rows: Likewise.
        now: The end of the seven days, now by default.

    Raises:
        NotAnIcebergTableError, ClusterKeyError, OptionError: Bad input.
    """
    policy = planning_policy(depth, strategy, None, block_rows)
    target = IcebergTable.load(spark, table)
    key = resolve_key(target, cluster_by)
    return estimate(target, key, policy, recent_history(spark, target, now))


@dataclass(frozen=True)
class RecentHistory:
    """What happened to a table in the days that an estimate plays through.

    Attributes:
        now: Their end.
        entries: What happened, oldest first.
        parents: For each kept snapshot the one before it, which may have expired; None for the first.
    """

    now: datetime
    entries: Sequence[HistoryEntry]
    parents: Mapping[int, int | None]

    @property
    def days(self) -> float:
        """The days that the snapshots tell of, at least one."""
        first = self.entries[0].at if self.entries else self.now
        return max(1.0, (self.now - first).total_seconds() / 86400)

    def loads(self) -> list[HistoryEntry]:
        """Return the loads that brought blocks, except one that came on top of what nobody knows any more."""
        found = [
            each for each in self.entries if each.kind not in ("recluster", "replace") and each.blocks_out
        ]
        return found if found and self._known_before(found[0]) else found[1:]

    def before(self, load: HistoryEntry) -> int | None:
        """Return the snapshot that a load came on top of, None where the table was new."""
        return self.parents[load.snapshot_ids[0]]

    def _known_before(self, load: HistoryEntry) -> bool:
        parent = self.before(load)
        return parent is None or parent in self.parents


def recent_history(spark: SparkSession, table: IcebergTable, now: datetime | None = None) -> RecentHistory:
    """Return what happened to a table in the past seven days."""
    now = now or datetime.now(timezone.utc)
    parents = {snapshot.id: snapshot.parent for snapshot in current_history(table)}
    entries = clustering_history(spark, table.name, now - timedelta(days=DAYS))
    # Somebody may commit between the two.
    known = [entry for entry in entries if all(each in parents for each in entry.snapshot_ids)]
    return RecentHistory(now, known, parents)


def estimate(target: IcebergTable, key: ClusterKey, policy: Policy, past: RecentHistory) -> CostEstimate:
    """Play one key through on what :func:`recent_history` returned, which serves any number of keys."""
    loads, days = past.loads(), past.days
    played = loads[-_MOST_LOADS:]
    here = observe(target, key).blocks
    first = simulate_final(here, policy, rounds=100)
    least = most = 0
    if played:
        # From where the table stood then: the same loads on top of themselves would overlap where none did.
        blocks, waiting = _arrivals(target, key, policy, past.before(played[0]), played)
        least, most = (_kept(blocks, policy, waiting, rounds) for rounds in (1, 100))
    scale = len(loads) / len(played) / days if played else 0.0
    per_day = (round(min(least, most) * scale), round(max(least, most) * scale))
    rounds = [entry for entry in past.entries if entry.kind == "recluster"]
    speeds = [entry.bytes_in / entry.seconds for entry in rounds if entry.seconds and entry.bytes_in]
    actual = sum(entry.bytes_in for entry in rounds)
    own = is_cluster_key(target, key) and rounds
    return CostEstimate(
        table=target.name,
        cluster_key=str(key),
        depth=planner_information(here).average_depth,
        expected_depth=planner_information(first.blocks).average_depth,
        first_bytes=first.bytes,
        first_seconds=_seconds((first.bytes, first.bytes), speeds),
        loads=len(loads),
        days=round(days, 2),
        loaded_bytes_per_day=round(sum(entry.bytes_out for entry in loads) / days),
        bytes_per_day=per_day,
        seconds_per_day=_seconds(per_day, speeds),
        actual_bytes_per_day=round(actual / days) if own else None,
    )


def _seconds(amount: tuple[int, int], speeds: Sequence[float]) -> tuple[float, float] | None:
    return (round(amount[0] / max(speeds), 1), round(amount[1] / min(speeds), 1)) if speeds else None


def _arrivals(
    table: IcebergTable, key: ClusterKey, policy: Policy, start: int | None, loads: Sequence[HistoryEntry]
) -> tuple[Blocks, list[int]]:
    """Return the blocks of snapshot ``start`` and those of the loads on one axis, and the level each load waits at.

    A block of the greatest level or above is never planned and never touched, so a load that has not arrived yet
    waits there, each at a level of its own, and arrives by becoming level 0.
    """
    ids = {snapshot for entry in loads for snapshot in entry.snapshot_ids}
    chosen, level, run, waiting = [], [], [], []
    here = None if start is None else read_blocks(table, key, start)
    if here is not None:
        ids.update(map(int, np.unique(here.added_by)))
    known = read_blocks_added(table, key, sorted(ids))
    if here is not None:
        paths = here.path.to_numpy(zero_copy_only=False)
        live = np.flatnonzero(np.isin(known.path.to_numpy(zero_copy_only=False), paths))
        live_level, live_run = levels_and_runs(table, known.take(live), key)
        chosen.append(live)
        level.append(live_level)
        run.append(live_run)
    for number, entry in enumerate(loads):
        brought = np.flatnonzero(np.isin(known.added_by, entry.snapshot_ids))
        if not len(brought):
            continue  # its snapshot is known, its files are not any more
        waiting.append(policy.max_level + 1 + number)
        chosen.append(brought)
        level.append(np.full(len(brought), waiting[-1]))
        run.append(np.zeros(len(brought), np.int64))
    places, levels, runs = (np.concatenate([np.zeros(0, np.int64), *each]) for each in (chosen, level, run))
    return planner_blocks(known.take(places), levels, runs), waiting


def _kept(blocks: Blocks, policy: Policy, waiting: Sequence[int], rounds: int) -> int:
    """Return the bytes that keeping the table clustered reads, with so many rounds at most after each load."""
    blocks = simulate_final(blocks, policy, rounds=100).blocks
    spent = 0
    for level in waiting:
        blocks = replace(blocks, level=np.where(blocks.level == level, 0, blocks.level))
        for _ in range(rounds):
            found = plan(blocks, policy)
            if not found.tasks:
                break
            spent += found.bytes
            blocks = simulate(blocks, found, policy)
    return spent
