"""Recluster a table: rounds of plan, merge and commit, until there is a reason to stop.

Each part of a round is a function of records.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.clustering import history
from dbt_recluster.clustering.checkpoint import Checkpoint, SettledBlocks, nothing_to_do, record_warning
from dbt_recluster.clustering.conditions import block_count, met_condition
from dbt_recluster.clustering.options import ReclusterOptions, digest
from dbt_recluster.clustering.result import (
    MAX_ROUNDS,
    PlannedSet,
    Progress,
    ReclusterResult,
    RewritePlan,
    Round,
    RoundProgress,
)
from dbt_recluster.clustering.table import ClusteredTable, SnapshotBlocks
from dbt_recluster.clustering.table_curve import recorded_curve
from dbt_recluster.clustering.verdict import Stop, cause_text, reason_text, verdict_of
from dbt_recluster.exceptions import (
    ClusterKeyError,
    ConcurrentChangeError,
    MergeFailedError,
    ReclusterError,
    orphan_note,
)
from dbt_recluster.iceberg import sort_order
from dbt_recluster.iceberg.commit import MAX_ATTEMPTS, RoundCommit, RoundRecord, back_off
from dbt_recluster.iceberg.iceberg_table import IcebergTable, PropertyChanges
from dbt_recluster.iceberg.metadata.manifest_entries import changed_tasks, scan_tasks
from dbt_recluster.iceberg.recorded_levels import LevelChanges
from dbt_recluster.iceberg.rewrite.file_groups import (
    FileGroup,
    GroupPlan,
    RewrittenGroup,
    check_location,
    file_group,
    writers_text,
)
from dbt_recluster.iceberg.rewrite.merge import BlockLimits, Merger
from dbt_recluster.iceberg.rewrite.native import NativeWriter
from dbt_recluster.iceberg.session.jobs import MergeProgress, job_description, stop_if_interrupted
from dbt_recluster.iceberg.table_properties import CHANGES, CHECKPOINT, LEVELS, SETTLED
from dbt_recluster.key.types import IntArray
from dbt_recluster.planner import Blocks, Plan, Reason, Why, clustering_information, plan
from dbt_recluster.planner.merges import simulate
from dbt_recluster.text import count_noun


@dataclass(frozen=True)
class PlannedRound:
    """A plan and its inputs."""

    checkpoint: Checkpoint  # the rules of the plan
    blocks: SnapshotBlocks
    candidates: Blocks  # the planned blocks, with the settled ones of `record`
    record: SettledBlocks | None  # None without a curve
    plan: Plan

    @property
    def snapshot_id(self) -> int:
        """The snapshot that was planned; only a table with one has block sets."""
        assert self.blocks.metadata.snapshot_id is not None
        return self.blocks.metadata.snapshot_id

    @property
    def sets(self) -> list[IntArray]:
        """Positions in all blocks of the members of each set: int64 (k,) each."""
        return [self.blocks.eligible[block_set.blocks] for block_set in self.plan.block_sets]


@dataclass(frozen=True)
class MergedRound(RoundRecord):
    """A merged round, with the record of its commit."""

    table: ClusteredTable
    planned: PlannedRound
    groups: Sequence[RewrittenGroup]  # of its sets
    levels: LevelChanges
    leaves_nothing: bool  # whether nothing is to be done outside the partitions of its sets
    figures: Mapping[str, Any]  # for the summaries, besides those of the merges
    started: float  # by the monotonic clock

    def summary(self, groups: Sequence[RewrittenGroup]) -> dict[str, str]:
        """Return the summary of the round's snapshots if these of its groups are committed."""
        planned, committed = self.planned, set(map(id, groups))
        every = zip(self.groups, planned.plan.block_sets, strict=True)
        merged = [(group, block_set) for group, block_set in every if id(group) in committed]
        done = replace(planned.plan, block_sets=tuple(block_set for _, block_set in merged))
        kept = np.delete(np.arange(len(planned.candidates)), done.members.member)
        after = self.table.blocks_after(planned.blocks, kept, merged)
        rest = plan(after, planned.checkpoint.policy)
        is_whole = len(groups) == len(self.groups)
        more: dict[str, Any] = {**done.ratios, **(self._figures_left(after, rest) if is_whole else {})}
        return history.RoundSummary(
            **_figures(groups),
            **self.figures,
            depth_before=planned.plan.depth,
            depth_after=rest.depth,
            average_depth_after=clustering_information(after).average_depth,
            seconds=round(time.monotonic() - self.started, 3),
            writer=writers_text(group.not_native for group in groups),
            **more,
        ).as_summary()

    def _figures_left(self, after: Blocks, rest: Plan) -> dict[str, float | None]:
        """Return figures of the blocks after the round if nothing is left to do; on a curve, settled blocks decide."""
        if not self.leaves_nothing or self.table.key.curve or rest.block_sets or rest.limited:
            return {}
        left = self.table.measure(after, self.planned.checkpoint.policy.block_rows)
        return {"read_depth_after": left.read_depth, "fragmentation_after": left.fragmentation}

    def properties(self, snapshots: Sequence[int], after: IcebergTable) -> PropertyChanges:
        """Return the properties of the checkpoint and of settled blocks, and remove the changes before the round.

        A commit to another branch leaves those of main.
        """
        planned = self.planned
        changes: dict[str, str | None] = {} if after.branch else {CHANGES: None, CHECKPOINT: None}
        if self.leaves_nothing and after.branch is None:
            tasks = [group.source.files[0].task for group in self.groups]
            changes |= planned.checkpoint.properties(planned.snapshot_id, snapshots, tasks, after)
        if planned.record is not None:
            paths = [(group.paths, [file.path for file in group.source.files]) for group in self.groups]
            shared = after.properties.get(SETTLED) if after.has_other_branches else None
            changes |= planned.record.after(planned.plan, paths, snapshots, shared)
        return changes


