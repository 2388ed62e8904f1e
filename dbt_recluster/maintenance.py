"""The loop: read the blocks, plan, merge, commit, again. Knows the planner and Iceberg; knows nothing of dbt.

from dbt_recluster.maintenance import recluster, clustering_information

report = recluster(spark, "analytics.events", cluster_by=["event_date", "user_id"], final=True)
print(report.depth_before, report.depth_after)
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dbt_recluster.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.exceptions import ClusterKeyError, ConcurrentChangeError, OptionError
from dbt_recluster.iceberg.block_set import MergedSet, block_set
from dbt_recluster.iceberg.blocks import BlockMetadata, IntArray, read_blocks
from dbt_recluster.iceberg.commit import commit_merges
from dbt_recluster.iceberg.levels import levels_and_runs
from dbt_recluster.iceberg.merge import merge_sets
from dbt_recluster.iceberg.predicates import may_match, parse_predicate
from dbt_recluster.iceberg.scan import file_paths, scan_tasks
from dbt_recluster.iceberg.sorting import set_cluster_key, table_cluster_key
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.planner import Blocks, Plan, Policy, PolicyError, plan
from dbt_recluster.planner import clustering_information as planner_information

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ATTEMPTS = 5
MAX_ROUNDS = 100
_TARGET_BYTES = "write.target-file-size-bytes"
_DEFAULT_TARGET_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class Round:
    """One round that was committed: plan, merge, commit."""

    sets: int
    blocks_in: int
    blocks_out: int
    bytes_in: int
    bytes_out: int
    rows: int
    seconds: float
    snapshot_ids: tuple[int, ...]


@dataclass
class ReclusterReport:
    """What a recluster did, or would do.

    Attributes:
        table: The table's identifier.
        cluster_key: The key, as users write it.
        rounds: The rounds that were committed, in order.
        blocks_before, blocks_after: Blocks of the table.
        depth_before, depth_after: Average depth over the blocks that ``where`` admits.
        conflicts: How often a round started again because another writer was faster.
        seconds: Wall time of everything.
        reason: Why it stopped.
        plan: With ``dry_run``, what the next round would rewrite.
    """

    table: str
    cluster_key: str
    rounds: list[Round] = field(default_factory=list)
    blocks_before: int = 0
    blocks_after: int = 0
    depth_before: float = 0.0
    depth_after: float = 0.0
    conflicts: int = 0
    seconds: float = 0.0
    reason: str = ""
    plan: Plan | None = None

    @property
    def blocks_in(self) -> int:
        """Blocks rewritten, over all rounds."""
        return sum(each.blocks_in for each in self.rounds)

    @property
    def blocks_out(self) -> int:
        """Blocks written, over all rounds."""
        return sum(each.blocks_out for each in self.rounds)

    @property
    def bytes_in(self) -> int:
        """Bytes of the blocks rewritten."""
        return sum(each.bytes_in for each in self.rounds)

    @property
    def bytes_out(self) -> int:
        """Bytes of the blocks written."""
        return sum(each.bytes_out for each in self.rounds)

    @property
    def rows(self) -> int:
        """Rows rewritten, over all rounds."""
        return sum(each.rows for each in self.rounds)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain numbers and strings."""
        return {
            "table": self.table,
            "cluster_key": self.cluster_key,
            "rounds": len(self.rounds),
            "blocks_in": self.blocks_in,
            "blocks_out": self.blocks_out,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "rows": self.rows,
            "blocks_before": self.blocks_before,
            "blocks_after": self.blocks_after,
            "depth_before": self.depth_before,
            "depth_after": self.depth_after,
            "conflicts": self.conflicts,
            "seconds": round(self.seconds, 3),
            "reason": self.reason,
        }


