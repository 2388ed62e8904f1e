"""Merge file groups: read their files, sort the rows by the cluster key, and cut them into new files.

Nothing is committed here. As in Iceberg's ``rewrite_data_files``, a staged set of scan tasks is read through
``scan-task-set-id``, and a write with ``rewritten-file-scan-task-set-id`` creates files and no snapshot.

A round takes as few Spark jobs as possible: one samples the key columns of all groups that need cuts, one writes the
groups that are read by ranges, and one those that are shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite.file_groups import (
    FileGroup,
    RewrittenGroup,
    ScanPartition,
    scan_partitions,
)
from dbt_recluster.iceberg.rewrite.keyed_rows import Cuts, KeyedRows, count_blocks
from dbt_recluster.iceberg.rewrite.ranges import bytes_read, is_ascending, read_ranges
from dbt_recluster.iceberg.rewrite.sample import GroupSample, take_samples, with_counted_rows
from dbt_recluster.iceberg.rewrite.staging import MAX_PIECES, staged
from dbt_recluster.iceberg.rewrite.verification import assign_files, verify_rewrite
from dbt_recluster.iceberg.rewrite.writing import discard_files, write_files
from dbt_recluster.iceberg.session.jobs import MergeProgress, RoundJobs, job_step
from dbt_recluster.key.box_tree import SHARE, BoxTree, one_box
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.curve import Curve

# Blocks then end within a few percent of where they should.
_SAMPLED_PER_BLOCK = 4000
_MOST_SAMPLED = 2_000_000
# Ranges read some row groups more than once; a shuffle writes and reads everything once more. On TPC-H's lineitem both
# took the same time when ranges read the files 2.9 times (benchmarks/merge.py).
_MOST_READ_AGAIN = 1.9
# Bytes that are read in the time of opening a file and reading its footer, and of starting a shuffle's second stage.
_OPEN_BYTES = 64 * 1024
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
    """How to merge one group."""

    number: int  # position among the groups of the round
    group: FileGroup
    cuts: Cuts
    ranges: dict[int, ScanPartition] | None  # that each new block reads, by number; None to shuffle the group

    @property
    def job(self) -> tuple[int, bool]:
        """Groups with equal values are written by one job: partition spec, and whether to shuffle."""
        return self.group.spec_id, self.ranges is None


@dataclass(frozen=True)
class Merger:
    """Merges file groups of one table."""

    table: IcebergTable
    key: ClusterKey
    limits: BlockLimits
    progress: MergeProgress | None = None
    # The table as the commit will leave it, whose properties new files follow; None for ``table``.
    target: IcebergTable | None = None
    curve: Curve | None = None

    def __post_init__(self) -> None:
        """Raise a ValueError if the key ends in a curve and none is given, or the other way round."""
        if len(self.curve.boundaries if self.curve else ()) != self.key.curve:
            raise ValueError(
                f"merging by {self.key} takes boundaries of the {self.key.curve} columns of its curve"
            )

    def merge(self, snapshot_id: int, groups: Sequence[FileGroup]) -> list[RewrittenGroup]:
        """Merge groups of a snapshot, each into new files that are sorted and disjoint; delete files are applied.

        Raises:
            MergeFailedError: The new files do not hold the rows of the old ones.
            OrphanFilesError: The merge failed, and some of the new files could not be deleted.
        """
        plans = self._plan(with_counted_rows(self.table, groups))
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

    def _plan(self, groups: Sequence[FileGroup]) -> list[_GroupPlan]:
        """Decide where to cut each group and how to read it."""
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
            cuts = self._cuts(sample, limits[number])
            plans.append(_GroupPlan(number, group, cuts, self._ranges(group, cuts, sample)))
        return plans

    def _cuts(self, sample: GroupSample | None, limit: int) -> Cuts:
        """Cut a group into blocks; one without a sample is a single block."""
        if self.curve is None or self.key.leading:
            return sample.block_starts(limit) if sample else []
        if sample is None:
            return one_box(len(self.key.fields), self.curve.parts)
        snapshot, columns = self.table.current_snapshot(), len(self.key.fields)
        blocks = max(1.0, ((snapshot and snapshot.count("total-records")) or sample.rows) / limit)
        # What a block costs in the whole table, sorted at once.
        return sample.boxes(limit, self.curve.parts, columns * blocks ** (-1 / columns))

    def _ranges(
        self, group: FileGroup, cuts: Cuts, sample: GroupSample | None
    ) -> dict[int, ScanPartition] | None:
        """Return what each block of a group reads, or None if a shuffle is cheaper or necessary."""
        if sample is None or count_blocks(cuts) == 1:
            return {0: ScanPartition(group.files, group.spec_id)}
        if isinstance(cuts, BoxTree):
            is_shared = bool((cuts.column == SHARE).any())
        else:
            is_shared = any(start.share for start in cuts)
        if is_shared or not sample.has_bounds or (self.curve is not None and not is_ascending(self.curve)):
            return None
        affordable = _MOST_READ_AGAIN * group.bytes + _SHUFFLE_BYTES
        files = zip(group.files, sample.is_sorted, strict=True)
        unsorted = sum(file.bytes for file, sorted_inside in files if not sorted_inside)
        # Unsorted files overlap with everything, which is clear before any range is built.
        if unsorted * (count_blocks(cuts) - 1) > 2 * affordable:
            return None
        ranges = read_ranges(self.table, group, self.key, self.curve, cuts)
        opened = [len(block_range.files) for block_range in ranges.values()]
        if not opened or len(opened) * max(opened) > MAX_PIECES:
            return None
        cost = bytes_read(group, ranges.values(), sample.is_sorted) - group.bytes
        cost += (sum(opened) - len(group.files)) * _OPEN_BYTES
        return ranges if cost <= affordable else None

    def _write(self, plans: Sequence[_GroupPlan], jobs: RoundJobs) -> list[Any]:
        """Write the blocks of groups in one job; return the new files, group after group."""
        spec_id, is_shuffled = plans[0].job
        counts = [count_blocks(plan.cuts) for plan in plans]
        if is_shuffled:
            parallelism = self.table.spark.sparkContext.defaultParallelism
            partitions = scan_partitions([plan.group for plan in plans], parallelism)
            blocks = [(place, number) for place, count in enumerate(counts) for number in range(count)]
        else:
            partitions = [block for plan in plans for block in (plan.ranges or {}).values()]
            blocks = [(place, number) for place, plan in enumerate(plans) for number in plan.ranges or ()]
        writers = [plans[place] for place, _ in blocks]
        with staged(self.table, partitions) as source:
            rows = KeyedRows.of(self.table.spark, source.frame, self.key, self.curve)
            if is_shuffled:
                group_of = [partition.group for partition in partitions]
                rows = rows.with_blocks([plan.cuts for plan in plans], group_of).shuffled(sum(counts))
            elif max(counts) > 1:
                first = [0, *accumulate(counts)]
                rows = rows.with_blocks([plan.cuts for plan in plans], [place for place, _ in blocks])
                rows = rows.read_by([first[place] + number for place, number in blocks])
            step, stages = ("merge by a shuffle", 2) if is_shuffled else ("merge by ranges", 1)
            with jobs.write(step, source.set_id, [plan.number for plan in writers], stages):
                written_to = [plan.group.partition for plan in writers]
                return write_files(self.target or self.table, rows.to_write(), source, spec_id, written_to)