def plan_round(
    table: ClusteredTable, checkpoint: Checkpoint, blocks: SnapshotBlocks, max_bytes: int | None = None
) -> PlannedRound:
    """Plan a round of some blocks by the rules of a checkpoint, within the bytes left of a budget."""
    record, candidates = None, blocks.planned
    if table.key.curve and len(candidates):
        policy, iceberg = checkpoint.policy, table.iceberg
        # All that plans depend on besides the blocks and their levels.
        given = [str(table.key), checkpoint.where, asdict(policy), repr(table.key_reads), iceberg.schema_json]
        recorded, rules = iceberg.properties.get(SETTLED), digest(given)
        record = SettledBlocks(candidates, blocks.planned_metadata, policy, recorded, rules)
        if record.settled.any():
            fixed = np.arange(len(candidates)) >= len(blocks.eligible)
            candidates = table.planner_blocks(blocks.planned_metadata, fixed=fixed, settled=record.settled)
    policy = replace(checkpoint.policy, max_bytes=max_bytes)
    planned = table.plan(candidates, blocks.planned_metadata, policy)
    if record is not None and record.settled.any() and not planned.can_merge:
        now = plan(blocks.planned, policy)
        if now.depth > now.threshold:
            reasons = Reason(Why.DEPTH, (now.depth,)), Reason(Stop.NOT_LOWERED)
            planned = replace(planned, depth=now.depth, threshold=now.threshold, reasons=reasons)
    return PlannedRound(checkpoint, blocks, candidates, record, planned)


