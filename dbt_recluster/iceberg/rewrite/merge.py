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
from typing import TYPE_CHECKING, Any

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.curve import Curve
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, RewrittenGroup, scan_partitions
from dbt_recluster.iceberg.rewrite.key_columns import KeyedRows
from dbt_recluster.iceberg.rewrite.ranges import (
    BlockRange,
    block_ranges,
    bytes_read,
    is_ascending,
    rows_in_ranges,
)
from dbt_recluster.iceberg.rewrite.sample import GroupSample, count_rows, take_samples
from dbt_recluster.iceberg.rewrite.shuffle import BlockStarts, send_to_blocks
from dbt_recluster.iceberg.rewrite.split_points import SplitPoint, choose_split_points
from dbt_recluster.iceberg.rewrite.staging import MAX_PIECES, staged
from dbt_recluster.iceberg.rewrite.verification import assign_files, verify_rewrite
from dbt_recluster.iceberg.rewrite.writing import discard_files, write_files
from dbt_recluster.iceberg.session.jobs import MergeProgress, RoundJobs, job_step

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

# With this many sampled rows, a block ends within a few percent of where it should.
_SAMPLED_PER_BLOCK = 4000
_MOST_SAMPLED = 2_000_000
# How far a block may be off, in standard deviations of its sampled rows.
_DEVIATIONS = 3.5
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
    """How to merge one group: by ``ranges``, or by a shuffle if there are none.

    Attributes:
        number: Position among the groups of the round.
        starts: Where its new blocks begin.
        ranges: Its new blocks.
    """

    number: int
    starts: BlockStarts
    ranges: list[BlockRange] | None


