"""A round that is planned and not yet merged: the checkpoint, the blocks and the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.clustering.checkpoint import NO_CHECKPOINT, Checkpoint
from dbt_recluster.clustering.conditions import NO_CHANGES
from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.clustering.rest import Rest
from dbt_recluster.clustering.result import PlannedSet, RewritePlan
from dbt_recluster.clustering.table import ClusteredTable, SnapshotBlocks
from dbt_recluster.clustering.values import digest
from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.iceberg_table import Changes, IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import IntArray
from dbt_recluster.iceberg.metadata.scan import scan_tasks
from dbt_recluster.iceberg.recorded_levels import LevelChanges
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, RewrittenGroup, file_group
from dbt_recluster.planner import Blocks, Plan, Policy, plan
from dbt_recluster.planner.merges import simulate


@dataclass(frozen=True)
class PlannedRound:
    """A plan and what it was made from: the rules, the blocks, and the bytes that are left of the budget, or None."""

    table: ClusteredTable
    checkpoint: Checkpoint
    blocks: SnapshotBlocks
    max_bytes: int | None

    @cached_property
    def candidates(self) -> Blocks:
        """The blocks for the planner."""
        blocks = self.blocks
        if self._rest is None or not self._rest.settled.any():
            return blocks.planned
        fixed = np.arange(len(blocks.planned)) >= len(blocks.eligible)
        return self.table.planner_blocks(blocks.planned_metadata, fixed=fixed, settled=self._rest.settled)

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        return plan(self.candidates, replace(self.checkpoint.policy, max_bytes=self.max_bytes))

    @property
    def reason(self) -> str:
        """Why there is, or is not, something to do."""
        if self.plan.block_sets or self._rest is None or not self._rest.settled.any():
            return self.plan.reason
        depth = self._rest.settled_depth
        return f"depth {depth:.4g} was not lowered by the last merge, and nothing has arrived since"

    @property
    def verdict(self) -> str:
        """``deep`` where merges can lower what is above the threshold, otherwise ``well clustered``."""
        is_due = bool(self.plan.block_sets) or self.plan.limited
        return "deep" if is_due and self.plan.reducible_depth > self.plan.threshold else "well clustered"

    @property
    def snapshot_id(self) -> int:
        """The snapshot that was planned; only a table with one has block sets."""
        snapshot_id = self.blocks.metadata.snapshot_id
        assert snapshot_id is not None
        return snapshot_id

    @cached_property
    def sets(self) -> list[IntArray]:
        """Positions in all blocks of the members of each set: int64 (k,) each."""
        return [self.blocks.eligible[block_set.blocks] for block_set in self.plan.block_sets]

    def figures_left(self) -> dict[str, float | None]:
        """Return the figures expected after the merges, or none if there is more to do then.

        What a merge along a curve leaves is not known before it.
        """
        if self.table.key.curve:
            return {}
        policy = self.checkpoint.policy
        after = simulate(self.blocks.blocks, self.plan, policy)
        if (rest := plan(after, policy)).block_sets or rest.limited:
            return {}
        left = self.table.measure(after, policy.block_rows)
        return {"read_depth_expected": left.read_depth, "fragmentation_expected": left.fragmentation}

    def describe(self, policy: Policy) -> RewritePlan:
        """Describe the plan for a dry run; ``policy`` is the one that it was made with."""
        blocks, plan, sets = self.blocks, self.plan, self.plan.block_sets
        lower, upper = self._key_texts()
        planned = tuple(
            PlannedSet(
                level=int(blocks.blocks.level[block_set.blocks].max()),
                new_level=block_set.level,
                blocks=len(block_set.blocks),
                expected_blocks=block_set.expected_blocks,
                rows=block_set.rows,
                bytes=block_set.bytes,
                lower=least,
                upper=greatest,
                depth=block_set.depth,
                expected_depth=block_set.expected_depth,
                benefit_cost=block_set.benefit_cost,
                benefit_cost_left=block_set.benefit_cost_left,
            )
            for block_set, least, greatest in zip(sets, lower, upper, strict=True)
        )
        before = self.table.measure(blocks.blocks)
        after = self.table.measure(simulate(blocks.blocks, plan, policy))
        speed = rewrite_speed(self.table)
        return RewritePlan(
            sets=planned,
            bytes=plan.bytes,
            rows=plan.rows,
            expected_depth=after.average_depth,
            estimated_seconds=None if speed is None else round(plan.bytes / speed, 1),
            key_read_bytes=before.key_read_bytes,
            key_read_row_groups=before.key_read_row_groups,
            expected_key_read_bytes=after.key_read_bytes,
            expected_key_read_row_groups=after.key_read_row_groups,
        )

    def _key_texts(self) -> list[list[str]]:
        """Return the least and the greatest values of the key's items in each set; ``?`` is unknown."""
        metadata, texts = self.blocks.metadata, []
        for is_upper, columns in enumerate((metadata.lower, metadata.upper)):
            items = []
            for item, column in enumerate(columns):
                members = [column.take(pa.array(positions)) for positions in self.sets]
                ends = [_greatest(c) if is_upper else pc.min(c, skip_nulls=False) for c in members]
                known = zip(self.sets, self.table.item_texts(item, ends), strict=True)
                unbounded = metadata.unbounded[item]
                items.append(["?" if is_upper and unbounded[s].any() else text for s, text in known])
            texts.append([", ".join(key) for key in zip(*items, strict=True)])
        return texts

    def level_changes(self) -> LevelChanges:
        """Return how the recorded levels change once the sets are replaced."""
        metadata = self.blocks.metadata
        replaced = np.isin(np.arange(len(metadata)), np.concatenate(self.sets))
        return LevelChanges.of(self.table.iceberg, metadata, replaced)

    def file_groups(self) -> list[FileGroup]:
        """Return the files of each set."""
        metadata = self.blocks.metadata
        paths = [metadata.path.take(positions).to_pylist() for positions in self.sets]
        tasks = scan_tasks(
            self.table.iceberg,
            self.snapshot_id,
            [path for set_paths in paths for path in set_paths],
            bounds_of=[field.column for field in self.table.key.fields],
        )
        return [
            file_group(tasks, set_paths, int(metadata.spec_id[positions[0]]), block_set.level, block_set.run)
            for block_set, positions, set_paths in zip(self.plan.block_sets, self.sets, paths, strict=True)
        ]

    def properties(
        self,
        groups: Sequence[RewrittenGroup],
        leaves_nothing: bool,
        snapshots: Sequence[int],
        after: IcebergTable,
    ) -> Changes:
        """Return the properties by which a commit records what is left to do, and forgets the changes before it.

        Both are about main: a commit to another branch leaves them.

        Args:
            groups: All groups that were merged.
            leaves_nothing: Whether nothing is to be done outside their partitions.
            snapshots: The snapshots that the commit adds.
            after: The table as they leave it.
        """
        changes: dict[str, str | None] = {}
        if after.branch is None:
            changes |= {**NO_CHANGES, **NO_CHECKPOINT}
            if leaves_nothing:
                files = [group.source.files[0].task.file() for group in groups]
                changes |= self.checkpoint.properties(self.snapshot_id, snapshots, files, after)
        if self._rest is not None:
            paths = [(group.paths, [file.path for file in group.source.files]) for group in groups]
            changes |= self._rest.after(self.plan, paths, snapshots)
        return changes

    @cached_property
    def _rest(self) -> Rest | None:
        """Where merges along a curve were in vain; None if the key has none."""
        if not self.table.key.curve or not len(self.blocks.planned):
            return None
        # All that plans depend on besides the blocks and their levels.
        rules = digest(
            [
                str(self.table.key),
                self.checkpoint.where,
                asdict(self.checkpoint.policy),
                repr(self.table.key_reads),
                self.table.iceberg.schema_json,
            ]
        )
        recorded = self.table.iceberg.properties.get(table_properties.REST)
        blocks = self.blocks
        return Rest(blocks.planned, blocks.planned_metadata, self.checkpoint.policy, recorded, rules)


def _greatest(values: pa.Array) -> pa.Scalar:
    """Return the greatest value as Spark sorts them: NULL is the least one, and NaN, which Arrow leaves out, is it."""
    known = values.drop_null().sort()
    return known[-1] if len(known) else values[0]
