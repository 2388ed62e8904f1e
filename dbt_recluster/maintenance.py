"""The loop: read the blocks, plan, merge, commit, again. Knows the planner and Iceberg; knows nothing of dbt.

from dbt_recluster.maintenance import recluster, clustering_information

report = recluster(spark, "analytics.events", cluster_by=["event_date", "user_id"], final=True)
print(report.depth_before, report.depth_after)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.dry_run import dry_run as describe
from dbt_recluster.exceptions import ConcurrentChangeError, MergeFailedError, ReclusterError
from dbt_recluster.history import round_summary
from dbt_recluster.iceberg.block_set import MergedSet, block_set
from dbt_recluster.iceberg.blocks import BlockMetadata, IntArray
from dbt_recluster.iceberg.commit import MAX_ATTEMPTS, back_off, commit_merges
from dbt_recluster.iceberg.errors import short_message
from dbt_recluster.iceberg.jobs import job_description
from dbt_recluster.iceberg.levels import obsolete_properties
from dbt_recluster.iceberg.merge import merge_sets
from dbt_recluster.iceberg.predicates import parse_predicate
from dbt_recluster.iceberg.round_jobs import RoundTold
from dbt_recluster.iceberg.scan import scan_tasks
from dbt_recluster.iceberg.sorting import set_cluster_key
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.information import blocks_opened, clustering_information
from dbt_recluster.observation import Observation, observe, resolve_key
from dbt_recluster.options import planning_policy, positive
from dbt_recluster.orphans import orphan_note
from dbt_recluster.outcome import ReclusterReport, Round
from dbt_recluster.planner import Plan, Policy, plan
from dbt_recluster.planner import clustering_information as planner_information
from dbt_recluster.progress import Listener, Teller
from dbt_recluster.suspension import suspended_since

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ReclusterReport", "Round", "blocks_opened", "clustering_information", "recluster"]

MAX_ROUNDS = 100
_TARGET_BYTES = "write.target-file-size-bytes"
_DEFAULT_TARGET_BYTES = 512 * 1024 * 1024


def recluster(
    spark: SparkSession,
    table: str,
    cluster_by: str | Sequence[str] | None = None,
    *,
    final: bool = False,
    where: str | None = None,
    max_bytes: int | None = None,
    depth: float | None = None,
    strategy: str | None = None,
    block_rows: int = 1_000_000,
    dry_run: bool = False,
    trigger: str = "manual",
    listener: Listener | None = None,
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
        strategy: How block sets are chosen, one of ``planner.STRATEGIES``; None takes the planner's default.
        block_rows: The most rows in a new block.
        dry_run: Plan and report; change nothing.
        trigger: What the history says of it: ``run`` after a build, else ``manual``.
        listener: Told when a round begins, about twice a second how far its merge is (from another thread), and when
            it is committed.

    Returns:
        The report; its ``rounds`` are empty when there was nothing to do.

    Raises:
        NotAnIcebergTableError, ClusterKeyError, OptionError, PredicateError: Bad input, found before anything
            is written.
        ConcurrentChangeError: Other writers were faster five times in a row.
        MergeFailedError, CommitFailedError: Blocks could not be read or written, or the catalog was not there.
        CommitStateUnknownError: The catalog did not say whether a commit took place.
        OrphanFilesError: Something failed, and files written before that could not be deleted.
    """
    started = time.monotonic()
    budget = positive("max_bytes", max_bytes)
    policy = planning_policy(depth, strategy, budget, positive("block_rows", block_rows) or block_rows)
    target = IcebergTable.load(spark, table)
    key = resolve_key(target, cluster_by)
    if where is not None:
        parse_predicate(target, where)  # before anything is written
    report = ReclusterReport(table, str(key), suspended=suspended_since(target.properties))
    if not dry_run:
        target.check_writes_reach_main()
    if not dry_run and cluster_by is not None and report.suspended is None:
        set_cluster_key(target, key)

    attempts = 0
    while True:
        seen = _observe(target, key, where)
        report.depth_after = planner_information(seen.blocks).average_depth
        report.blocks_after = len(seen.metadata)
        if not report.rounds:
            report.depth_before, report.blocks_before = report.depth_after, report.blocks_after
        report.suspended = suspended_since(target.properties)
        if report.suspended is not None and not dry_run:
            report.reason = f"suspended since {report.suspended}"
            break
        if budget is not None:
            policy = replace(policy, max_bytes=max(0, budget - report.bytes_in))
        chosen = plan(seen.blocks, policy)
        report.reason = chosen.reason
        if dry_run:
            report.plan = describe(target, key, seen, chosen, policy)
        if dry_run or not chosen.tasks or (report.rounds and not final):
            break
        if len(report.rounds) == MAX_ROUNDS:
            report.reason = f"stopped after {MAX_ROUNDS} rounds"
            break
        teller = Teller(listener, target, report, chosen, budget)
        teller.begins()
        try:
            number = len(report.rounds) + 1
            with job_description(spark, f"recluster {table}: round {number}"):
                done = _round(target, key, seen, chosen, policy, trigger, where, attempts, teller)
            report.rounds.append(done)
            report.conflicts += done.conflicts
            report.orphans += done.orphans
            teller.ends(done)
            attempts = 0
        except BaseException as e:
            teller.fails()
            if isinstance(e, ConcurrentChangeError):
                attempts += 1
                report.conflicts += 1
                report.orphans += e.orphans
            if not isinstance(e, ConcurrentChangeError) or attempts == MAX_ATTEMPTS:
                if isinstance(e, ReclusterError):
                    _tell_of_what_came_before(e, report)
                raise
            back_off(attempts)
        target.refresh()
    report.seconds = time.monotonic() - started
    return report


