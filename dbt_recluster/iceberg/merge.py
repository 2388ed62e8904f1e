"""Merge block sets: read their files, sort them by the cluster key, cut them into new blocks.

Nothing is committed here. The parts are Iceberg's own, those its ``rewrite_data_files`` is made of: a staged
set of scan tasks is read through ``scan-task-set-id``, and a write with ``rewritten-file-scan-task-set-id``
leaves files and no snapshot.

All sets of a round are merged by as few Spark jobs as can be: a pass over their key columns that tells where
to cut (:mod:`~dbt_recluster.iceberg.sample`, :mod:`~dbt_recluster.iceberg.cuts`), then one write of the sets
that are read by ranges (:mod:`~dbt_recluster.iceberg.ranges`) and one of those that are shuffled
(:mod:`~dbt_recluster.iceberg.shuffle`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.iceberg.block_set import BlockSet, MergedSet
from dbt_recluster.iceberg.cuts import Cut, choose_cuts
from dbt_recluster.iceberg.jobs import job_step
from dbt_recluster.iceberg.key_columns import AddedColumns, add_key_columns
from dbt_recluster.iceberg.proof import check_merge, deal_out
from dbt_recluster.iceberg.ranges import KeyValue, RangeOutput, bytes_read, only_rows_in_range, range_outputs
from dbt_recluster.iceberg.round_jobs import RoundJobs, RoundTold
from dbt_recluster.iceberg.sample import SetSample, count_rows, file_groups, take_samples
from dbt_recluster.iceberg.shuffle import send_to_blocks
from dbt_recluster.iceberg.staging import MAX_PIECES, staged
from dbt_recluster.iceberg.writing import take_back, write_files

if TYPE_CHECKING:
    from dbt_recluster.iceberg.table import IcebergTable

# A block of this many sampled rows is cut within a few percent of where it should be.
_SAMPLED_PER_BLOCK = 4000
_MOST_SAMPLED = 2_000_000
# How far a block may be off, in standard deviations of its sampled rows.
_DEVIATIONS = 3.5
# Reading by ranges reads some row groups more than once; a shuffle writes and reads everything once more. On
# TPC-H's lineitem the two took the same time when ranges read the files 2.9 times (benchmarks/merge.py).
_MOST_READ_AGAIN = 1.9
# Opening a file and reading its footer, in bytes read in the same time.
_OPEN_BYTES = 64 * 1024
# The fixed cost of a shuffle's second stage, likewise.
_SHUFFLE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class _SetPlan:
    """How one set is to be merged: by the ranges of ``outputs``, or, without those, by a shuffle.

    Attributes:
        number: Position among the sets of the round.
        starts: The keys at which its blocks behind the first begin.
        shares: For each, the share of the rows with that very key which stays in the block before.
        outputs: Its new blocks.
    """

    number: int
    starts: Sequence[KeyValue]
    shares: Sequence[float]
    outputs: list[RangeOutput] | None


def merge_sets(
    table: IcebergTable,
    snapshot_id: int,
    sets: Sequence[BlockSet],
    key: ClusterKey,
    block_rows: int,
    block_bytes: int,
    told: RoundTold | None = None,
) -> list[MergedSet]:
    """Merge every set into new files, sorted by ``key`` and, within the set, disjoint.

    Args:
        table: The table.
        snapshot_id: The snapshot that the sets are of.
        sets: What to merge; their delete files are applied.
        key: The cluster key.
        block_rows: The most rows in a new file.
        block_bytes: The size that a new file should not exceed, by the size of those it is made of.
        told: Told how much of the sets is merged, by the Spark tasks that have ended.

    Returns:
        What was written, one a set, in their order.

    Raises:
        MergeFailedError: Other rows came out than went in. Whatever fails, the new files are deleted.
        OrphanFilesError: Something failed, and then some of them could not be deleted.
    """
    sets = _with_counted_rows(table, sets)
    plans, types = _plan(table, sets, key, block_rows, block_bytes)
    written: list[Any] = []
    files: dict[int, list[Any]] = {}
    jobs = RoundJobs(table.spark, [each.bytes for each in sets], told)
    try:
        for spec_id in sorted({each.spec_id for each in sets}):
            own = [plan for plan in plans if sets[plan.number].spec_id == spec_id]
            by_range = [plan for plan in own if plan.outputs is not None]
            by_shuffle = [plan for plan in own if plan.outputs is None]
            for chosen, merge in ((by_range, _merge_by_ranges), (by_shuffle, _merge_by_shuffle)):
                if chosen:
                    new = merge(table, key, types, spec_id, chosen, sets, jobs)
                    written += new
                    numbers = [plan.number for plan in chosen]
                    dealt = deal_out(table, new, [sets[number] for number in numbers])
                    files.update(zip(numbers, dealt, strict=True))
        merged = [_merged(each, files[number]) for number, each in enumerate(sets)]
        check_merge(table, snapshot_id, merged)
    except BaseException as e:
        take_back(table, written, e)
        raise
    return merged


def _with_counted_rows(table: IcebergTable, sets: Sequence[BlockSet]) -> list[BlockSet]:
    """Return the sets with the rows counted that their delete files leave, where that is not known without."""
    unknown = [number for number, each in enumerate(sets) if each.live_rows is None]
    if not unknown:
        return list(sets)
    with job_step(table.spark, "how many rows are left"):
        counts = count_rows(table, [sets[number] for number in unknown])
    counted = dict(zip(unknown, counts, strict=True))
    return [replace(each, counted_rows=counted.get(number)) for number, each in enumerate(sets)]


def _plan(
    table: IcebergTable, sets: Sequence[BlockSet], key: ClusterKey, block_rows: int, block_bytes: int
) -> tuple[list[_SetPlan], list[str]]:
    """Decide where to cut each set and how to read it; also return the Spark type of each key item."""
    limits = [_row_limit(each, block_rows, block_bytes) for each in sets]
    large = [number for number, each in enumerate(sets) if each.rows > limits[number]]
    samples: dict[int, SetSample] = {}
    types: list[str] = []
    if large:
        total = sum(sets[number].rows for number in large)
        strides = [
            max(1, limits[number] // _SAMPLED_PER_BLOCK, -(-total // _MOST_SAMPLED)) for number in large
        ]
        with job_step(table.spark, "where to cut"):
            found, types = take_samples(table, [sets[number] for number in large], key, strides)
        samples = dict(zip(large, found, strict=True))
    plans = []
    for number, each in enumerate(sets):
        sample = samples.get(number)
        cuts = _cuts(sample, limits[number]) if sample is not None else []
        values = sample.values if sample is not None else []
        starts = [[column[cut.value] for column in values] for cut in cuts]
        outputs = _outputs(table, each, key, cuts, starts, sample)
        plans.append(_SetPlan(number, starts, [cut.share for cut in cuts], outputs))
    return plans, types


def _row_limit(each: BlockSet, block_rows: int, block_bytes: int) -> int:
    """Return the most rows in a new block of a set, so that it stays within both limits."""
    return max(1, min(block_rows, each.rows * block_bytes // max(1, each.bytes)))


def _cuts(sample: SetSample, limit: int) -> list[Cut]:
    """Choose the cuts, with room for what the sample cannot tell."""
    if sample.stride == 1:
        return choose_cuts(sample.counts, sample.rows, limit)
    # A cut in a random order of rows is off by the square root of the rows sampled; in a sorted file, by no
    # more than one stride.
    off = _DEVIATIONS * (sample.stride / limit) ** 0.5
    if all(sample.sorted_inside):
        off = min(off, 2 * len(sample.sorted_inside) * sample.stride / limit)
    return choose_cuts(sample.counts, sample.rows, limit * (1 - min(off, 0.3)))


def _outputs(
    table: IcebergTable,
    each: BlockSet,
    key: ClusterKey,
    cuts: Sequence[Cut],
    starts: Sequence[KeyValue],
    sample: SetSample | None,
) -> list[RangeOutput] | None:
    """Return the ranges to read a set by, or None where a shuffle is cheaper."""
    if any(cut.share for cut in cuts):
        return None
    affordable = _MOST_READ_AGAIN * each.bytes + _SHUFFLE_BYTES
    if sample is not None:
        unsorted = sum(
            file.bytes
            for file, is_sorted in zip(each.files, sample.sorted_inside, strict=True)
            if not is_sorted
        )
        # Before any range is looked at: blocks of files in no order overlap with everything.
        if unsorted * len(cuts) > 2 * affordable:
            return None
    outputs = range_outputs(table, each, key, starts)
    opened = [len(output.group.files) for output in outputs]
    cost = bytes_read(each, outputs, sample) - each.bytes + (sum(opened) - len(each.files)) * _OPEN_BYTES
    return outputs if cost <= affordable and len(opened) * max(opened) <= MAX_PIECES else None


def _merge_by_ranges(
    table: IcebergTable,
    key: ClusterKey,
    types: Sequence[str],
    spec_id: int,
    plans: Sequence[_SetPlan],
    _: Sequence[BlockSet],
    jobs: RoundJobs,
) -> list[Any]:
    """Write the blocks of sets in one job; return the new files, set after set."""
    outputs = [output for plan in plans for output in plan.outputs or []]
    set_of = [plan.number for plan in plans for _ in plan.outputs or []]
    with staged(table, [output.group for output in outputs]) as source:
        added = AddedColumns(source.frame)
        frame, names = add_key_columns(table.spark, source.frame, key, added)
        frame = only_rows_in_range(frame, names, types, outputs)
        with jobs.step("merge by ranges", set_of, stages=1) as told:
            return write_files(table, frame, names, added, source.set_id, spec_id, stages=1, told=told)


def _merge_by_shuffle(
    table: IcebergTable,
    key: ClusterKey,
    types: Sequence[str],
    spec_id: int,
    plans: Sequence[_SetPlan],
    sets: Sequence[BlockSet],
    jobs: RoundJobs,
) -> list[Any]:
    """Write the blocks of sets in one job; return the new files, set after set."""
    parallelism = table.spark.sparkContext.defaultParallelism
    groups, plan_of, _ = file_groups([sets[plan.number] for plan in plans], parallelism)
    set_of = [plan.number for plan in plans for _ in range(len(plan.starts) + 1)]
    with staged(table, groups) as source:
        added = AddedColumns(source.frame)
        frame, names = add_key_columns(table.spark, source.frame, key, added)
        starts, shares = [plan.starts for plan in plans], [plan.shares for plan in plans]
        frame = send_to_blocks(frame, names, types, starts, shares, plan_of, added)
        with jobs.step("merge by a shuffle", set_of, stages=2) as told:
            return write_files(table, frame, names, added, source.set_id, spec_id, stages=2, told=told)


def _merged(each: BlockSet, new: list[Any]) -> MergedSet:
    return MergedSet(
        each,
        new,
        rows=sum(int(file.recordCount()) for file in new),
        bytes=sum(int(file.fileSizeInBytes()) for file in new),
    )
