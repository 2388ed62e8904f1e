"""A round that is planned and not yet merged: the checkpoint, the blocks, and the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.clustering.checkpoint import NO_CHECKPOINT, Checkpoint
from dbt_recluster.clustering.condition_checks import NO_CHANGES
from dbt_recluster.clustering.curve_planning import Rest
from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.clustering.result import PlannedSet, RewritePlan
from dbt_recluster.clustering.table import ClusteredTable, SnapshotBlocks
from dbt_recluster.iceberg.iceberg_table import Changes, IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import BoolArray, IntArray
from dbt_recluster.iceberg.metadata.scan import scan_tasks
from dbt_recluster.iceberg.recorded_levels import LevelChanges
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, RewrittenGroup, file_group
from dbt_recluster.planner import Plan, Policy
from dbt_recluster.planner.planning import simulate


@dataclass(frozen=True)
class PlannedRound:
    """A plan and what it was made from.

    Attributes:
        table: The table.
        checkpoint: The rules of the plan.
        blocks: The blocks.
        rest: Which of their partitions are at rest.
        plan: The plan.
    """

    table: ClusteredTable
    checkpoint: Checkpoint
    blocks: SnapshotBlocks
    rest: Rest
    plan: Plan

    @property
    def snapshot_id(self) -> int:
        """The snapshot that was planned; only a table with one has block sets."""
        snapshot_id = self.blocks.snapshot_id
        assert snapshot_id is not None
        return snapshot_id

    @cached_property
    def sets(self) -> list[IntArray]:
        """Positions in all blocks of the members of each set: int64 (k,) each."""
        return [self.blocks.eligible[block_set.blocks] for block_set in self.plan.block_sets]

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
        """Return the least and the greatest key of each set; with a curve, the corners of its box. ``?`` is unknown."""
        metadata, sets = self.blocks.metadata, self.plan.block_sets
        none = np.zeros(len(metadata), np.bool_)
        texts = []
        for is_upper, columns in enumerate((metadata.lower, metadata.upper)):
            ends = [block_set.upper_block if is_upper else block_set.lower_block for block_set in sets]
            positions = self.blocks.eligible[np.array(ends, np.int64)]
            items = []
            for item, column in enumerate(columns):
                unknown = metadata.unbounded[item] if is_upper else none
                if self.table.key.curve:
                    positions = _outermost(column, unknown, self.sets, bool(is_upper))
                known = self.table.item_texts(item, [column[int(position)] for position in positions])
                items.append(np.where(unknown[positions], "?", np.array(known, object)).tolist())
            texts.append([", ".join(key) for key in zip(*items, strict=True)])
        return texts

    def level_changes(self) -> LevelChanges:
        """Return how the recorded levels change once the sets are replaced."""
        metadata = self.blocks.metadata
        replaced = np.zeros(len(metadata), dtype=bool)
        replaced[np.concatenate(self.sets)] = True
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

    def checkpoint_properties(
        self,
    ) -> Callable[[Sequence[RewrittenGroup], Sequence[int], IcebergTable], Changes]:
        """Plan what is left, and return the function that gives the properties by which a commit records it.

        The function takes all groups that were merged, and what :data:`Properties` takes. The properties also forget
        the changes before the checkpoint.
        """
        leaves_nothing = self.checkpoint.leaves_nothing(self.rest.blocks(), self.plan)

        def properties(
            groups: Sequence[RewrittenGroup], snapshots: Sequence[int], after: IcebergTable
        ) -> Changes:
            rest = self.rest.properties(self.plan, groups, after.properties)
            if not leaves_nothing:
                return {**NO_CHANGES, **NO_CHECKPOINT, **rest}
            files = [group.source.files[0].task.file() for group in groups]
            checkpoint = self.checkpoint.properties(self.snapshot_id, snapshots, files, after)
            return {**NO_CHANGES, **checkpoint, **rest}

        return properties


def _outermost(column: pa.Array, unknown: BoolArray, sets: Sequence[IntArray], is_upper: bool) -> IntArray:
    """Return the block of each set with the least, or the greatest, bound of a column: int64 (sets,)."""
    rank = np.empty(len(column), np.int64)
    rank[np.asarray(pc.sort_indices(column))] = np.arange(len(column))
    rank[np.asarray(column.is_null())] = -1
    rank[unknown] = len(column)
    return np.array(
        [members[(np.argmax if is_upper else np.argmin)(rank[members])] for members in sets], np.int64
    )