def _tell_of_what_came_before(error: ReclusterError, report: ReclusterReport) -> None:
    """Add to an error what would be lost with the report: rounds that were committed, and files left behind."""
    notes = [str(error).removesuffix(".")]
    if count := len(report.rounds):
        notes.append(
            f"{count} round{'s' if count > 1 else ''} before it {'were' if count > 1 else 'was'} committed"
        )
    if report.orphans:
        notes.append(orphan_note(report.table, report.orphans))
    error.args = (". ".join(notes) + ".",)
    error.orphans = tuple(dict.fromkeys((*report.orphans, *error.orphans)))
    error.bytes_rewritten = report.bytes_in


def _observe(table: IcebergTable, key: ClusterKey, where: str | None) -> Observation:
    """Read the blocks; again when another writer's expiry deleted the metadata that was being read."""
    for _ in range(MAX_ATTEMPTS - 1):
        snapshot_id = table.snapshot_id
        try:
            return observe(table, key, where)
        except ReclusterError:
            raise
        except Exception:
            table.refresh()
            if table.snapshot_id == snapshot_id:
                raise
    return observe(table, key, where)


def _round(
    table: IcebergTable,
    key: ClusterKey,
    seen: Observation,
    chosen: Plan,
    policy: Policy,
    trigger: str,
    where: str | None,
    conflicts: int,
    teller: Teller,
) -> Round:
    started = time.monotonic()
    metadata = seen.metadata
    assert metadata.snapshot_id is not None
    sets = [seen.eligible[task.blocks] for task in chosen.tasks]
    # Before the merge: what others set meanwhile is of blocks that were not seen.
    stays = np.ones(len(metadata), dtype=bool)
    stays[np.concatenate(sets)] = False
    obsolete = obsolete_properties(table.properties, np.unique(metadata.added_by[stays]))
    try:
        merges = _merge(table, key, metadata, chosen, sets, policy.block_rows, teller.under_way)
    except Exception as e:
        _raise_if_changed(table, metadata, np.concatenate(sets), e)
        if isinstance(e, ReclusterError):
            raise
        raise MergeFailedError(
            f"Blocks of {table.name} could not be merged: {short_message(e)}. This round changed nothing. A file "
            "that Spark had begun may be left behind; remove_orphan_files removes it."
        ) from e

    def summary(done: Sequence[MergedSet]) -> dict[str, str]:
        taken = set(map(id, done))
        tasks = [task for task, merge in zip(chosen.tasks, merges, strict=True) if id(merge) in taken]
        return round_summary(
            _figures(done),
            trigger=trigger,
            cluster_by=str(key),
            where=where,
            blocks=seen.blocks,
            chosen=replace(chosen, tasks=tuple(tasks)),
            policy=policy,
            seconds=time.monotonic() - started,
            conflicts=conflicts,
        )

    committed = commit_merges(table, metadata.snapshot_id, merges, obsolete, summary)
    return Round(
        **_figures(committed.merges),
        seconds=time.monotonic() - started,
        snapshot_ids=committed.snapshot_ids,
        conflicts=committed.conflicts,
        orphans=committed.orphans,
    )


def _figures(merges: Sequence[MergedSet]) -> dict[str, int]:
    return {
        "sets": len(merges),
        "blocks_in": sum(len(merge.source.files) for merge in merges),
        "blocks_out": sum(len(merge.files) for merge in merges),
        "bytes_in": sum(merge.source.bytes for merge in merges),
        "bytes_out": sum(merge.bytes for merge in merges),
        "rows": sum(merge.rows for merge in merges),
    }


def _raise_if_changed(
    table: IcebergTable, metadata: BlockMetadata, chosen: IntArray, error: Exception
) -> None:
    """Raise ConcurrentChangeError when a merge failed after somebody had removed one of its blocks.

    An expiry may then delete the block's file while it is read.
    """
    paths = metadata.path.take(chosen).to_pylist()
    try:
        table.refresh()
        changed = table.snapshot_id is None or len(scan_tasks(table, table.snapshot_id, paths)) < len(paths)
    except Exception:
        return  # Spark or the catalog is gone, and ``error`` tells why
    if changed:
        raise ConcurrentChangeError(
            f"Another writer removed blocks of {table.name} while they were merged",
            orphans=getattr(error, "orphans", ()),
        ) from error


def _merge(
    table: IcebergTable,
    key: ClusterKey,
    metadata: BlockMetadata,
    chosen: Plan,
    sets: Sequence[IntArray],
    block_rows: int,
    told: RoundTold | None,
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
    return merge_sets(table, int(metadata.snapshot_id or 0), block_sets, key, block_rows, target_bytes, told)
