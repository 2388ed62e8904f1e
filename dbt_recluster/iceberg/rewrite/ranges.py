"""Merge by ranges: each new block reads the row groups that it overlaps. Nothing is shuffled.

This pays for sorted files, of which a block needs a few row groups. Unsorted files would be read whole for every block.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import IntArray
from dbt_recluster.iceberg.metadata.manifest_entries import Condition, combine, compare
from dbt_recluster.iceberg.rewrite.file_groups import FileGroup, ScanPartition
from dbt_recluster.iceberg.rewrite.keyed_rows import Cuts
from dbt_recluster.iceberg.rewrite.literals import KeyValue, column_starts
from dbt_recluster.iceberg.session.java_functions import CONTENT_FILE, STRING, JavaFunctions
from dbt_recluster.iceberg.session.jvm import java_list
from dbt_recluster.key.box_tree import BoxTree
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.transforms import Transform
from dbt_recluster.key.types import ColumnType, iceberg_type

_ALL: Condition = {"type": "literal", "value": True}
_METRICS_EVALUATOR = "org.apache.iceberg.expressions.InclusiveMetricsEvaluator"


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
