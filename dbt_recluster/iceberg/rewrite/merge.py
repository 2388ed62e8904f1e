"""Merge file groups: read their files, sort the rows by the cluster key, and cut them into new files.

Nothing is committed here. As in Iceberg's ``rewrite_data_files``, a staged set of scan tasks is read through
``scan-task-set-id``, and a write with ``rewritten-file-scan-task-set-id`` creates files and no snapshot.

A round takes as few Spark jobs as possible: one samples the key columns of all groups that need cuts, one writes the
groups that are read by ranges, and one those that are shuffled. By ranges, each new block reads the row groups that it
overlaps: a few of sorted files, while unsorted ones would be read whole for every block.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import IntArray
from dbt_recluster.iceberg.metadata.manifest_entries import Condition, combine, compare
from dbt_recluster.iceberg.rewrite.file_groups import (
    MAX_PIECES,
    FileGroup,
    RewrittenGroup,
    ScanPartition,
    scan_partitions,
    staged,
)
from dbt_recluster.iceberg.rewrite.key_sql import Cuts, KeyedRows, KeyValue, column_starts, count_blocks
from dbt_recluster.iceberg.rewrite.sample import GroupSample, take_samples, with_counted_rows
from dbt_recluster.iceberg.rewrite.writing import assign_files, discard_files, verify_rewrite, write_files
from dbt_recluster.iceberg.session.jobs import MergeProgress, RoundJobs, job_step
from dbt_recluster.iceberg.session.jvm import CONTENT_FILE, STRING, JavaFunctions, java_list
from dbt_recluster.key.box_tree import SHARE, BoxTree, one_box
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.transforms import Transform
from dbt_recluster.key.types import ColumnType, iceberg_type

_ALL: Condition = {"type": "literal", "value": True}
_METRICS_EVALUATOR = "org.apache.iceberg.expressions.InclusiveMetricsEvaluator"
# Blocks then end within a few percent of where they should.
_SAMPLED_PER_BLOCK = 4000
_MOST_SAMPLED = 2_000_000
# Ranges read some row groups more than once; a shuffle writes and reads everything once more. On TPC-H's lineitem both
# took the same time when ranges read the files 2.9 times (benchmarks/merge.py).
_MOST_READ_AGAIN = 1.9
# Bytes that are read in the time of opening a file and reading its footer, and of starting a shuffle's second stage.
_OPEN_BYTES = 64 * 1024
_SHUFFLE_BYTES = 4 * 1024 * 1024


def read_ranges(
    table: IcebergTable, group: FileGroup, key: ClusterKey, curve: Curve | None, cuts: Cuts
) -> dict[int, ScanPartition]:
    """Return the files and the row filter of each new block of a group, by its number.

    A block reads the files that may hold a row of it, by their bounds; one without any is left out. The result is empty
    if a block would read every file because Iceberg has no constants of the key's type.
    """
    by_path = {file.path: file for file in group.files}
    expressions, functions = table.iceberg.expressions, JavaFunctions(table.spark)
    files = java_list(table.spark, [file.task.file() for file in group.files])
    location = functions.function(functions.method(CONTENT_FILE, "location", STRING))
    evaluate = functions.method(_METRICS_EVALUATOR, "eval", "boolean", CONTENT_FILE)
    schema, ranges = table.java.schema(), {}
    for number, condition in enumerate(_Conditions(table, key).of_blocks(curve, cuts)):
        if condition == _ALL:
            return {}
        # Without a schema the parser takes times as numbers, and so any year.
        wanted = expressions.ExpressionParser.fromJson(json.dumps(condition))
        evaluator = expressions.InclusiveMetricsEvaluator(schema, wanted, True)
        may_match = functions.predicate(evaluate.bindTo(evaluator))
        paths = functions.strings(files.stream().filter(may_match).map(location).iterator())
        if paths:
            ranges[number] = ScanPartition(tuple(by_path[path] for path in paths), group.spec_id, wanted)
    return ranges


def bytes_read(group: FileGroup, ranges: Iterable[ScanPartition], is_sorted: Sequence[bool]) -> float:
    """Estimate the bytes that reading these ranges takes.

    Every cut within a sorted file makes two blocks read the same row group, and every block reads the whole of an
    unsorted file.
    """
    readers = Counter(id(file) for block_range in ranges for file in block_range.files)
    total = 0.0
    for file, sorted_inside in zip(group.files, is_sorted, strict=True):
        count = readers[id(file)]
        total += file.bytes * (min(count, 1 + (count - 1) / file.row_groups) if sorted_inside else count)
    return total


def is_ascending(curve: Curve) -> bool:
    """Return whether boundaries ascend; edited ones may not, and parts of a column are no value ranges then."""
    orders = (np.asarray(pc.sort_indices(column)) for column in curve.boundaries if not column.null_count)
    ascending = [bool((np.diff(order) > 0).all()) for order in orders]
    return ascending.count(True) == len(curve.boundaries)


class _Conditions:
    """Blocks as conditions on columns that hold for every row of a block, and for some others."""

    def __init__(self, table: IcebergTable, key: ClusterKey) -> None:
        self._kinds = {path: iceberg_type(name) for path, name, _ in table.primitive_fields()}
        self._table, self._key = table, key

    def of_blocks(self, curve: Curve | None, cuts: Cuts) -> list[Condition]:
        """Return the condition of each block."""
        if not isinstance(cuts, BoxTree):
            keys = [start.key for start in cuts]
            return [self._between(lower, upper) for lower, upper in pairwise([None, *keys, None])]
        assert curve is not None
        types = self._table.columns().types
        starts = [
            column_starts(field, types[field.column], boundaries)
            for field, boundaries in zip(self._key.on_curve, curve.boundaries, strict=True)
        ]
        boxes = zip(*cuts.regions(curve.parts), strict=True)
        return [self._in_box(starts, lower, upper) for lower, upper in boxes]

    def _in_box(self, starts: Sequence[pa.Array], lower: IntArray, upper: IntArray) -> Condition:
        """Return the condition of ranks within a box; ``starts`` has the least value of each rank but the first."""
        box = []
        for field, of_rank, low, high in zip(self._key.on_curve, starts, lower, upper, strict=True):
            least = _python(of_rank[int(low) - 1]) if low else None
            beyond = _python(of_rank[int(high)]) if high < len(of_rank) else None
            box.append(self._interval(field.column, least, beyond))
        return combine("and", [interval for interval in box if interval != _ALL] or [_ALL])

    def _between(self, lower: KeyValue | None, upper: KeyValue | None) -> Condition:
        """Return a condition that holds for every row from one key to below another, by their first item."""
        field, closed = self._key.fields[0], len(self._key.fields) > 1
        is_date = self._kinds[field.column].in_days

        def start(value: pa.Scalar | None) -> Any:
            return None if value is None else field.transform.start(value, of_date=is_date)

        least = lower[0] if lower is not None and lower[0].is_valid else None
        beyond = None if upper is None else upper[0]
        if beyond is not None and not beyond.is_valid:
            # NULL is below all values; the least decimals have no other value under a transform.
            return compare("is-null", field.column) if field.transform == Transform() else _ALL
        # With a compound key, rows below the bound may share its first item.
        if beyond is not None and closed and field.transform != Transform():
            beyond, closed = field.transform.next(beyond), False
        return self._interval(field.column, start(least), start(beyond), closed)

    def _interval(self, column: str, lower: Any, upper: Any, closed: bool = False) -> Condition:
        """Return a condition for a column's values from one to below another, or to it; None is unbounded.

        NULL is below all values. To Spark, NaN is above all numbers; to Iceberg, it is in no range.
        """
        kind, conditions = self._kinds[column], list[Condition]()
        least, end = _constant(lower, kind, up=False), _constant(upper, kind, up=True)
        if lower != lower:
            conditions.append(compare("is-nan", column))
        elif least is not None:
            above = compare("gt-eq", column, value=least)
            to_the_end = kind.has_nan and (upper is None or upper != upper)
            conditions.append(combine("or", [above, compare("is-nan", column)]) if to_the_end else above)
        if end is not None:
            below = compare("lt-eq" if closed else "lt", column, value=end)
            conditions.append(combine("or", [below, compare("is-null", column)]) if lower is None else below)
        return combine("and", conditions) if conditions else _ALL


def _constant(value: Any, kind: ColumnType, *, up: bool) -> Any | None:
    """Return a value, as from :meth:`Transform.start`, for Iceberg's parser of expressions.

    It is None if the parser has no constant for it. -0.0 and 0.0 are one value to Spark, and two to Iceberg, so zero is
    rounded ``up`` or down.
    """
    if isinstance(value, (bool, bytes)):
        return None
    if isinstance(value, int):
        bits = 31 if kind.in_days else 63
        return value if -(1 << bits) <= value < 1 << bits else None
    if isinstance(value, float):
        zero = 0.0 if up else -0.0
        return (value or zero) if math.isfinite(value) else None
    return str(value) if isinstance(value, Decimal) else value


def _python(value: pa.Scalar) -> Any | None:
    """Return a value as Java can have it, or None if it is text that is not UTF-8."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return None


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
            rows = KeyedRows.of(source.frame, self.key, self.curve)
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
