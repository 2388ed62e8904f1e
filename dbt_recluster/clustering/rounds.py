"""A round of reclustering as values and functions: its plan, its merge, and what its commit records."""

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
from dbt_recluster.clustering.checkpoint import Checkpoint, SettledBlocks
from dbt_recluster.clustering.options import ReclusterOptions, digest
from dbt_recluster.clustering.result import PlannedSet, RewritePlan
from dbt_recluster.clustering.table import ClusteredTable, SnapshotBlocks
from dbt_recluster.clustering.verdict import Facts, Stop
from dbt_recluster.exceptions import ConcurrentChangeError, MergeFailedError, ReclusterError
from dbt_recluster.iceberg.commit import RoundRecord
from dbt_recluster.iceberg.iceberg_table import IcebergTable, PropertyChanges
from dbt_recluster.iceberg.metadata.block_metadata import partition_scan
from dbt_recluster.iceberg.metadata.manifest_entries import SnapshotScan, changed_tasks
from dbt_recluster.iceberg.recorded_levels import LevelChanges
from dbt_recluster.iceberg.rewrite.file_groups import (
    FileGroup,
    GroupPlan,
    RewrittenGroup,
    file_group,
    writers_text,
)
from dbt_recluster.iceberg.rewrite.merge import BlockLimits, Merger
from dbt_recluster.iceberg.rewrite.native import NativeWriter
from dbt_recluster.iceberg.session.jobs import MergeProgress
from dbt_recluster.iceberg.sort_order import TableChange
from dbt_recluster.iceberg.table_properties import CHANGES, CHECKPOINT, SETTLED
from dbt_recluster.key.types import IntArray
from dbt_recluster.planner import Blocks, Plan, Reason, Why, clustering_information, plan
from dbt_recluster.planner.merges import simulate


