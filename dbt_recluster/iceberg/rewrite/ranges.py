"""Merge by ranges: each new block reads the row groups that it overlaps. Nothing is shuffled.

This pays for sorted files, of which a block needs a few row groups. Unsorted files would be read whole for every block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.curve import Curve, hilbert_boxes
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, ScanPartition
from dbt_recluster.iceberg.rewrite.literals import KeyValue, column_starts, iceberg_constant
from dbt_recluster.iceberg.session.java_functions import CONTENT_FILE, STRING, JavaFunctions
from dbt_recluster.iceberg.session.jvm import java_list
from dbt_recluster.transforms import Transform

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
    key: ClusterKey,
    starts: Sequence[KeyValue],
    curve: Curve | None = None,
) -> list[BlockRange]:
    """Return the new blocks of a group, which begin at its least key and at ``starts``, and the files each reads.

    A block has the files that may hold a row of it, by their bounds; one without any is left out.
    """
    if not starts:
        return [BlockRange(ScanPartition(group.files, group.spec_id))]
    by_path = {file.path: file for file in group.files}
    expressions = _RangeExpressions(table, key, curve)
    functions = JavaFunctions(table.spark)
    files = java_list(table.spark, [file.task.file() for file in group.files])
    location = functions.function(functions.method(CONTENT_FILE, "location", STRING))
    evaluate = functions.method(_METRICS_EVALUATOR, "eval", "boolean", CONTENT_FILE)
    ranges = []
    for lower, upper in pairwise([None, *starts, None]):
        wanted = expressions.between(lower, upper)
        evaluator = table.iceberg.expressions.InclusiveMetricsEvaluator(table.java.schema(), wanted, True)
        may_match = functions.predicate(evaluate.bindTo(evaluator))
        paths = functions.strings(files.stream().filter(may_match).map(location).iterator())
        if paths:
            partition = ScanPartition(tuple(by_path[path] for path in paths), group.spec_id, wanted)
            ranges.append(BlockRange(partition, lower, upper))
    return ranges


def bytes_read(group: FileGroup, ranges: Sequence[BlockRange], is_sorted: Sequence[bool]) -> float:
    """Estimate the bytes that reading these ranges takes.

    A range reads the row groups that it overlaps. So every cut within a sorted file makes two blocks read the same row
    group, and every block reads the whole of an unsorted file.
    """
    readers = Counter(id(file) for block_range in ranges for file in block_range.partition.files)
    total = 0.0
    for file, sorted_inside in zip(group.files, is_sorted, strict=True):
        count = readers[id(file)]
        total += file.bytes * (min(count, 1 + (count - 1) / file.row_groups) if sorted_inside else count)
    return total


def is_ascending(curve: Curve) -> bool:
    """Whether boundaries ascend; if somebody changed them, parts of a column are no ranges of its values."""
    orders = (np.asarray(pc.sort_indices(column)) for column in curve.boundaries if not column.null_count)
    ascending = [bool((np.diff(order) > 0).all()) for order in orders]
    return ascending.count(True) == len(curve.boundaries)


class _RangeExpressions:
    """Ranges of keys as Iceberg expressions, which are true for every row of a range, and for some others.

    A range along a curve becomes a few boxes. Of other keys only the first item counts.
    """

    def __init__(self, table: IcebergTable, key: ClusterKey, curve: Curve | None) -> None:
        self._spark = table.spark
        self._java = table.iceberg.expressions.Expressions
        self._kinds = {path: kind for path, kind, _ in table.primitive_fields()}
        self._key = key
        self._curve = None if key.leading else curve
        if self._curve is not None:
            types = table.columns().types
            self._starts = [
                column_starts(field, types[field.column], boundaries)
                for field, boundaries in zip(key.on_curve, self._curve.boundaries, strict=True)
            ]

    def between(self, lower: KeyValue | None, upper: KeyValue | None) -> Any:
        """Return an expression that is true for every row from one key to below another."""
        if self._curve is None:
            return self._of_first_item(lower, upper)
        dimensions, bits = len(self._key.on_curve), self._curve.bits
        first = 0 if lower is None else lower[0].as_py()
        end = 1 << (dimensions * bits)
        if upper is not None:
            # Where a cell is cut by value, rows of the same place are below the bound.
            end = upper[0].as_py() + any(value.is_valid for value in upper[1:])
        result = self._java.alwaysFalse()
        if first >= end:
            return result
        for low, high in zip(*hilbert_boxes(first, end, dimensions, bits, _MOST_BOXES), strict=True):
            box = self._java.alwaysTrue()
            for field, starts, part, last in zip(self._key.on_curve, self._starts, low, high, strict=True):
                least = _python(starts[int(part) - 1]) if part else None
                beyond = _python(starts[int(last)]) if last < len(starts) else None
                box = self._and(box, self._interval(field.column, least, beyond))
            result = self._or(result, box)
        return result

    def _of_first_item(self, lower: KeyValue | None, upper: KeyValue | None) -> Any:
        field, closed = self._key.fields[0], len(self._key.fields) > 1
        is_date = self._kinds[field.column] == "date"

        def start(value: pa.Scalar | None) -> Any:
            return None if value is None else field.transform.start(value, of_date=is_date)

        least = lower[0] if lower is not None and lower[0].is_valid else None
        beyond = None if upper is None else upper[0]
        if beyond is not None and not beyond.is_valid:
            return self._java.isNull(field.column)  # which is below all values
        # With a compound key, rows below the bound may share its first item.
        if beyond is not None and closed and field.transform != Transform():
            beyond, closed = field.transform.next(beyond), False
        return self._interval(field.column, start(least), start(beyond), closed)

    def _interval(self, column: str, lower: Any, upper: Any, closed: bool = False) -> Any:
        """Return an expression for a column's values from one to below another, or to it; None is unbounded.

        NULL is below all values. To Spark, NaN is above all numbers; to Iceberg, it is in no range.
        """
        kind, result = self._kinds[column], self._java.alwaysTrue()
        to_the_end = upper is None or _is_nan(upper)
        if _is_nan(lower):
            result = self._java.isNaN(column)
        elif lower is not None:
            constant = iceberg_constant(self._spark, lower, kind, up=False)
            if constant is not None:
                result = self._java.greaterThanOrEqual(column, constant)
                if to_the_end and kind in ("float", "double"):
                    result = self._or(result, self._java.isNaN(column))
        constant = None if to_the_end else iceberg_constant(self._spark, upper, kind, up=True)
        if constant is None:
            return result
        compare = self._java.lessThanOrEqual if closed else self._java.lessThan
        below = compare(column, constant)
        return self._and(result, self._or(below, self._java.isNull(column)) if lower is None else below)

    def _and(self, left: Any, right: Any) -> Any:
        return getattr(self._java, "and")(left, right)

    def _or(self, left: Any, right: Any) -> Any:
        return getattr(self._java, "or")(left, right)


def _is_nan(value: Any) -> bool:
    return bool(value != value)


def _python(value: pa.Scalar) -> Any | None:
    """Return a value as Java can have it, or None if it is text that is not UTF-8."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return None