class Merger:
    """Merges file groups of one table.

    Args:
        table: The table.
        key: The cluster key.
        limits: Limits of a new block.
        progress: Callback for the progress of the merge, or None.
        target: The table as it will be when the new files are committed, whose properties they follow; None is the
            same.
        curve: The curve that the key ends in.

    Raises:
        ValueError: The key ends in a curve, and there is none, or the other way round.
    """

    def __init__(
        self,
        table: IcebergTable,
        key: ClusterKey,
        limits: BlockLimits,
        progress: MergeProgress | None = None,
        target: IcebergTable | None = None,
        curve: Curve | None = None,
    ) -> None:
        if len(curve.boundaries if curve else ()) != key.curve:
            raise ValueError(f"merging by {key} takes boundaries of the {key.curve} columns of its curve")
        self._table = table
        self._curve = curve
        self._target = target or table
        self._key = key
        self._limits = limits
        self._progress = progress

    def merge(self, snapshot_id: int, groups: Sequence[FileGroup]) -> list[RewrittenGroup]:
        """Merge every group into new files that are sorted and, within the group, disjoint.

        Args:
            snapshot_id: The snapshot that the groups belong to.
            groups: The groups; their delete files are applied.

        Returns:
            What was written, in the order of the groups.

        Raises:
            MergeFailedError: The new files do not hold the rows of the old ones.
            OrphanFilesError: Something failed, and some of the new files could not be deleted afterwards.
        """
        groups = self._with_counted_rows(groups)
        plans = self._plan(groups)
        jobs = RoundJobs(self._table.spark, [group.bytes for group in groups], self._progress)
        written: list[Any] = []
        rewritten: dict[int, RewrittenGroup] = {}
        try:
            for spec_id in sorted({group.spec_id for group in groups}):
                own = [plan for plan in plans if groups[plan.number].spec_id == spec_id]
                by_ranges = [plan for plan in own if plan.ranges is not None]
                by_shuffle = [plan for plan in own if plan.ranges is None]
                for selected, write in (
                    (by_ranges, self._merge_by_ranges),
                    (by_shuffle, self._merge_by_shuffle),
                ):
                    if not selected:
                        continue
                    files = write(selected, groups, spec_id, jobs)
                    written += files
                    merged = assign_files(self._table, files, [groups[plan.number] for plan in selected])
                    rewritten |= {plan.number: group for plan, group in zip(selected, merged, strict=True)}
            result = [rewritten[number] for number in range(len(groups))]
            verify_rewrite(self._table, snapshot_id, result)
        except BaseException as e:
            discard_files(self._table, written, e)
            raise
        return result

    def _with_counted_rows(self, groups: Sequence[FileGroup]) -> list[FileGroup]:
        """Count the rows of the groups whose delete files do not record how many rows they delete."""
        unknown = [number for number, group in enumerate(groups) if group.live_rows is None]
        if not unknown:
            return list(groups)
        with job_step(self._table.spark, "count rows"):
            counts = count_rows(self._table, [groups[number] for number in unknown])
        counted = dict(zip(unknown, counts, strict=True))
        return [replace(group, counted_rows=counted.get(number)) for number, group in enumerate(groups)]

    def _plan(self, groups: Sequence[FileGroup]) -> list[_GroupPlan]:
        """Decide where to split each group and how to read it."""
        limits = [self._limits.rows_in(group) for group in groups]
        large = [number for number, group in enumerate(groups) if (group.live_rows or 0) > limits[number]]
        samples: dict[int, GroupSample] = {}
        if large:
            least_stride = -(-sum(groups[number].rows for number in large) // _MOST_SAMPLED)
            strides = [max(1, limits[number] // _SAMPLED_PER_BLOCK, least_stride) for number in large]
            with job_step(self._table.spark, "sample"):
                sampled = [groups[number] for number in large]
                taken = take_samples(self._table, sampled, self._key, strides, self._curve)
            samples = dict(zip(large, taken, strict=True))
        plans = []
        for number, group in enumerate(groups):
            sample = samples.get(number)
            points = _split_points(sample, limits[number]) if sample is not None else []
            starts = BlockStarts(
                [sample.start(point) for point in points] if sample is not None else [],
                [point.share for point in points],
            )
            plans.append(_GroupPlan(number, starts, self._ranges(group, number, starts, sample)))
        return plans

    def _ranges(
        self, group: FileGroup, number: int, starts: BlockStarts, sample: GroupSample | None
    ) -> list[BlockRange] | None:
        """Return the ranges to read a group by, or None if a shuffle is cheaper or necessary."""
        if self._curve is not None and not is_ascending(self._curve):
            return None
        if any(starts.shares) or (sample and not sample.has_bounds):
            return None
        affordable = _MOST_READ_AGAIN * group.bytes + _SHUFFLE_BYTES
        if sample is not None:
            files = zip(group.files, sample.is_sorted, strict=True)
            unsorted = sum(file.bytes for file, is_sorted in files if not is_sorted)
            # Unsorted files overlap with everything, which is clear before any range is built.
            if unsorted * len(starts) > 2 * affordable:
                return None
        ranges = block_ranges(self._table, group, number, self._key, starts.keys, self._curve)
        opened = [len(block_range.partition.files) for block_range in ranges]
        if not opened or len(opened) * max(opened) > MAX_PIECES:
            return None
        cost = (
            bytes_read(group, ranges, sample) - group.bytes + (sum(opened) - len(group.files)) * _OPEN_BYTES
        )
        return ranges if cost <= affordable else None

    def _merge_by_ranges(
        self, plans: Sequence[_GroupPlan], groups: Sequence[FileGroup], spec_id: int, jobs: RoundJobs
    ) -> list[Any]:
        """Write the blocks of groups in one job; return the new files, group after group."""
        ranges = [block_range for plan in plans for block_range in plan.ranges or []]
        partitions = [block_range.partition for block_range in ranges]
        with staged(self._table, partitions) as source:
            rows = rows_in_ranges(
                KeyedRows.of(self._table.spark, source.frame, self._key, self._curve), ranges
            )
            group_of = [partition.group for partition in partitions]
            with jobs.write("merge by ranges", source.set_id, group_of, stages=1):
                return write_files(
                    self._target, rows.to_write(), source, spec_id, _partitions(groups, group_of)
                )

    def _merge_by_shuffle(
        self, plans: Sequence[_GroupPlan], groups: Sequence[FileGroup], spec_id: int, jobs: RoundJobs
    ) -> list[Any]:
        """Write the blocks of groups in one job; return the new files, group after group."""
        parallelism = self._table.spark.sparkContext.defaultParallelism
        partitions = scan_partitions([groups[plan.number] for plan in plans], parallelism)
        with staged(self._table, partitions) as source:
            rows = KeyedRows.of(self._table.spark, source.frame, self._key, self._curve)
            group_of = [partition.group for partition in partitions]
            rows = send_to_blocks(rows, [plan.starts for plan in plans], group_of)
            number_of_block = [plan.number for plan in plans for _ in range(len(plan.starts) + 1)]
            with jobs.write("merge by a shuffle", source.set_id, number_of_block, stages=2):
                return write_files(
                    self._target, rows.to_write(), source, spec_id, _partitions(groups, number_of_block)
                )


def _partitions(groups: Sequence[FileGroup], number_of_block: Sequence[int]) -> list[Any]:
    """Return the table's partition of each new block, given the number of its group."""
    of_group = {number: groups[number].files[0].task.file().partition() for number in set(number_of_block)}
    return [of_group[number] for number in number_of_block]


def _split_points(sample: GroupSample, limit: int) -> list[SplitPoint]:
    """Choose split points that leave room for the error of the sample."""
    if sample.stride == 1:
        return choose_split_points(sample.counts, sample.rows, limit, sample.cells)
    # If rows are in random order, a split point is off by the square root of the rows sampled; in sorted files, by at
    # most one stride for each.
    off = _DEVIATIONS * (sample.stride / limit) ** 0.5
    if all(sample.is_sorted):
        off = min(off, 2 * len(sample.is_sorted) * sample.stride / limit)
    return choose_split_points(sample.counts, sample.rows, limit * (1 - min(off, 0.3)), sample.cells)
