"""Merge file groups: read their files, sort the rows by the cluster key, split them into new files.

Nothing is committed here. The parts are those that Iceberg's ``rewrite_data_files`` is made of: a staged set of scan
tasks is read through ``scan-task-set-id``, and a write with ``rewritten-file-scan-task-set-id`` creates files and no
snapshot.

A round merges all its groups with as few Spark jobs as possible: one pass over the key columns that finds the split
points, then one write of the groups that are read by ranges, and one of those that are shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import Any

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite.file_groups import (
    FileGroup,
    RewrittenGroup,
    ScanPartition,
    scan_partitions,
)
from dbt_recluster.iceberg.rewrite.keyed_rows import BlockStart, KeyedRows
from dbt_recluster.iceberg.rewrite.ranges import block_ranges, box_ranges, bytes_read, is_ascending
from dbt_recluster.iceberg.rewrite.sample import GroupSample, count_rows, take_samples
from dbt_recluster.iceberg.rewrite.staging import MAX_PIECES, staged
from dbt_recluster.iceberg.rewrite.verification import assign_files, verify_rewrite
from dbt_recluster.iceberg.rewrite.writing import discard_files, write_files
from dbt_recluster.iceberg.session.jobs import MergeProgress, RoundJobs, job_step
from dbt_recluster.key.box_tree import SHARE, BoxTree, one_box
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.curve import Curve

# With this many sampled rows, a block ends within a few percent of where it should.
_SAMPLED_PER_BLOCK = 4000
_MOST_SAMPLED = 2_000_000
# Reading by ranges reads some row groups more than once; a shuffle writes and reads everything once more. With TPC-H's
# lineitem the two took the same time when ranges read the files 2.9 times (benchmarks/merge.py).
_MOST_READ_AGAIN = 1.9
# The cost of opening a file and reading its footer, in bytes read in the same time.
_OPEN_BYTES = 64 * 1024
# The fixed cost of a shuffle's second stage, likewise.
_SHUFFLE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class BlockLimits:
    """The most rows and bytes of a new block; bytes are estimated from the blocks that it replaces."""

    rows: int
    bytes: int

    def rows_in(self, group: FileGroup) -> int:
        """Return the most rows in a new block of a group that keep it within both limits."""
        return max(1, min(self.rows, group.rows * self.bytes // max(1, group.bytes)))


@dataclass(frozen=True)
class _GroupPlan:
    """How to merge one group.

    Attributes:
        number: Position among the groups of the round.
        group: The group.
        blocks: Where its new blocks begin; of a curve, the boxes that they are.
        ranges: Its new blocks if each is read by itself; None if the group is shuffled.
    """

    number: int
    group: FileGroup
    blocks: Sequence[BlockStart] | BoxTree
    ranges: Sequence[ScanPartition] | None

    @property
    def count(self) -> int:
        """Number of new blocks; some may turn out to have no row."""
        return len(self.blocks) if isinstance(self.blocks, BoxTree) else len(self.blocks) + 1

    @property
    def job(self) -> tuple[int, bool]:
        """What the groups of one job have in common: their spec, and whether they are shuffled."""
        return self.group.spec_id, self.ranges is None


@dataclass(frozen=True)
class Merger:
    """Merges file groups of one table.

    Attributes:
        progress: Callback for the progress of the merge, or None.
        target: The table as it will be when the new files are committed, whose properties they follow; None is the
            same.
        curve: The curve that the key ends in, or None.

    Raises:
        ValueError: The key ends in a curve, and there is none, or the other way round.
    """

    table: IcebergTable
    key: ClusterKey
    limits: BlockLimits
    progress: MergeProgress | None = None
    target: IcebergTable | None = None
    curve: Curve | None = None

    def __post_init__(self) -> None:
        """Check the curve."""
        if len(self.curve.boundaries if self.curve else ()) != self.key.curve:
            raise ValueError(
                f"merging by {self.key} takes boundaries of the {self.key.curve} columns of its curve"
            )

    def merge(self, snapshot_id: int, groups: Sequence[FileGroup]) -> list[RewrittenGroup]:
        """Merge groups of a snapshot, each into new files that are sorted and disjoint; delete files are applied.

        Returns:
            What was written, in the order of the groups.

        Raises:
            MergeFailedError: The new files do not hold the rows of the old ones.
            OrphanFilesError: Something failed, and some of the new files could not be deleted afterwards.
        """
        plans = self._plan(self._with_counted_rows(groups))
        jobs = RoundJobs(self.table.spark, [group.bytes for group in groups], self.progress)
        written: list[Any] = []
        rewritten: dict[int, RewrittenGroup] = {}
        try:
            for _, members in groupby(sorted(plans, key=lambda plan: plan.job), key=lambda plan: plan.job):
                of_job = list(members)
                files = self._write(of_job, jobs)
                written += files
                merged = assign_files(self.table, files, [plan.group for plan in of_job])
                rewritten |= {plan.number: group for plan, group in zip(of_job, merged, strict=True)}
            result = [rewritten[number] for number in range(len(groups))]
            verify_rewrite(self.table, snapshot_id, result)
        except BaseException as e:
            discard_files(self.table, [str(file.location()) for file in written], e)
            raise
        return result

    def _with_counted_rows(self, groups: Sequence[FileGroup]) -> list[FileGroup]:
        """Count the rows of the groups whose delete files do not record how many rows they delete."""
        unknown = [group for group in groups if group.live_rows is None]
        if not unknown:
            return list(groups)
        with job_step(self.table.spark, "count rows"):
            counts = iter(count_rows(self.table, unknown))
        return [
            replace(group, counted_rows=next(counts)) if group.live_rows is None else group
            for group in groups
        ]

    def _plan(self, groups: Sequence[FileGroup]) -> list[_GroupPlan]:
        """Decide where to split each group and how to read it."""
        limits = [self.limits.rows_in(group) for group in groups]
        large = [number for number, group in enumerate(groups) if (group.live_rows or 0) > limits[number]]
        samples: dict[int, GroupSample] = {}
        if large:
            least_stride = -(-sum(groups[number].rows for number in large) // _MOST_SAMPLED)
            strides = [max(1, limits[number] // _SAMPLED_PER_BLOCK, least_stride) for number in large]
            with job_step(self.table.spark, "sample"):
                sampled = [groups[number] for number in large]
                taken = take_samples(self.table, sampled, self.key, strides, self.curve)
            samples = dict(zip(large, taken, strict=True))
        plans = []
        for number, group in enumerate(groups):
            sample = samples.get(number)
            blocks = self._blocks(sample, limits[number])
            plans.append(_GroupPlan(number, group, blocks, self._ranges(group, blocks, sample)))
        return plans

    def _blocks(self, sample: GroupSample | None, limit: int) -> Sequence[BlockStart] | BoxTree:
        """Decide where the blocks of a sampled group begin or, if the key is a curve alone, which boxes they are."""
        if self.curve is None or self.key.leading:
            return sample.block_starts(limit) if sample else []
        if sample is None:
            return one_box(len(self.key.fields), self.curve.parts)
        snapshot, columns = self.table.current_snapshot(), len(self.key.fields)
        blocks = max(1.0, ((snapshot and snapshot.count("total-records")) or sample.rows) / limit)
        # What a block costs in the whole table, sorted at once.
        return sample.boxes(limit, self.curve.parts, columns * blocks ** (-1 / columns))

    def _ranges(
        self, group: FileGroup, blocks: Sequence[BlockStart] | BoxTree, sample: GroupSample | None
    ) -> list[ScanPartition] | None:
        """Return the ranges to read a group by, or None if a shuffle is cheaper or necessary."""
        if self.curve is not None and not is_ascending(self.curve):
            return None
        if isinstance(blocks, BoxTree):
            cuts, is_shared = len(blocks) - 1, bool((blocks.column == SHARE).any())
        else:
            cuts, is_shared = len(blocks), any(start.share for start in blocks)
        if is_shared or (sample and not sample.has_bounds):
            return None
        affordable = _MOST_READ_AGAIN * group.bytes + _SHUFFLE_BYTES
        is_sorted = sample.is_sorted if sample else (True,) * len(group.files)
        files = zip(group.files, is_sorted, strict=True)
        unsorted = sum(file.bytes for file, sorted_inside in files if not sorted_inside)
        # Unsorted files overlap with everything, which is clear before any range is built.
        if unsorted * cuts > 2 * affordable:
            return None
        if isinstance(blocks, BoxTree):
            assert self.curve is not None
            ranges = box_ranges(self.table, group, self.key, self.curve, blocks)
        else:
            ranges = block_ranges(self.table, group, self.key, [start.key for start in blocks])
        opened = [len(block_range.files) for block_range in ranges]
        if not opened or len(opened) * max(opened) > MAX_PIECES:
            return None
        cost = bytes_read(group, ranges, is_sorted) - group.bytes
        cost += (sum(opened) - len(group.files)) * _OPEN_BYTES
        return ranges if cost <= affordable else None

    def _write(self, plans: Sequence[_GroupPlan], jobs: RoundJobs) -> list[Any]:
        """Write the blocks of groups in one job; return the new files, group after group."""
        spec_id, is_shuffled = plans[0].job
        if is_shuffled:
            parallelism = self.table.spark.sparkContext.defaultParallelism
            partitions = scan_partitions([plan.group for plan in plans], parallelism)
            of_block = [plan for plan in plans for _ in range(plan.count)]
        else:
            partitions = [block_range for plan in plans for block_range in plan.ranges or ()]
            of_block = [plan for plan in plans for _ in plan.ranges or ()]
        with staged(self.table, partitions) as source:
            rows = KeyedRows.of(self.table.spark, source.frame, self.key, self.curve)
            rows = self._in_blocks(rows, plans, partitions)
            step, stages = ("merge by a shuffle", 2) if is_shuffled else ("merge by ranges", 1)
            with jobs.write(step, source.set_id, [plan.number for plan in of_block], stages):
                written_to = [plan.group.partition for plan in of_block]
                return write_files(self.target or self.table, rows.to_write(), source, spec_id, written_to)

    def _in_blocks(
        self, rows: KeyedRows, plans: Sequence[_GroupPlan], partitions: Sequence[ScanPartition]
    ) -> KeyedRows:
        """Have each Spark partition hold the rows of a new block, given the partitions that read them."""
        trees = [plan.blocks for plan in plans if isinstance(plan.blocks, BoxTree)]
        starts = [plan.blocks for plan in plans if not isinstance(plan.blocks, BoxTree)]
        if plans[0].job[1]:
            group_of = [partition.group for partition in partitions]
            return rows.shuffled_to_boxes(trees, group_of) if trees else rows.in_blocks(starts, group_of)
        if not trees:
            return rows.in_ranges(partitions)
        before = accumulate(map(len, trees), initial=0)
        group_of = [number for number, plan in enumerate(plans) for _ in plan.ranges or ()]
        boxes = [
            first + block.box
            for first, plan in zip(before, plans, strict=False)
            for block in plan.ranges or ()
        ]
        return rows.in_boxes(trees, group_of, boxes)
