"""Recluster a table: read its blocks, plan, merge, commit, and again until there is a reason to stop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from dbt_recluster.advice.cost_model import CostModel, with_depth
from dbt_recluster.clustering import history
from dbt_recluster.clustering.checkpoint import Checkpoint, nothing_to_do
from dbt_recluster.clustering.conditions import block_count, met_condition
from dbt_recluster.clustering.curve_boundaries import recorded_curve
from dbt_recluster.clustering.drawn_curve import draw_curve
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.planned_round import PlannedRound
from dbt_recluster.clustering.result import MAX_ROUNDS, Progress, ReclusterResult, Round, RoundProgress
from dbt_recluster.clustering.table import ClusteredTable, SnapshotBlocks
from dbt_recluster.exceptions import (
    ClusterKeyError,
    ConcurrentChangeError,
    MergeFailedError,
    ReclusterError,
    orphan_note,
)
from dbt_recluster.iceberg import sort_order
from dbt_recluster.iceberg.commit import MAX_ATTEMPTS, RoundCommit, back_off
from dbt_recluster.iceberg.iceberg_table import Changes
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.iceberg.metadata.scan import changed_tasks
from dbt_recluster.iceberg.recorded_levels import level_properties
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, RewrittenGroup
from dbt_recluster.iceberg.rewrite.merge import BlockLimits, Merger
from dbt_recluster.iceberg.rewrite.writing import check_location
from dbt_recluster.iceberg.session.interruption import stop_if_interrupted
from dbt_recluster.iceberg.session.jobs import MergeProgress, job_description
from dbt_recluster.planner import Plan, Policy, clustering_information
from dbt_recluster.planner.merges import simulate

# No sort order has this id.
_NO_ORDER = -1
_ROW_IDS_LOST = (
    "Iceberg keeps no row ids in ORC files: every rewrite, its own included, gives the rows new ids"
)
_LISTED_AGAIN = (
    "{count} listed more than once in the table's metadata, such as {path}. Iceberg removes files by path, so a merge "
    "would lose rows: they are left as they are. While nobody else writes, INSERT OVERWRITE {table} SELECT * FROM "
    "{table} writes all rows anew, as often as a query returns them now, and SELECT DISTINCT * writes equal rows once"
)


class Recluster:
    """One call of recluster on one table, under the key to cluster by; ``changes`` are further properties to set."""

    def __init__(
        self, table: ClusteredTable, options: ReclusterOptions, changes: Changes | None = None
    ) -> None:
        self._table, self._options, self._changes = table, options, changes or {}
        self._result = ReclusterResult(
            table.name, str(table.key), suspended=table.suspended, branch=table.iceberg.branch
        )
        self._change = sort_order.TableChange()
        self._boundaries: dict[str, str] = {}
        self._rewrites: list[history.ForeignRewrite] = []
        self._conflicts_in_a_row = 0
        # The snapshots whose blocks later rounds plan: those that the first committed round knew, and those of rounds.
        # Otherwise `final` would not end beside a writer who is as fast.
        self._added_by: set[int] = set()

    def run(self) -> ReclusterResult:
        """Repeat rounds until there is a reason to stop.

        Raises:
            PredicateError, NotAnIcebergTableError: Bad input, detected before anything is written.
            UnsupportedTableError: New files would not record bounds of the key, so nothing would be gained.
            ConcurrentChangeError: Other writers were faster five times in a row.
            MergeFailedError, CommitFailedError, CommitStateUnknownError, OrphanFilesError: See their docstrings.
        """
        started, result = time.monotonic(), self._result
        self._prepare()
        reason = self._nothing_to_do()
        if reason is None:
            self._repeat_rounds()
        else:
            result.reason, result.depth_before, result.depth_after = reason, None, None
            result.blocks_before = result.blocks_after = block_count(self._table)
        if not (result.rounds or self._options.dry_run or result.suspended or self._table.iceberg.branch):
            self._change_alone.commit(self._table.iceberg)
            history.record_warning(self._table, self._rewrites)
        if result.rounds and self._table.reads.restricting(self._table.key).reads is not None:
            with suppress(Exception):  # an expiry meanwhile; the rounds are committed
                result.loss = CostModel(self._table, self._options.policy).loss()
        result.seconds = time.monotonic() - started
        return result

    def _repeat_rounds(self) -> None:
        while True:
            stop_if_interrupted()
            planned = self._plan()
            if self._is_done(planned):
                break
            self._try_round(planned)
            self._table.refresh()
        if not planned.plan.block_sets and not planned.plan.limited and not planned.blocks.late:
            planned.checkpoint.remember(planned.blocks.metadata.snapshot_id)
        if self._options.dry_run:
            self._result.plan = planned.describe(self._policy)

    def _prepare(self) -> None:
        """Check what has not been checked. Nothing is changed before the first merge can be committed too."""
        if self._options.where is not None:
            self._table.predicate(self._options.where)
        self._result.warnings += self._table.reads.follow(self._options.reads)
        iceberg, key = self._table.iceberg, self._table.key
        self._options, depth = with_depth(self._table, self._options)
        properties = {**self._changes, **(depth.as_properties() if depth else {})}
        self._change = sort_order.TableChange(key, properties, replaces=iceberg.sort_order_id)
        sort_order.check_bounds_are_recorded(self._change.pending(iceberg), key)
        if self._options.dry_run or self._result.suspended is not None:
            return
        # All branches share the sort order and the properties.
        if iceberg.branch is not None and not sort_order.is_cluster_key(iceberg, key):
            raise ClusterKeyError(
                f"{self._table.name} has another sort order than {key}, and all its branches share it: set it with "
                f"alter table {self._table.name} write ordered by, or recluster the main branch by {key} first"
            )
        iceberg.check_writes_reach_main()
        check_location(iceberg)
        if sort_order.loses_row_ids(iceberg) and not level_properties(iceberg.properties):
            self._result.warnings.append(_ROW_IDS_LOST)
        if iceberg.branch is None:
            self._rewrites = history.foreign_rewrites(self._table, only_new=True)
        self._result.warnings += history.rewrite_warnings(self._rewrites)

    def _nothing_to_do(self) -> str | None:
        """Return why a build is not followed by a recluster: its conditions, or what has changed; otherwise None.

        Only after a build: who reclusters by hand wants to know how deep the whole table is.
        """
        options, result = self._options, self._result
        if options.trigger != "run" or result.suspended is not None or self._table.iceberg.branch is not None:
            return None
        if options.has_conditions:
            condition = met_condition(self._table, options)
            if not condition.is_met:
                result.waits_for = condition.waits_for or None
                return condition.text
            result.condition_met = condition.text
        if options.where is not None or options.dry_run:
            return None
        return nothing_to_do(self._table, self._policy)

    def _read(self) -> SnapshotBlocks:
        result, where = self._result, self._options.where
        added_by = self._added_by if result.rounds else None
        blocks = self._table.current_blocks(where, added_by)
        snapshot_id = blocks.metadata.snapshot_id
        field_ids = sort_order.key_field_ids(self._table.iceberg, self._table.key)
        self._change = replace(self._change, field_ids=field_ids)
        if boundaries := draw_curve(self._table, blocks.planned_metadata):
            self._boundaries = boundaries
            blocks = self._table.blocks(where, snapshot_id, added_by)
        if not result.rounds:
            self._added_by = set(blocks.metadata.added_by.tolist())
        whole = self._table.blocks(where, snapshot_id) if blocks.late else blocks
        measured = self._table.measure(whole.blocks)
        result.depth_after, result.read_depth_after = measured.average_depth, measured.read_depth
        result.key_read_bytes = measured.key_read_bytes
        result.key_read_row_groups = measured.key_read_row_groups
        result.blocks_after = len(blocks.metadata)
        if not result.rounds:
            result.depth_before, result.blocks_before = result.depth_after, result.blocks_after
            result.read_depth_before = result.read_depth_after
        result.suspended = self._table.suspended
        listed_again = _listed_again(self._table.name, blocks.metadata)
        cut_off = sort_order.cut_off_bounds(
            self._change.pending(self._table.iceberg), self._table.key, blocks.metadata.lower
        )
        result.warnings += [text for text in (*listed_again, *cut_off) if text not in result.warnings]
        return blocks

    @property
    def _change_of_merge(self) -> sort_order.TableChange:
        """What a merge changes of the table: boundaries of the curve, too."""
        return replace(self._change, properties={**self._change.properties, **self._boundaries})

    @property
    def _change_alone(self) -> sort_order.TableChange:
        """The same without a merge: boundaries only if the table records none, or each call would change them."""
        table, key = self._table.iceberg, self._table.key
        is_recorded = not key.curve or recorded_curve(table.properties, key, table.field_ids) is not None
        return self._change if is_recorded else self._change_of_merge

    @property
    def _policy(self) -> Policy:
        """The planner's policy for this table."""
        return self._table.policy(self._options.policy)

    def _plan(self) -> PlannedRound:
        checkpoint = Checkpoint(self._table, self._policy, self._options.where)
        blocks, most = self._read(), self._options.policy.max_bytes
        left = None if most is None else max(0, most - self._result.bytes_in)
        return PlannedRound(self._table, checkpoint, blocks, left)

    def _is_done(self, planned: PlannedRound) -> bool:
        """Whether to stop now; the result says why."""
        result, options, plan = self._result, self._options, planned.plan
        result.reason = planned.reason
        if late := planned.blocks.late:
            result.reason += f"; blocks that arrived meanwhile, {late}, are left to the next run"
        result.limited, result.reducible_depth = plan.limited, plan.reducible_depth
        result.threshold, result.verdict = plan.threshold, planned.verdict
        if not plan.by_reads:
            result.read_depth_before = result.read_depth_after = None
        if options.where is not None and not len(planned.blocks.blocks):
            result.reason = "no block can hold a row that the predicate admits"
        if result.suspended is not None and not options.dry_run:
            result.reason = f"suspended since {self._table.suspension or result.suspended}"
            result.verdict = "suspended"
            return True
        if len(result.rounds) == MAX_ROUNDS and plan.block_sets:
            result.reason = f"stopped after {MAX_ROUNDS} rounds"
            return True
        return options.dry_run or not plan.block_sets or (bool(result.rounds) and not options.final)

    def _try_round(self, planned: PlannedRound) -> None:
        """Do one round, or return after a wait if another writer was faster."""
        result, progress = self._result, self._progress(planned.plan)
        progress.report()
        try:
            number = len(result.rounds) + 1
            with job_description(self._table.iceberg.spark, f"recluster {self._table.name}: round {number}"):
                done = self._round(planned, progress.merging)
        except BaseException as e:
            progress.report(failed=True)
            if isinstance(e, ConcurrentChangeError):
                self._conflicts_in_a_row += 1
                result.conflicts += 1
                result.orphans += e.orphans
            may_try_again = isinstance(e, ConcurrentChangeError) and self._conflicts_in_a_row < MAX_ATTEMPTS
            if isinstance(e, ReclusterError) and not may_try_again:
                _add_earlier_rounds(e, result)
            stop_if_interrupted(e)
            if not may_try_again:
                raise
            back_off(self._conflicts_in_a_row)
            return
        result.rounds.append(done)
        self._added_by.update(done.snapshot_ids)
        result.conflicts += done.conflicts
        result.orphans += done.orphans
        self._conflicts_in_a_row = 0
        self._change = replace(self._change, replaces=_NO_ORDER)
        # Sets that other writers touched are not part of it.
        progress.report(
            committed=True, sets=done.sets, blocks=done.blocks_in, bytes=done.bytes_in, seconds=done.seconds
        )

    def _round(self, planned: PlannedRound, progress: MergeProgress | None) -> Round:
        started = time.monotonic()
        blocks, plan = planned.blocks, planned.plan
        # Before the merge: properties that others set during it belong to blocks that were not read.
        levels = planned.level_changes()
        leaves_nothing = not blocks.late and planned.checkpoint.leaves_nothing(planned.candidates, plan)
        left = planned.figures_left() if leaves_nothing else {}
        merged = self._merge(planned, progress)
        conflicts = self._conflicts_in_a_row

        def summary(groups: Sequence[RewrittenGroup]) -> dict[str, str]:
            committed = set(map(id, groups))
            kept = [s for s, group in zip(plan.block_sets, merged, strict=True) if id(group) in committed]
            done = replace(plan, block_sets=tuple(kept))
            after = simulate(blocks.blocks, done, self._policy)
            return history.round_summary(
                **_figures(groups),
                trigger=self._options.trigger,
                cluster_by=str(self._table.key),
                where=self._options.where,
                depth_before=clustering_information(blocks.blocks).average_depth,
                depth_expected=clustering_information(after).average_depth,
                seconds=round(time.monotonic() - started, 3),
                conflicts=conflicts,
                **done.ratios,
                **(left if len(kept) == len(merged) else {}),
            )

        commit = RoundCommit(
            self._table.iceberg,
            planned.snapshot_id,
            merged,
            levels,
            summary,
            partial(planned.properties, merged, leaves_nothing),
            self._change_of_merge if self._table.iceberg.branch is None else sort_order.TableChange(),
        ).run()
        return Round(
            **_figures(commit.groups),
            seconds=time.monotonic() - started,
            snapshot_ids=commit.snapshot_ids,
            conflicts=commit.conflicts,
            orphans=commit.orphans,
        )

    def _merge(self, planned: PlannedRound, progress: MergeProgress | None) -> list[RewrittenGroup]:
        """Merge the block sets; an error of Spark becomes a MergeFailedError."""
        table, schema_id = self._table.iceberg, self._table.iceberg.schema_id
        limits = BlockLimits(self._options.block_rows, self._table.block_bytes)
        groups: list[FileGroup] = []
        try:
            groups = planned.file_groups()
            target = self._change_of_merge.pending(table)
            merger = Merger(table, self._table.key, limits, progress, target, self._table.curve)
            return merger.merge(planned.snapshot_id, groups)
        except Exception as e:
            self._raise_if_changed(planned.snapshot_id, groups, schema_id, e)
            if isinstance(e, ReclusterError):
                raise
            raise MergeFailedError(
                f"Blocks of {table.name} could not be merged: {table.explain(e)}. This round changed nothing."
            ) from e

    def _raise_if_changed(
        self, snapshot_id: int, groups: Sequence[FileGroup], schema_id: int, error: Exception
    ) -> None:
        """Raise ConcurrentChangeError if a merge failed because another writer changed the table meanwhile.

        An expiry may delete a file that the merge reads, once it is removed from the table: a block, a delete file
        that was replaced, or, while there are no groups yet, a manifest. And Spark compares the rows that it writes
        with the table's columns of that moment.
        """
        table = self._table.iceberg
        tasks = {file.path: file.task for group in groups for file in group.files}
        try:
            table.refresh()
            evolved = table.schema_id != schema_id
            if groups:
                changed = bool(changed_tasks(table, table.snapshot_id, tasks))
            else:
                changed = table.snapshot_id != snapshot_id
        except Exception:
            return  # Spark or the catalog is gone, and ``error`` says why
        if evolved or changed:
            raise ConcurrentChangeError(
                f"Another writer changed {'the columns' if evolved else 'blocks'} of {table.name} while its blocks "
                "were merged",
                orphans=getattr(error, "orphans", ()),
            ) from error

    def _progress(self, plan: Plan) -> RoundProgress:
        speed = None if self._options.progress is None else history.rewrite_speed(self._table)
        start = Progress(
            table=self._table.name,
            round=len(self._result.rounds) + 1,
            sets=len(plan.block_sets),
            blocks=sum(len(block_set.blocks) for block_set in plan.block_sets),
            bytes=plan.bytes,
            seconds=None if speed is None else plan.bytes / speed,
            bytes_before=self._result.bytes_in,
            max_bytes=self._options.max_bytes,
        )
        return RoundProgress(start, self._options.progress)


