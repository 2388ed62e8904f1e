"""Merge file groups: read their files, sort the rows by the cluster key, and cut them into new files.

Nothing is committed here. Cuts are chosen once, from one sample of the key columns of all groups that need them. Then
one of two writers takes each group: the native one if it can write exactly as Iceberg would, otherwise Spark's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.manifest_entries import SnapshotScan
from dbt_recluster.iceberg.rewrite.file_groups import (
    Cuts,
    FileGroup,
    GroupPlan,
    RewrittenGroup,
    delete_files,
    discard_files,
    merge_error,
)
from dbt_recluster.iceberg.rewrite.native import NativeWriter
from dbt_recluster.iceberg.rewrite.sample import GroupSample, take_samples, with_counted_rows
from dbt_recluster.iceberg.rewrite.spark_writer import SparkWriter
from dbt_recluster.iceberg.rewrite.verification import Verifier
from dbt_recluster.iceberg.session.jobs import MergeProgress, RoundJobs, job_step
from dbt_recluster.key.box_tree import one_box
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.curve import Curve

logger = logging.getLogger(__name__)

# Blocks then end within a few percent of where they should.
_SAMPLED_PER_BLOCK = 4000
_MOST_SAMPLED = 2_000_000


@dataclass(frozen=True)
class BlockLimits:
    """The most rows and bytes of a new block; bytes are estimated from the blocks that it replaces."""

    rows: int
    bytes: int

    def rows_in(self, group: FileGroup) -> int:
        """Return the most rows in a new block of a group that keep it within both limits."""
        return max(1, min(self.rows, group.rows * self.bytes // max(1, group.bytes)))


@dataclass(frozen=True)
class Merger:
    """Merges file groups of one table."""

    table: IcebergTable
    key: ClusterKey
    limits: BlockLimits
    progress: MergeProgress | None = None
    # The table as the commit will leave it, whose properties new files follow; None for ``table``.
    pending: IcebergTable | None = None
    curve: Curve | None = None  # of a key that ends in one

    def merge(self, scan: SnapshotScan, groups: Sequence[FileGroup]) -> list[RewrittenGroup]:
        """Merge groups of a scan, each into new files that are sorted and disjoint; delete files are applied.

        Raises:
            MergeFailedError: The new files do not hold the rows of the old ones.
            OrphanFilesError: The merge failed, and some of the new files could not be deleted.
        """
        plans = self._plan(with_counted_rows(self.table, groups))
        rewritten: dict[int, RewrittenGroup] = {}
        try:
            refused = self._write(plans, rewritten, scan)
        except BaseException as e:
            discard_files(self.table, [path for group in rewritten.values() for path in group.paths], e)
            raise
        return [replace(rewritten[number], not_native=refused[number]) for number in range(len(groups))]

    def _write(
        self, plans: Sequence[GroupPlan], rewritten: dict[int, RewrittenGroup], scan: SnapshotScan
    ) -> dict[int, str | None]:
        """Write and verify groups, and add each to ``rewritten``; return why not natively, by the group's number."""
        jobs = RoundJobs(self.table.spark, [plan.group.bytes for plan in plans], self.progress)
        pending = self.pending or self.table
        verifier = Verifier(pending, scan)
        native = NativeWriter(self.table, pending, self.key, self.curve)
        refused = {plan.number: native.refusal(plan) for plan in plans}
        if fit := [plan for plan in plans if refused[plan.number] is None]:
            written = native.write(fit, jobs)
            rewritten |= {number: group for number, group in written.items() if not isinstance(group, str)}
            refused |= {number: reason for number, reason in written.items() if isinstance(reason, str)}
            for number, difference in verifier.differences(rewritten).items():
                refused[number] = f"verification: {difference}"
                logger.warning("%s: the native writer %s. Spark's takes over.", self.table.name, difference)
                delete_files(self.table, rewritten.pop(number).paths)
        for reason in {reason for reason in refused.values() if reason}:
            logger.debug("%s: blocks are written by Spark: %s", self.table.name, reason)
        left = {plan.number: plan for plan in plans if plan.number not in rewritten}
        rewritten |= SparkWriter(self.table, pending, self.key, self.curve).write(list(left.values()), jobs)
        for number, difference in verifier.differences({n: rewritten[n] for n in left}).items():
            raise merge_error(self.table, left[number].group, difference)
        return refused

    def _plan(self, groups: Sequence[FileGroup]) -> list[GroupPlan]:
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
            is_sorted = sample.is_sorted if sample else (True,) * len(group.files)
            is_utf_8 = sample is None or sample.is_utf_8
            plans.append(GroupPlan(number, group, self._cuts(sample, limits[number]), is_sorted, is_utf_8))
        return plans

    def _cuts(self, sample: GroupSample | None, limit: int) -> Cuts:
        """Cut a group into blocks; one without a sample is a single block."""
        if self.curve is None or self.key.leading:
            return sample.block_starts(limit) if sample else []
        if sample is None:
            return one_box(len(self.key.fields), self.curve.parts)
        snapshot, columns = self.table.current_snapshot(), len(self.key.fields)
        blocks = max(1.0, ((snapshot and snapshot.count("total-records")) or sample.rows) / limit)
        # The cost of a block if the whole table were sorted at once.
        return sample.boxes(limit, self.curve.parts, columns * blocks ** (-1 / columns))