@dataclass(frozen=True)
class PlannedRound:
    """A plan and its inputs."""

    checkpoint: Checkpoint  # the rules of the plan
    blocks: SnapshotBlocks
    candidates: Blocks  # the planned blocks; settled ones are marked
    settled: SettledBlocks | None  # None without a curve
    plan: Plan
    field_ids: tuple[int | None, ...] | None = None  # of the key's columns when the blocks were read

    @property
    def snapshot_id(self) -> int:
        """The snapshot that was planned; only a table with one has block sets."""
        assert self.blocks.metadata.snapshot_id is not None
        return self.blocks.metadata.snapshot_id

    @property
    def sets(self) -> list[IntArray]:
        """Positions in all blocks of the members of each set: int64 (k,) each."""
        return [self.blocks.eligible[block_set.blocks] for block_set in self.plan.block_sets]

    def scan(self, table: IcebergTable) -> SnapshotScan:
        """Return a scan of the members of the sets."""
        return partition_scan(table, self.blocks.metadata.take(np.concatenate(self.sets)))


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
        more: dict[str, Any] = self._figures_left(after, rest) if is_whole else {}
        return history.RoundSummary(
            **group_figures(groups),
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
        if planned.settled is not None:
            paths = [(group.paths, [file.path for file in group.source.files]) for group in self.groups]
            shared = after.properties.get(SETTLED) if after.has_other_branches else None
            changes |= planned.settled.after(planned.plan, paths, snapshots, shared)
        return changes


def plan_round(
    table: ClusteredTable, checkpoint: Checkpoint, blocks: SnapshotBlocks, max_bytes: int | None = None
) -> PlannedRound:
    """Plan a round of some blocks by the rules of a checkpoint, within the bytes left of a budget."""
    settled, candidates = None, blocks.planned
    if table.key.curve and len(candidates):
        policy, iceberg = checkpoint.policy, table.iceberg
        # All that plans depend on besides the blocks and their levels.
        inputs = [str(table.key), checkpoint.where, asdict(policy), repr(table.key_reads), iceberg.schema_json]
        recorded, rules = iceberg.properties.get(SETTLED), digest(inputs)
        settled = SettledBlocks(candidates, blocks.planned_metadata, policy, recorded, rules)
        if settled.mask.any():
            fixed = np.arange(len(candidates)) >= len(blocks.eligible)
            candidates = table.planner_blocks(blocks.planned_metadata, fixed=fixed, settled=settled.mask)
    policy = replace(checkpoint.policy, max_bytes=max_bytes)
    planned = table.plan(candidates, blocks.planned_metadata, policy)
    if settled is not None and settled.mask.any() and not planned.can_merge:
        now = plan(blocks.planned, policy)
        if now.depth > now.threshold:
            reasons = Reason(Why.DEPTH, (now.depth,)), Reason(Stop.NOT_LOWERED)
            planned = replace(planned, depth=now.depth, threshold=now.threshold, reasons=reasons)
    return PlannedRound(checkpoint, blocks, candidates, settled, planned)


def table_facts(table: ClusteredTable, options: ReclusterOptions, planned: PlannedRound) -> Facts:
    """Return the facts that a plan gives of the whole table, of which it may be for a part."""
    if options.where is None:
        return Facts(plan=planned.plan)
    blocks = table.blocks(None, planned.blocks.metadata.snapshot_id)
    whole = plan_round(table, Checkpoint(table, planned.checkpoint.policy), blocks).plan
    notes, left_out = [], len(blocks.blocks) - len(planned.blocks.blocks)
    if not len(planned.blocks.blocks):
        notes = [Reason(Stop.NO_BLOCK_ADMITTED)]
    elif whole.can_merge and not planned.plan.can_merge:
        notes = [Reason(Stop.LEFT_OUT, (left_out,))]
    return Facts(plan=whole, admitted=planned.plan, notes=tuple(notes))


def merge_round(
    table: ClusteredTable,
    planned: PlannedRound,
    change: TableChange,
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
    levels = LevelChanges.from_blocks(iceberg, metadata, replaced)
    checkpoint = planned.checkpoint
    leaves_nothing = not planned.blocks.late and checkpoint.leaves_nothing(planned.candidates, planned.plan)
    limits = BlockLimits(checkpoint.policy.block_rows, table.block_bytes)
    groups: list[FileGroup] = []
    schema = iceberg.schema_json
    try:
        scan = planned.scan(iceberg)
        groups = _file_groups(table, planned, scan)
        pending = change.pending(iceberg)
        merger = Merger(iceberg, table.key, limits, progress, pending, table.key_curve.current)
        merged = merger.merge(scan, groups)
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
    files = _file_groups(table, planned, planned.scan(table.iceberg)) if planned.plan.block_sets else []
    # Before their keys are sampled.
    groups = (GroupPlan(0, group, [], (True,) * len(group.files), True) for group in files)
    return RewritePlan(
        sets=sets,
        bytes=planned.plan.bytes,
        rows=planned.plan.rows,
        expected_depth=plan(merged, policy).depth,
        estimated_seconds=None if speed is None else round(planned.plan.bytes / speed, 1),
        key_read_bytes=before.key_read_bytes,
        expected_key_read_bytes=after.key_read_bytes,
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
            set_texts = zip(sets, table.item_texts(item, ends), strict=True)
            unbounded = metadata.unbounded[item]
            items.append(["?" if is_upper and unbounded[s].any() else text for s, text in set_texts])
        texts.append([", ".join(key) for key in zip(*items, strict=True)])
    return texts


def _greatest(values: pa.Array) -> pa.Scalar:
    """Return the greatest value in Spark's order: NULL first, NaN last."""
    ascending = values.drop_null().sort()
    return ascending[-1] if len(ascending) else values[0]


def _file_groups(table: ClusteredTable, planned: PlannedRound, scan: SnapshotScan) -> list[FileGroup]:
    metadata, sets = planned.blocks.metadata, planned.sets
    paths = [metadata.path.take(positions).to_pylist() for positions in sets]
    columns, every = [field.column for field in table.key.fields], list(chain.from_iterable(paths))
    tasks = scan.tasks(every, bounds_of=columns)
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


def group_figures(groups: Sequence[RewrittenGroup]) -> dict[str, Any]:
    """Return the sums of a round's groups, named as in its summary and its result."""
    return {
        "sets": len(groups),
        "blocks_in": sum(len(group.source.files) for group in groups),
        "blocks_out": sum(len(group.files) for group in groups),
        "bytes_in": sum(group.source.bytes for group in groups),
        "bytes_out": sum(group.bytes for group in groups),
        "rows": sum(group.rows for group in groups),
    }
