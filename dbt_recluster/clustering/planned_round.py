"""A round that is planned and not yet merged: the checkpoint, the blocks, the plan, and where plans come to rest.

Where the interval of a block on a curve ends is an estimate, so a merge may leave a partition as deep as it was. A
commit therefore records how deep each partition was before it. If it is no less deep afterwards and holds the same
blocks, it is left alone until others arrive. So every merge but one lowers the depth, and each partition comes to rest.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster import table_properties
from dbt_recluster.clustering import curve_boundaries
from dbt_recluster.clustering.checkpoint import NO_CHECKPOINT, Checkpoint
from dbt_recluster.clustering.conditions import NO_CHANGES
from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.clustering.result import PlannedSet, RewritePlan
from dbt_recluster.clustering.table import ClusteredTable, SnapshotBlocks
from dbt_recluster.clustering.values import digest
from dbt_recluster.curve import Curve
from dbt_recluster.iceberg.iceberg_table import Changes, IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, IntArray
from dbt_recluster.iceberg.metadata.scan import scan_tasks
from dbt_recluster.iceberg.recorded_levels import LevelChanges
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, RewrittenGroup, file_group
from dbt_recluster.planner import Blocks, Plan, Policy, plan
from dbt_recluster.planner.arrays import FloatArray
from dbt_recluster.planner.curves import renewed
from dbt_recluster.planner.merges import simulate

# Characters of the property; a Hive metastore may hold 4,000.
_LONGEST = 3_900
_SAMPLE_ROWS = 50_000


def draw_curve(table: ClusteredTable, blocks: BlockMetadata) -> dict[str, str]:
    """Draw the boundaries of a table's curve if there are none, or if rows have moved away from them.

    Return the properties that record them; empty if there is nothing to draw.
    """
    key, curve = table.key, table.curve
    if not key.curve:
        return {}
    if curve is not None and curve_boundaries.is_curve_of(curve, key, blocks):
        drawn = renewed(curve_boundaries.curve_blocks(key, curve, blocks))
    else:
        drawn = _sampled_curve(table, int(blocks.rows.sum()))
    if drawn is None:
        return {}
    properties = curve_boundaries.as_properties(key, drawn)
    table.drawn_curve = curve_boundaries.recorded_curve(properties, key) or drawn
    return properties


def _sampled_curve(table: ClusteredTable, rows: int) -> Curve | None:
    """Draw boundaries from a sample of a table's rows, or return None if there are none."""
    if not rows:
        return None
    fields = table.key.on_curve
    sample = table.iceberg.sample([field.column for field in fields], rows, _SAMPLE_ROWS)
    columns = []
    for number, field in enumerate(fields):
        columns.append(field.transform.values(sample.column(f"column_{number}").combine_chunks()))
    return Curve.of(columns)


