"""Merge by ranges: each new block reads the row groups that it overlaps. Nothing is shuffled.

This pays for sorted files, of which a block needs a few row groups. Unsorted files would be read whole for every block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.curve import Curve, hilbert_boxes
from dbt_recluster.iceberg.rewrite.curve_sql import item_boundary
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, ScanPartition
from dbt_recluster.iceberg.rewrite.key_columns import (
    KeyedRows,
    KeyValue,
    deciding_columns,
    key_array,
    key_value,
)
from dbt_recluster.iceberg.rewrite.literals import is_nan, source_value
from dbt_recluster.iceberg.rewrite.sample import GroupSample
from dbt_recluster.iceberg.session.java_functions import CONTENT_FILE, STRING, JavaFunctions, split_lines
from dbt_recluster.iceberg.session.jvm import java_list
from dbt_recluster.transforms import Transform

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

# A range of places on a curve is read as at most so many boxes: each costs every row group a comparison.
_MOST_BOXES = 8
_METRICS_EVALUATOR = "org.apache.iceberg.expressions.InclusiveMetricsEvaluator"


@dataclass(frozen=True)
class BlockRange:
    """A new block: the rows of ``partition`` with a key from ``lower`` to below ``upper``; None is unbounded."""

    partition: ScanPartition
    lower: KeyValue | None = None
    upper: KeyValue | None = None


def block_ranges(
    table: IcebergTable,
    group: FileGroup,
    number: int,
    key: ClusterKey,
    starts: Sequence[KeyValue],
    curve: Curve | None = None,
) -> list[BlockRange]:
    """Return the new blocks of a group, which begin at its least key and at ``starts``, and the files each reads.

    Args:
        table: The table.
        group: The group.
        number: Its position among the groups of the job.
        key: The cluster key.
        starts: Keys, ascending.
        curve: The curve that the key ends in.
    """
    if not starts:
        return [BlockRange(ScanPartition(group.files, group.spec_id, group=number))]
    by_path = {file.path: file for file in group.files}
    finder = _FileFinder(table, group)
    boxes = _CurveBoxes(table, key, curve) if curve is not None and not key.leading else None
    ranges = []
    for lower, upper in pairwise([None, *starts, None]):
        wanted = boxes.expression(lower, upper) if boxes else _range_expression(table, key, lower, upper)
        files = tuple(by_path[path] for path in finder.paths(wanted))
        if files:
            ranges.append(BlockRange(ScanPartition(files, group.spec_id, wanted, number), lower, upper))
    return ranges


def bytes_read(group: FileGroup, ranges: Sequence[BlockRange], sample: GroupSample | None) -> float:
    """Estimate the bytes that reading these ranges takes.

    A range reads the row groups that it overlaps. So every cut within a sorted file makes two blocks read the same row
    group, and every block reads the whole of an unsorted file.
    """
    readers = Counter(id(file) for block_range in ranges for file in block_range.partition.files)
    flags = sample.is_sorted if sample is not None else [True] * len(group.files)
    total = 0.0
    for file, is_sorted in zip(group.files, flags, strict=True):
        count = readers[id(file)]
        total += file.bytes * (min(count, 1 + (count - 1) / file.row_groups) if is_sorted else count)
    return total


def rows_in_ranges(rows: KeyedRows, ranges: Sequence[BlockRange]) -> KeyedRows:
    """Keep the rows of Spark partition i whose key is in range i.

    One condition serves all partitions: it looks up the bounds by the number of the partition.
    """
    if all(block_range.lower is None and block_range.upper is None for block_range in ranges):
        return rows
    lowers, uppers = [r.lower for r in ranges], [r.upper for r in ranges]
    deciding = deciding_columns([*lowers, *uppers])
    types = rows.types[:deciding]
    # As a column of its own, it keeps Spark from moving the condition below the steps of a place, which it would copy
    # into it, each twice.
    partition = rows.added.name("partition")
    lower, upper = (f"get({key_array(ends, types)}, {partition})" for ends in (lowers, uppers))
    value = key_value(rows.names[:deciding])
    # A NULL key precedes every other key, but comparisons with it are neither true nor false.
    frame = rows.frame.selectExpr("*", f"spark_partition_id() as {partition}").where(
        f"({lower} is null or coalesce({value} >= {lower}, false)) "
        f"and ({upper} is null or coalesce({value} < {upper}, true))"
    )
    return rows.with_frame(frame.drop(partition))


def is_ascending(curve: Curve) -> bool:
    """Whether boundaries ascend; if somebody changed them, parts of a column are no ranges of its values."""
    orders = (np.asarray(pc.sort_indices(column)) for column in curve.boundaries if not column.null_count)
    ascending = [bool((np.diff(order) > 0).all()) for order in orders]
    return ascending.count(True) == len(curve.boundaries)


class _FileFinder:
    """Finds the files of a group that may hold a row matching an expression, by their bounds."""

    def __init__(self, table: IcebergTable, group: FileGroup) -> None:
        self._table = table
        self._functions = JavaFunctions(table.spark)
        self._files = java_list(table.spark, (file.task.file() for file in group.files))
        self._location = self._functions.function(self._functions.method(CONTENT_FILE, "location", STRING))
        self._evaluate = self._functions.method(_METRICS_EVALUATOR, "eval", "boolean", CONTENT_FILE)

    def paths(self, expression: Any) -> list[str]:
        """Return their paths."""
        evaluators = self._table.iceberg.expressions
        evaluator = evaluators.InclusiveMetricsEvaluator(self._table.java.schema(), expression, True)
        may_match = self._functions.predicate(self._evaluate.bindTo(evaluator))
        matching = self._files.stream().filter(may_match).map(self._location)
        return split_lines(self._functions.lines(matching))


def _range_expression(
    table: IcebergTable, key: ClusterKey, lower: KeyValue | None, upper: KeyValue | None
) -> Any:
    """Return an Iceberg expression that is true for every row of a range. It considers only the first key item."""
    expressions = table.iceberg.expressions.Expressions
    result = expressions.alwaysTrue()
    field = key.fields[0]
    source = table.java.schema().findField(field.column).type()
    if lower is not None and lower[0].is_valid:
        # To Spark, NaN is above all numbers; to Iceberg, it is in no range.
        to_the_end = upper is None or is_nan(upper[0])
        with_nans = to_the_end and source.typeId().toString() in ("FLOAT", "DOUBLE")
        result = _at_least(table, field, source, lower[0], with_nans)
    if upper is not None:
        # With a compound key, rows below the bound may share its first item.
        below = _below(table, field, source, upper[0], or_equal=len(key.fields) > 1)
        if lower is None or not lower[0].is_valid:
            below = getattr(expressions, "or")(below, expressions.isNull(field.column))
        result = getattr(expressions, "and")(result, below)
    return result


class _CurveBoxes:
    """Ranges along a curve as Iceberg expressions: some boxes each, which hold every row of the range."""

    def __init__(self, table: IcebergTable, key: ClusterKey, curve: Curve) -> None:
        self._table = table
        self._expressions = table.iceberg.expressions.Expressions
        self._fields = key.on_curve
        self._curve = curve
        types = table.columns().types
        self._types = [types[field.column] for field in key.on_curve]

    def expression(self, lower: KeyValue | None, upper: KeyValue | None) -> Any:
        """Return an expression that is true for every row from one key to below another."""
        dimensions, bits = len(self._fields), self._curve.bits
        first = 0 if lower is None else lower[0].as_py()
        end = 1 << (dimensions * bits)
        if upper is not None:
            # Where a cell is cut by value, rows of the same place are below the bound.
            end = upper[0].as_py() + any(value.is_valid for value in upper[1:])
        result = self._expressions.alwaysFalse()
        if first >= end:
            return result
        for low, high in zip(*hilbert_boxes(first, end, dimensions, bits, _MOST_BOXES), strict=True):
            box = self._expressions.alwaysTrue()
            for position in range(dimensions):
                parts = self._in_parts(position, int(low[position]), int(high[position]))
                box = getattr(self._expressions, "and")(box, parts)
            result = getattr(self._expressions, "or")(result, box)
        return result

    def _in_parts(self, position: int, low: int, high: int) -> Any:
        """Return an expression that is true for every row of the parts of a column from ``low`` to ``high``."""
        field, boundaries = self._fields[position], self._curve.boundaries[position]
        source = self._table.java.schema().findField(field.column).type()
        result = self._expressions.alwaysTrue()
        if low and (value := item_boundary(field, self._types[position], boundaries[low - 1])) is not None:
            with_nans = high == len(boundaries) and source.typeId().toString() in ("FLOAT", "DOUBLE")
            result = _at_least(self._table, field, source, value, with_nans)
        if high == len(boundaries):
            return result
        if (value := item_boundary(field, self._types[position], boundaries[high])) is not None:
            below = _below(self._table, field, source, value, or_equal=False)
            if not low:
                below = getattr(self._expressions, "or")(below, self._expressions.isNull(field.column))
            result = getattr(self._expressions, "and")(result, below)
        return result


def _at_least(table: IcebergTable, field: KeyField, source: Any, value: pa.Scalar, with_nans: bool) -> Any:
    expressions = table.iceberg.expressions.Expressions
    if is_nan(value):
        return expressions.isNaN(field.column)
    constant = source_value(table.spark, value, field.transform, source, up=False)
    if constant is None:
        return expressions.alwaysTrue()
    condition = expressions.greaterThanOrEqual(field.column, constant)
    return getattr(expressions, "or")(condition, expressions.isNaN(field.column)) if with_nans else condition


def _below(table: IcebergTable, field: KeyField, source: Any, value: pa.Scalar, or_equal: bool) -> Any:
    expressions = table.iceberg.expressions.Expressions
    if not value.is_valid:
        return expressions.alwaysFalse()  # nothing is below NULL; the caller adds NULL itself
    if is_nan(value):
        return expressions.alwaysTrue()
    is_column = field.transform == Transform()
    bound = field.transform.next(value) if or_equal and not is_column else value
    constant = None if bound is None else source_value(table.spark, bound, field.transform, source, up=True)
    if constant is None:
        return expressions.alwaysTrue()
    if or_equal and is_column:
        return expressions.lessThanOrEqual(field.column, constant)
    return expressions.lessThan(field.column, constant)