def _listed_again(table: str, blocks: BlockMetadata) -> list[str]:
    """Return a warning about files that the table lists more than once, if there are any."""
    if blocks.repeated is None:
        return []
    paths = blocks.take(blocks.repeated).path.unique()
    count = "1 file is" if len(paths) == 1 else f"{len(paths):,} files are"
    return [_LISTED_AGAIN.format(count=count, path=paths[0].as_py(), table=table)]


def _figures(groups: Sequence[RewrittenGroup]) -> dict[str, Any]:
    return {
        "sets": len(groups),
        "blocks_in": sum(len(group.source.files) for group in groups),
        "blocks_out": sum(len(group.files) for group in groups),
        "bytes_in": sum(group.source.bytes for group in groups),
        "bytes_out": sum(group.bytes for group in groups),
        "rows": sum(group.rows for group in groups),
    }


def _add_earlier_rounds(error: ReclusterError, result: ReclusterResult) -> None:
    """Add to an error what is lost with the result: rounds that are committed, and files that are left behind."""
    notes = [str(error).removesuffix(".")]
    if count := len(result.rounds):
        notes.append(
            f"{count} round{'s' if count > 1 else ''} before it {'were' if count > 1 else 'was'} committed"
        )
    if result.orphans:
        notes.append(orphan_note(result.table, result.orphans))
    error.args = (". ".join(notes) + ".",)
    error.orphans = tuple(dict.fromkeys((*result.orphans, *error.orphans)))
    error.bytes_rewritten = result.bytes_in