@dataclass(frozen=True)
class PlannedRound:
    """A plan and what it was made from: the rules, the blocks, and the bytes that are left of the budget, or None."""

    table: ClusteredTable
    checkpoint: Checkpoint
    blocks: SnapshotBlocks
    max_bytes: int | None

    @cached_property
    def candidates(self) -> Blocks:
        """The blocks for the planner; those of partitions at rest are fixed."""
        planned = self.blocks.planned
        if not self._at_rest:
            return planned
        return replace(planned, fixed=planned.fixed | np.isin(planned.partition, list(self._at_rest)))

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        return plan(self.candidates, replace(self.checkpoint.policy, max_bytes=self.max_bytes))

    @property
    def reason(self) -> str:
        """Why there is, or is not, something to do."""
        if self.plan.block_sets or not self._at_rest:
            return self.plan.reason
        where = f" of {len(self._at_rest)} partitions" if len(self._at_rest) > 1 else ""
        depth = max(self._depths[list(self._at_rest)])
        return f"depth {depth:.4g}{where} was not lowered by the last merge, and nothing has arrived since"

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

        Args:
            groups: All groups that were merged.
            leaves_nothing: Whether nothing is to be done outside their partitions.
            snapshots: The snapshots that the commit adds.
            after: The table as they leave it.
        """
        checkpoint = NO_CHECKPOINT
        if leaves_nothing:
            files = [group.source.files[0].task.file() for group in groups]
            checkpoint = self.checkpoint.properties(self.snapshot_id, snapshots, files, after)
        return {**NO_CHANGES, **checkpoint, **self._rest(groups, after.properties)}

    def _rest(self, groups: Sequence[RewrittenGroup], after: Mapping[str, str]) -> dict[str, str | None]:
        """Return the property of the partitions at rest after a commit, None to remove it.

        ``after`` are the properties of the table after the commit, which still lacks this.
        """
        if not self.table.key.curve:
            return {}
        checksums = self._checksums.copy()
        for block_set, group in zip(self.plan.block_sets, groups, strict=True):
            checksums[block_set.partition] += _checksum(group.paths) - _checksum(
                file.path for file in group.source.files
            )
        deep = {block_set.partition for block_set in self.plan.block_sets if block_set.depth > 1}
        depths = {**self._at_rest, **{number: float(self._depths[number]) for number in deep}}
        # Each takes more than ten characters.
        merged = [(str(checksums[number]), depth) for number, depth in depths.items()][-_LONGEST // 10 :]
        rules = self._rules(after)
        while merged:
            text = json.dumps({"rules": rules, "merged": dict(merged)}, separators=(",", ":"))
            if len(text) <= _LONGEST:
                return {table_properties.REST: text}
            del merged[0]
        return {table_properties.REST: None}

    @cached_property
    def _depths(self) -> FloatArray:
        """The mean depth of the blocks of each partition that a plan may rewrite; touching does not count."""
        blocks = self.blocks.planned
        eligible = self.checkpoint.policy.candidates(blocks)
        partitions = int(blocks.partition.max()) + 1
        count = np.bincount(eligible.partition, minlength=partitions)
        total = np.bincount(eligible.partition, eligible.cells().depths().astype(np.float64), partitions)
        depth: FloatArray = total / np.maximum(count, 1)
        return depth

    @cached_property
    def _checksums(self) -> IntArray:
        """The checksum of the files of each partition: int64 (partitions,)."""
        others = np.setdiff1d(np.arange(len(self.blocks.metadata)), self.blocks.eligible)
        paths = self.blocks.metadata.path.take(pa.array(np.concatenate([self.blocks.eligible, others])))
        of_paths = [_checksum([path]) for path in paths.to_pylist()]
        return np.bincount(self.blocks.planned.partition, of_paths).astype(np.int64)

    @cached_property
    def _at_rest(self) -> dict[int, float]:
        """The partitions that hold the blocks of their last merge and are no less deep than before it: that depth."""
        if not self.table.key.curve or not len(self.blocks.planned):
            return {}
        properties, planned = self.table.iceberg.properties, self.blocks.planned
        try:
            record = json.loads(properties.get(table_properties.REST, "{}"))
            merged = {name: float(depth) for name, depth in record["merged"].items()}
            if record["rules"] != self._rules(properties):
                return {}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            return {}
        deleted = planned.partition[planned.deleted_at_least(self.checkpoint.policy.deleted_share)]
        before = [merged.get(str(name), np.inf) for name in self._checksums]
        at_rest = np.flatnonzero(self._depths >= np.array(before) - 1e-9)
        return {number: before[number] for number in np.setdiff1d(at_rest, deleted).tolist()}

    def _rules(self, properties: Mapping[str, str]) -> str:
        """Return a digest of all that depths depend on besides the blocks."""
        return digest(
            [
                str(self.table.key),
                self.checkpoint.where,
                asdict(self.checkpoint.policy),
                curve_boundaries.curve_properties(properties),
            ]
        )


def _greatest(values: pa.Array) -> pa.Scalar:
    """Return the greatest value as Spark sorts them: NULL is the least one, and NaN, which Arrow leaves out, is it."""
    known = values.drop_null().sort()
    return known[-1] if len(known) else values[0]


def _checksum(paths: Iterable[str]) -> int:
    """Return the checksum of a set of files: the sum of those of its members, so that a merge changes it by its own."""
    return sum(zlib.crc32(path.encode()) for path in paths)