def merge_round(
    table: ClusteredTable,
    planned: PlannedRound,
    change: sort_order.TableChange,
    figures: Mapping[str, Any],
    progress: MergeProgress | None,
) -> MergedRound:
    """Merge a plan's block sets into uncommitted files.

    The commit will also make the ``change`` of the table, and have these ``figures`` in the summaries of its snapshots.

    Raises:
        ConcurrentChangeError: Another writer has changed what was read.
        MergeFailedError: Spark failed.
    """
    started, iceberg, metadata = time.monotonic(), table.iceberg, planned.blocks.metadata
    # Read before the merge: levels that another writer sets meanwhile belong to blocks that were not read.
    replaced = np.isin(np.arange(len(metadata)), np.concatenate(planned.sets))
    levels = LevelChanges.of(iceberg, metadata, replaced)
    checkpoint = planned.checkpoint
    leaves_nothing = not planned.blocks.late and checkpoint.leaves_nothing(planned.candidates, planned.plan)
    limits = BlockLimits(checkpoint.policy.block_rows, table.block_bytes)
    groups: list[FileGroup] = []
    schema = iceberg.schema_json
    try:
        groups = _file_groups(table, planned)
        target = change.pending(iceberg)
        merger = Merger(iceberg, table.key, limits, progress, target, table.key_curve.current)
        merged = merger.merge(planned.snapshot_id, groups)
    except Exception as e:
        _raise_if_changed(iceberg, planned.snapshot_id, groups, schema, e)
        if isinstance(e, ReclusterError):
            raise
        raise MergeFailedError(
            f"Blocks of {table.name} could not be merged: {iceberg.explain(e)}. This round changed nothing."
        ) from e
    return MergedRound(table, planned, merged, levels, leaves_nothing, figures, started)


def describe_round(table: ClusteredTable, planned: PlannedRound) -> RewritePlan:
    """Describe a plan for a dry run."""
    blocks = planned.blocks.blocks
    lower, upper = _key_texts(table, planned)
    same = {f.name for f in fields(PlannedSet)} - {"level", "new_level", "blocks", "lower", "upper"}
    sets = tuple(
        PlannedSet(
            level=int(blocks.level[block_set.blocks].max()),
            new_level=block_set.level,
            blocks=len(block_set.blocks),
            lower=least,
            upper=greatest,
            **{name: getattr(block_set, name) for name in same},
        )
        for block_set, least, greatest in zip(planned.plan.block_sets, lower, upper, strict=True)
    )
    before = table.measure(blocks)
    policy = planned.checkpoint.policy
    merged = simulate(blocks, planned.plan, policy)
    after = table.measure(merged)
    speed = history.rewrite_speed(table)
    native = NativeWriter(table.iceberg, table.iceberg, table.key, table.key_curve.current)
    # Before their keys are sampled.
    groups = (GroupPlan(0, group, [], (True,) * len(group.files), True) for group in _file_groups(table, planned))
    return RewritePlan(
        sets=sets,
        bytes=planned.plan.bytes,
        rows=planned.plan.rows,
        expected_depth=plan(merged, policy).depth,
        estimated_seconds=None if speed is None else round(planned.plan.bytes / speed, 1),
        key_read_bytes=before.key_read_bytes,
        key_read_row_groups=before.key_read_row_groups,
        expected_key_read_bytes=after.key_read_bytes,
        expected_key_read_row_groups=after.key_read_row_groups,
        writer=writers_text(native.refusal(group) for group in groups),
    )


def _key_texts(table: ClusteredTable, planned: PlannedRound) -> list[list[str]]:
    """Return the least and the greatest values of the key's items in each set; ``?`` is unknown."""
    metadata, sets, texts = planned.blocks.metadata, planned.sets, []
    for is_upper, columns in enumerate((metadata.lower, metadata.upper)):
        items = []
        for item, column in enumerate(columns):
            members = [column.take(pa.array(positions)) for positions in sets]
            ends = [_greatest(c) if is_upper else pc.min(c, skip_nulls=False) for c in members]
            known = zip(sets, table.item_texts(item, ends), strict=True)
            unbounded = metadata.unbounded[item]
            items.append(["?" if is_upper and unbounded[s].any() else text for s, text in known])
        texts.append([", ".join(key) for key in zip(*items, strict=True)])
    return texts