def recluster(
    spark: SparkSession,
    table: str,
    cluster_by: str | Sequence[str] | None = None,
    *,
    final: bool = False,
    where: str | None = None,
    max_bytes: int | None = None,
    depth: float | None = None,
    block_rows: int = 1_000_000,
    dry_run: bool = False,
) -> ReclusterReport:
    """Recluster a table: merge the block sets that make it deep, until it is well clustered.

    Args:
        spark: A session with Iceberg's extensions.
        table: ``schema.table`` or ``catalog.schema.table``.
        cluster_by: The cluster key. None takes the table's sort order; another key than that becomes its sort
            order.
        final: Repeat rounds until there is nothing left to do. Otherwise one round.
        where: A predicate; only blocks that may hold a matching row are looked at and rewritten, as whole
            blocks.
        max_bytes: The most bytes to rewrite in this call, over all rounds.
        depth: The average depth up to which the table counts as well clustered; below 1, a ratio of the
            number of blocks. None takes the planner's default.
        block_rows: The most rows in a new block.
        dry_run: Plan and report; change nothing.

    Returns:
        The report; its ``rounds`` are empty when there was nothing to do.

    Raises:
        NotAnIcebergTableError, ClusterKeyError, OptionError, PredicateError: Bad input, found before anything
            is written.
        ConcurrentChangeError: Other writers were faster five times in a row.
        CommitStateUnknownError: The catalog did not say whether a commit took place.
    """
    started = time.monotonic()
    budget = _positive("max_bytes", max_bytes)
    policy = _policy(depth, budget, _positive("block_rows", block_rows) or block_rows)
    target = IcebergTable.load(spark, table)
    key = _resolve_key(target, cluster_by)
    if where is not None:
        parse_predicate(target, where)  # before anything is written
    if not dry_run and cluster_by is not None:
        set_cluster_key(target, key)

    report = ReclusterReport(table, str(key))
    attempts = 0
    while True:
        seen = _observe(target, key, where)
        report.depth_after = planner_information(seen.blocks).average_depth
        report.blocks_after = len(seen.metadata)
        if not report.rounds:
            report.depth_before, report.blocks_before = report.depth_after, report.blocks_after
        if budget is not None:
            policy = replace(policy, max_bytes=max(0, budget - report.bytes_in))
        chosen = plan(seen.blocks, policy)
        report.reason = chosen.reason
        if dry_run:
            report.plan = chosen
        if dry_run or not chosen.tasks or (report.rounds and not final):
            break
        if len(report.rounds) == MAX_ROUNDS:
            report.reason = f"stopped after {MAX_ROUNDS} rounds"
            break
        try:
            report.rounds.append(_round(target, key, seen, chosen, policy.block_rows))
            attempts = 0
        except ConcurrentChangeError:
            attempts += 1
            report.conflicts += 1
            if attempts == MAX_ATTEMPTS:
                raise
            # Two reclusters that failed each other must not meet again at the same moment.
            time.sleep(random.uniform(0, 0.1 * 2**attempts))
        target.refresh()
    report.seconds = time.monotonic() - started
    return report


def clustering_information(
    spark: SparkSession, table: str, cluster_by: str | Sequence[str] | None = None, where: str | None = None
) -> dict[str, Any]:
    """Return the clustering metrics of a table under its own key or any other, as a dictionary.

    Args:
        spark: A session with Iceberg's extensions.
        table: ``schema.table`` or ``catalog.schema.table``.
        cluster_by: Any key; None takes the table's sort order. The table is not changed.
        where: A predicate; only blocks that may hold a matching row count.

    Raises:
        NotAnIcebergTableError, ClusterKeyError, PredicateError: Bad input.
    """
    target = IcebergTable.load(spark, table)
    key = _resolve_key(target, cluster_by)
    return {"cluster_key": str(key), **planner_information(_observe(target, key, where).blocks).as_dict()}


def blocks_opened(spark: SparkSession, table: str, where: str) -> int:
    """Return how many blocks a query with this predicate opens, by Iceberg's own scan planning.

    Raises:
        NotAnIcebergTableError, PredicateError: Bad input.
    """
    target = IcebergTable.load(spark, table)
    if target.snapshot_id is None:
        return 0
    return len(file_paths(target, target.snapshot_id, parse_predicate(target, where)))


def _policy(depth: float | None, max_bytes: int | None, block_rows: int) -> Policy:
    options: dict[str, Any] = {} if depth is None else {"depth": depth}
    try:
        return Policy(max_bytes=max_bytes, block_rows=block_rows, **options)
    except PolicyError as e:
        raise OptionError(str(e)) from e


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value <= 0):
        raise OptionError(f"{name} must be a whole number above 0, not {value!r}")
    return value


def _resolve_key(table: IcebergTable, cluster_by: str | Sequence[str] | None) -> ClusterKey:
    if cluster_by is not None:
        return parse_cluster_key(cluster_by).check(table.column_types())
    key = table_cluster_key(table)
    if key is None:
        raise ClusterKeyError(f"{table.name} has no sort order; name a cluster key with cluster_by")
    return key


@dataclass(frozen=True)
class _Observation:
    """The table's blocks at one moment, and those of them that a plan may choose from.

    Attributes:
        metadata: All blocks.
        eligible: Positions in ``metadata`` of the blocks that ``where`` admits.
        blocks: The eligible blocks as the planner takes them, in the order of ``eligible``.
    """

    metadata: BlockMetadata
    eligible: IntArray
    blocks: Blocks


def _observe(table: IcebergTable, key: ClusterKey, where: str | None) -> _Observation:
    metadata = read_blocks(table, key)
    eligible = (
        np.arange(len(metadata)) if where is None else np.flatnonzero(may_match(table, metadata, where))
    )
    chosen = metadata if where is None else metadata.take(eligible)
    level, run = levels_and_runs(chosen, table.properties, int(table.java.sortOrder().orderId()))
    blocks = Blocks.build(
        lower=chosen.lower,
        upper=chosen.upper,
        rows=chosen.rows,
        bytes=chosen.bytes,
        level=level,
        run=run,
        partition=chosen.partition,
        unbounded=chosen.unbounded,
    )
    return _Observation(metadata, eligible, blocks)


def _round(table: IcebergTable, key: ClusterKey, seen: _Observation, chosen: Plan, block_rows: int) -> Round:
    started = time.monotonic()
    metadata = seen.metadata
    assert metadata.snapshot_id is not None
    sets = [seen.eligible[task.blocks] for task in chosen.tasks]
    merges = _merge(table, key, metadata, chosen, sets, block_rows)
    replaced = np.concatenate(sets)
    stays = np.ones(len(metadata), dtype=bool)
    stays[replaced] = False
    figures = {
        "sets": len(merges),
        "blocks_in": len(replaced),
        "blocks_out": sum(len(merge.files) for merge in merges),
        "bytes_in": int(metadata.bytes[replaced].sum()),
        "bytes_out": sum(merge.bytes for merge in merges),
        "rows": sum(merge.rows for merge in merges),
    }
    summary = {f"recluster.{name}": str(value) for name, value in figures.items()}
    live = np.unique(metadata.added_by[stays])
    snapshots = commit_merges(table, metadata.snapshot_id, merges, live, summary)
    return Round(**figures, seconds=time.monotonic() - started, snapshot_ids=tuple(snapshots))


def _merge(
    table: IcebergTable,
    key: ClusterKey,
    metadata: BlockMetadata,
    chosen: Plan,
    sets: Sequence[IntArray],
    block_rows: int,
) -> list[MergedSet]:
    paths = [metadata.path.take(positions).to_pylist() for positions in sets]
    wanted = [path for each in paths for path in each]
    by_path = scan_tasks(
        table, int(metadata.snapshot_id or 0), wanted, bounds_of=[field.column for field in key.fields]
    )
    block_sets = [
        block_set(by_path, task_paths, int(metadata.spec_id[positions[0]]), task.level, task.run)
        for task, positions, task_paths in zip(chosen.tasks, sets, paths, strict=True)
    ]
    target_bytes = int(table.properties.get(_TARGET_BYTES, _DEFAULT_TARGET_BYTES))
    return merge_sets(table, block_sets, key, block_rows, target_bytes)