def _greatest(values: pa.Array) -> pa.Scalar:
    """Return the greatest value in Spark's order: NULL first, NaN last."""
    known = values.drop_null().sort()
    return known[-1] if len(known) else values[0]


def _file_groups(table: ClusteredTable, planned: PlannedRound) -> list[FileGroup]:
    """Return the files of each set."""
    metadata, sets = planned.blocks.metadata, planned.sets
    paths = [metadata.path.take(positions).to_pylist() for positions in sets]
    columns, every = [field.column for field in table.key.fields], list(chain.from_iterable(paths))
    tasks = scan_tasks(table.iceberg, planned.snapshot_id, every, bounds_of=columns)
    return [
        file_group(tasks, set_paths, int(metadata.spec_id[positions[0]]), block_set.level, block_set.run)
        for block_set, positions, set_paths in zip(planned.plan.block_sets, sets, paths, strict=True)
    ]


def _raise_if_changed(
    table: IcebergTable, snapshot_id: int, groups: Sequence[FileGroup], schema: str, error: Exception
) -> None:
    """Raise ConcurrentChangeError if a merge failed because another writer changed the table meanwhile.

    An expiry may delete a file that the merge reads, once it is removed from the table: a block, a delete file that was
    replaced, or, while there are no groups yet, a manifest. And Spark compares the rows that it writes with the table's
    columns of that moment.
    """
    tasks = {file.path: file.task for group in groups for file in group.files}
    try:
        table.refresh()
        evolved = table.schema_json != schema
        current = table.snapshot_id
        changed = bool(changed_tasks(table, current, tasks)) if groups else current != snapshot_id
    except Exception:
        return  # Spark or the catalog is gone, and ``error`` says why
    if evolved or changed:
        raise ConcurrentChangeError(
            f"Another writer changed {'the columns' if evolved else 'blocks'} of {table.name} while its blocks "
            "were merged",
            orphans=getattr(error, "orphans", ()),
        ) from error


def _figures(groups: Sequence[RewrittenGroup]) -> dict[str, Any]:
    return {
        "sets": len(groups),
        "blocks_in": sum(len(group.source.files) for group in groups),
        "blocks_out": sum(len(group.files) for group in groups),
        "bytes_in": sum(group.source.bytes for group in groups),
        "bytes_out": sum(group.bytes for group in groups),
        "rows": sum(group.rows for group in groups),
    }


_ROW_IDS_LOST = "Iceberg keeps no row ids in ORC files: every rewrite, its own included, gives the rows new ids"
# A table that waits for a condition is measured only if that is quick.
_MOST_MEASURED = 10_000
# Bytes a second, until a round has been measured.
_SPEED = 10 * 2**20
_LISTED_AGAIN = (
    "{count} listed more than once in the table's metadata, such as {path}. Iceberg removes files by path, so a merge "
    "would lose rows: they are left as they are. While nobody else writes, INSERT OVERWRITE {table} SELECT * FROM "
    "{table} writes all rows anew: SELECT * keeps duplicates, SELECT DISTINCT * drops them"
)


class Recluster:
    """One call of recluster on one table, under the key to cluster by; ``changes`` are further properties to set."""

    def __init__(
        self, table: ClusteredTable, options: ReclusterOptions, changes: PropertyChanges | None = None
    ) -> None:
        key, iceberg, since = table.key, table.iceberg, table.suspended
        # All branches share the properties, so a branch sets none but the boundaries of its curve.
        self._changes = changes or {} if iceberg.branch is None else {}
        self._table, self._options = table, options
        self._result = ReclusterResult(table.name, str(key), suspended=since, branch=iceberg.branch)
        self._where = table.predicate(options.where)
        self._change = sort_order.TableChange(key, self._changes, replaces=sort_order.key_id(iceberg))
        self._rewrites: list[history.ForeignRewrite] = []
        self._conflicts_in_a_row = 0
        # Later rounds plan blocks of these snapshots: those before the first committed round, and those of rounds.
        # Otherwise `final` would not end beside a fast writer.
        self._added_by: set[int] = set()

    def run(self) -> ReclusterResult:
        """Repeat rounds until there is a reason to stop.

        Raises:
            PredicateError, NotAnIcebergTableError: Bad input, detected before anything is written.
            UnsupportedTableError: New files would not record bounds of the key, so nothing would be gained.
            ConcurrentChangeError: Other writers were faster five times in a row.
            MergeFailedError, CommitFailedError, CommitStateUnknownError, OrphanFilesError: See their docstrings.
        """
        started, result, table, key = time.monotonic(), self._result, self._table.iceberg, self._table.key
        self._prepare()
        if (nothing := self._nothing_after_build()) is not None:
            self._report(nothing)
            result.blocks_before = result.blocks_after = block_count(self._table)
        else:
            self._repeat_rounds()
        if not (result.rounds or self._options.dry_run or result.suspended or table.branch):
            if key.curve and recorded_curve(table.properties, key, table.field_ids) is not None:
                # Boundaries without a merge would change at each call.
                self._change = replace(self._change, properties=self._changes)
            self._change.commit(table)
            if self._rewrites:
                record_warning(table, self._rewrites[-1].snapshot.id)
        result.seconds = time.monotonic() - started
        return result

    def _report(self, plan: Plan) -> None:
        """Record depth, threshold, verdict and reason of a plan in the result."""
        result = self._result
        result.limited = plan.limited
        result.reason, result.cause = reason_text(plan.reasons), cause_text(plan.reasons)
        if plan.depth:
            result.depth_after, result.threshold, result.verdict = plan.depth, plan.threshold, verdict_of(plan)
            if not result.rounds:
                result.depth_before = result.depth_after

    def _repeat_rounds(self) -> None:
        while True:
            stop_if_interrupted()
            planned = self.plan()
            if self._is_done(planned):
                break
            self._try_round(planned)
            self._table.refresh()
        if not planned.plan.block_sets and not planned.plan.limited and not planned.blocks.late:
            planned.checkpoint.remember(planned.blocks.metadata.snapshot_id, planned.plan)
        if self._options.dry_run:
            self._result.plan = describe_round(self._table, planned)

    def _prepare(self) -> None:
        """Validate the options and the table. Pending changes to it are committed together with the first merge."""
        self._result.warnings += self._table.reads.follow(self._options.reads)
        iceberg, key = self._table.iceberg, self._table.key
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
        if sort_order.loses_row_ids(iceberg) and LEVELS not in iceberg.properties:
            self._result.warnings.append(_ROW_IDS_LOST)
        if iceberg.branch is None:
            self._rewrites = history.foreign_rewrites(self._table, only_new=True)
        self._result.warnings += history.rewrite_warnings(self._rewrites)

    def _nothing_after_build(self) -> Plan | None:
        """Return an empty plan if there is a reason to skip reclustering after a build, or None to proceed.

        A recluster by hand always reports how deep the whole table is, and so does one that waits for a condition.
        """
        options, result = self._options, self._result
        if options.trigger != "run" or result.suspended is not None or self._table.iceberg.branch is not None:
            return None
        if options.after is not None or options.when:
            condition = met_condition(self._table, options)
            if not condition.is_met:
                result.waits_for = condition.waits_for or None
                is_quick = not self._table.key.curve and 0 < block_count(self._table) <= _MOST_MEASURED
                planned = self.plan().plan if result.waits_for and is_quick else Plan()
                reason = Reason(Stop.NO_CONDITION_MET, (condition.text,))
                return replace(planned, limited=False, reasons=(reason,))
            result.condition_met = condition.text
        if options.where is not None or options.dry_run:
            return None
        return nothing_to_do(self._table, self._table.policy(options.policy))

    def _read(self) -> SnapshotBlocks:
        result, where = self._result, self._where
        added_by = self._added_by if result.rounds else None
        blocks = self._table.current_blocks(where, added_by)
        snapshot_id = blocks.metadata.snapshot_id
        field_ids = sort_order.key_field_ids(self._table.iceberg, self._table.key)
        self._change = replace(self._change, field_ids=field_ids)
        if self._draw(blocks):
            blocks = self._table.blocks(where, snapshot_id, added_by)
        whole = self._table.blocks(where, snapshot_id) if blocks.late else blocks
        measured = self._table.measure(whole.blocks)
        result.average_depth_after, result.read_depth_after = measured.average_depth, measured.read_depth
        result.key_read_bytes = measured.key_read_bytes
        result.key_read_row_groups = measured.key_read_row_groups
        result.blocks_after = len(blocks.metadata)
        if not result.rounds:
            self._added_by = set(blocks.metadata.added_by.tolist())
            result.average_depth_before, result.blocks_before = measured.average_depth, result.blocks_after
            result.read_depth_before = result.read_depth_after
        result.suspended = self._table.suspended
        pending, warnings = self._change.pending(self._table.iceberg), list[str]()
        if blocks.metadata.repeated is not None:
            paths = blocks.metadata.take(blocks.metadata.repeated).path.unique()
            count = "1 file is" if len(paths) == 1 else f"{len(paths):,} files are"
            warnings.append(_LISTED_AGAIN.format(count=count, path=paths[0].as_py(), table=self._table.name))
        warnings += sort_order.cut_off_bounds(pending, self._table.key, blocks.metadata.lower)
        result.warnings += [text for text in warnings if text not in result.warnings]
        return blocks

    def _draw(self, blocks: SnapshotBlocks, *, before_merge: bool = False) -> bool:
        """Draw the boundaries of a curve, and return whether they are new. A merge records them."""
        boundaries = self._table.key_curve.draw(blocks.planned_metadata, before_merge=before_merge)
        if boundaries:
            self._change = replace(self._change, properties={**self._changes, **boundaries})
        return bool(boundaries)

    def plan(self) -> PlannedRound:
        """Plan the next round."""
        policy = self._table.policy(self._options.policy)
        checkpoint = Checkpoint(self._table, policy, self._options.where)
        blocks, left = self._read(), self._bytes_left
        planned = plan_round(self._table, checkpoint, blocks, left)
        if planned.plan.block_sets and self._draw(blocks, before_merge=True):
            planned = plan_round(self._table, checkpoint, self._read(), left)
        return planned

    @property
    def _bytes_left(self) -> int | None:
        """The bytes that the budgets of bytes and of time leave, or None without one."""
        left, options = list[float](), self._options
        if options.max_bytes is not None:
            left.append(options.max_bytes - self._result.bytes_in)
        if options.max_seconds is not None:
            seconds = options.max_seconds - sum(done.seconds for done in self._result.rounds)
            left.append(seconds * self._speed)
        return max(0, int(min(left))) if left else None

    @property
    def _speed(self) -> float:
        """The bytes that are rewritten in a second."""
        return history.rewrite_speed(self._table) or _SPEED

    def _in_seconds(self, reason: Reason) -> Reason:
        """Return a reason in seconds, if it is about the limit of time rather than that of bytes."""
        options = self._options
        if reason.kind is not Why.NO_SET_FITS or options.max_seconds is None:
            return reason
        budget, needed = reason.figures
        if options.max_bytes is not None and options.max_bytes - self._result.bytes_in <= budget:
            return reason
        return Reason(Stop.NO_SET_IN_TIME, (f"{options.max_seconds:.4g}", f"{needed / self._speed:.2g}"))

    def _is_done(self, planned: PlannedRound) -> bool:
        """Whether to stop now; the result says why."""
        result, options = self._result, self._options
        plan = replace(planned.plan, reasons=tuple(map(self._in_seconds, planned.plan.reasons)))
        is_suspended = result.suspended is not None and not options.dry_run
        is_last = len(result.rounds) == MAX_ROUNDS and bool(plan.block_sets)
        is_done = is_suspended or is_last or options.dry_run or not plan.block_sets
        is_done = is_done or (bool(result.rounds) and not options.final)
        reasons = plan.reasons
        if is_suspended:
            reasons = (Reason(Stop.SUSPENDED, (self._table.suspension or result.suspended,)),)
        elif is_last:
            reasons = (Reason(Stop.MOST_ROUNDS, (MAX_ROUNDS,)),)
        elif options.where is not None and not len(planned.blocks.blocks):
            reasons = (Reason(Stop.NO_BLOCK_ADMITTED),)
        elif is_done and planned.blocks.late:
            every = self._table.blocks(self._where, planned.snapshot_id)
            plan = plan_round(self._table, planned.checkpoint, every).plan
            reasons = *plan.reasons, Reason(Stop.ARRIVED_LATE, (planned.blocks.late,))
        elif result.rounds and (plan.limited or plan.block_sets):
            is_spent = plan.limited and self._bytes_left is not None
            left = plan.left or sum(len(block_set.blocks) for block_set in plan.block_sets)
            reasons = *plan.reasons, Reason(Stop.BUDGET_USED if is_spent else Stop.ROUND_DONE, (left,))
        self._report(replace(plan, reasons=reasons))
        if is_suspended:
            result.verdict = verdict_of(plan, is_suspended=True)
        if not plan.by_reads:
            result.read_depth_before = result.read_depth_after = None
        return is_done

    def _try_round(self, planned: PlannedRound) -> None:
        """Run one round. After a commit conflict, back off and return; the caller plans again."""
        result, progress = self._result, self._progress(planned.plan)
        progress.report()
        try:
            done = self._round(planned, progress)
        except BaseException as e:
            progress.report(failed=True)
            may_try_again = False
            if isinstance(e, ConcurrentChangeError):
                self._conflicts_in_a_row += 1
                result.conflicts += 1
                result.orphans += e.orphans
                may_try_again = self._conflicts_in_a_row < MAX_ATTEMPTS
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
        self._change = replace(self._change, replaces=(-1, ""))  # none: the id of no sort order
        # Excludes sets that conflicted.
        figures = {"sets": done.sets, "blocks": done.blocks_in, "bytes": done.bytes_in}
        progress.report(committed=True, seconds=done.seconds, **figures)

    def _round(self, planned: PlannedRound, progress: RoundProgress) -> Round:
        table, options = self._table, self._options
        given = {"trigger": options.trigger, "cluster_by": str(table.key), "where": options.where}
        figures = {**given, "conflicts": self._conflicts_in_a_row}
        number = len(self._result.rounds) + 1
        with job_description(table.iceberg.spark, f"recluster {table.name}: round {number}"):
            merged = merge_round(table, planned, self._change, figures, progress.merging)
            commit = RoundCommit(table.iceberg, planned.snapshot_id, merged.groups, merged.levels, merged, self._change)
            commit.run()
        return Round(
            **_figures(commit.remaining),
            seconds=time.monotonic() - merged.started,
            snapshot_ids=tuple(commit.sent),
            conflicts=commit.conflicts,
            orphans=tuple(commit.orphans),
        )

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


def _add_earlier_rounds(error: ReclusterError, result: ReclusterResult) -> None:
    """Add the committed rounds and the orphans of a result to the error that takes its place."""
    notes = [str(error).removesuffix(".")]
    if count := len(result.rounds):
        notes.append(f"{count_noun(count, 'round')} before it {'were' if count > 1 else 'was'} committed")
    if result.orphans:
        notes.append(orphan_note(result.table, result.orphans))
    error.args = (". ".join(notes) + ".",)
    error.orphans = tuple(dict.fromkeys((*result.orphans, *error.orphans)))
    error.bytes_rewritten = result.bytes_in
