"""Merge by ranges: each new block reads, from the files it overlaps, the row groups it overlaps. Nothing is shuffled.

It pays for files that are sorted inside, of which a block then needs a few row groups. Others would be read
whole for every block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.iceberg.block_set import BlockSet
from dbt_recluster.iceberg.jvm import java_class, jvm
from dbt_recluster.iceberg.literals import is_nan, next_value, source_value, sql_array, sql_literal
from dbt_recluster.iceberg.sample import SetSample
from dbt_recluster.iceberg.staging import FileGroup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dbt_recluster.iceberg.table import IcebergTable

KeyValue = Sequence[pa.Scalar]


@dataclass(frozen=True)
class RangeOutput:
    """A new block: the rows of ``group`` with a key of at least ``lower`` and below ``upper``; None is no bound."""

    group: FileGroup
    lower: KeyValue | None
    upper: KeyValue | None


def range_outputs(
    table: IcebergTable, each: BlockSet, key: ClusterKey, starts: Sequence[KeyValue]
) -> list[RangeOutput]:
    """Return the new blocks of a set that begin at its start and at ``starts``, with the files each reads."""
    if not starts:
        return [RangeOutput(FileGroup(each.files, each.spec_id), None, None)]
    by_path = {file.task.file().location(): file for file in each.files}
    finder = _FileFinder(table, each)
    bounds = [None, *starts, None]
    outputs = []
    for lower, upper in pairwise(bounds):
        wanted = _expression(table, key, lower, upper)
        files = tuple(by_path[path] for path in finder.paths(wanted))
        if files:
            outputs.append(RangeOutput(FileGroup(files, each.spec_id, wanted), lower, upper))
    return outputs


def bytes_read(each: BlockSet, outputs: Sequence[RangeOutput], sample: SetSample | None) -> float:
    """Estimate how many bytes reading the ranges takes.

    A range reads a file's row groups that it overlaps. So of a sorted file, each cut between two blocks reads
    one row group twice; of one that is not, every block reads everything.
    """
    readers: dict[int, int] = {}
    for output in outputs:
        for file in output.group.files:
            readers[id(file)] = readers.get(id(file), 0) + 1
    flags = sample.sorted_inside if sample is not None else [True] * len(each.files)
    total = 0.0
    for file, is_sorted in zip(each.files, flags, strict=True):
        count = readers.get(id(file), 0)
        total += file.bytes * (min(count, 1 + (count - 1) / file.row_groups) if is_sorted else count)
    return total


def only_rows_in_range(
    frame: DataFrame, names: Sequence[str], types: Sequence[str], outputs: Sequence[RangeOutput]
) -> DataFrame:
    """Keep of each partition the rows whose key is in the range of its output.

    One condition serves all partitions: it looks the bounds up by the partition's number.

    Args:
        frame: Rows; partition i reads the files of output i.
        names: SQL that names the columns of the key items.
        types: Their Spark types.
        outputs: The new blocks.
    """
    if all(output.lower is None and output.upper is None for output in outputs):
        return frame
    lower = f"get({key_array([o.lower for o in outputs], types)}, spark_partition_id())"
    upper = f"get({key_array([o.upper for o in outputs], types)}, spark_partition_id())"
    value = key_value(names)
    # A NULL key comes before every other one; comparisons with it are neither true nor false.
    return frame.where(
        f"({lower} is null or coalesce({value} >= {lower}, false)) "
        f"and ({upper} is null or coalesce({value} < {upper}, true))"
    )


def key_value(names: Sequence[str]) -> str:
    """Return the key of a row as one SQL value. Structs compare as tuples do, NULLs first."""
    if len(names) == 1:
        return names[0]
    return f"named_struct({', '.join(f'{field!r}, {name}' for field, name in zip(_fields(names), names, strict=True))})"


def key_array(values: Sequence[KeyValue | None], types: Sequence[str]) -> str:
    """Return keys as a SQL array of what :func:`key_value` makes, NULL for None: a constant to Spark."""
    if len(types) == 1:
        return sql_array([None if value is None else value[0] for value in values], types[0])
    fields = _fields(types)
    struct = f"struct<{', '.join(f'{field}: {kind}' for field, kind in zip(fields, types, strict=True))}>"
    items = []
    for value in values:
        if value is None:
            items.append(f"cast(null as {struct})")
            continue
        literals = map(sql_literal, value, types)
        named = (f"{field!r}, {literal}" for field, literal in zip(fields, literals, strict=True))
        items.append(f"named_struct({', '.join(named)})")
    return f"array({', '.join(items)})"


def _fields(items: Sequence[str]) -> list[str]:
    return [f"k{position}" for position in range(len(items))]


class _FileFinder:
    """Find the files of a set that may hold a row for which an expression is true, by their bounds."""

    def __init__(self, table: IcebergTable, each: BlockSet) -> None:
        self._table = table
        self._files = jvm(table.spark).java.util.ArrayList()
        for file in each.files:
            self._files.add(file.task.file())
        # Found once: every name costs a call to the JVM.
        self._collect = table.iceberg.relocated.com.google.common.collect
        self._proxies = jvm(table.spark).java.lang.invoke.MethodHandleProxies
        self._evaluation = _evaluation(table.spark)
        self._predicate = java_class(
            table.spark, "org.apache.iceberg.relocated.com.google.common.base.Predicate"
        )

    def paths(self, expression: Any) -> list[str]:
        """Return their paths."""
        iceberg = self._table.iceberg
        evaluator = iceberg.expressions.InclusiveMetricsEvaluator(self._table.java.schema(), expression, True)
        predicate = self._proxies.asInterfaceInstance(self._predicate, self._evaluation.bindTo(evaluator))
        chosen = self._collect.Lists.newArrayList(self._collect.Iterables.filter(self._files, predicate))
        return [file.location() for file in chosen]


def _evaluation(spark: SparkSession) -> Any:
    """Return a handle of the method that tells whether a file may hold rows of interest."""
    invoke = jvm(spark).java.lang.invoke
    boolean = java_class(spark, "java.lang.Boolean").getField("TYPE").get(None)
    content_file = java_class(spark, "org.apache.iceberg.ContentFile")
    kind = java_class(spark, "org.apache.iceberg.expressions.InclusiveMetricsEvaluator")
    return invoke.MethodHandles.publicLookup().findVirtual(
        kind, "eval", invoke.MethodType.methodType(boolean, content_file)
    )


def _expression(table: IcebergTable, key: ClusterKey, lower: KeyValue | None, upper: KeyValue | None) -> Any:
    """Return an Iceberg expression that is true for every row of a range; it looks at the first key item only."""
    expressions = table.iceberg.expressions.Expressions
    result = expressions.alwaysTrue()
    field = key.fields[0]
    source = table.java.schema().findField(field.column).type()
    if lower is not None and lower[0].is_valid:
        # NaN is above all numbers in Spark, and in no range in Iceberg.
        to_the_end = upper is None or is_nan(upper[0])
        nans = to_the_end and source.typeId().toString() in ("FLOAT", "DOUBLE")
        result = _at_least(table, field, source, lower[0], nans)
    if upper is not None:
        nulls = lower is None or not lower[0].is_valid
        # Rows of a compound key may share the first item with the bound, and still be below it.
        equal = len(key.fields) > 1
        below = _below(table, field, source, upper[0], equal)
        if nulls:
            below = getattr(expressions, "or")(below, expressions.isNull(field.column))
        result = getattr(expressions, "and")(result, below)
    return result


def _at_least(table: IcebergTable, field: KeyField, source: Any, value: pa.Scalar, nans: bool) -> Any:
    expressions = table.iceberg.expressions.Expressions
    if is_nan(value):
        return expressions.isNaN(field.column)
    constant = source_value(table.spark, value, field, source, up=False)
    if constant is None:
        return expressions.alwaysTrue()
    condition = expressions.greaterThanOrEqual(field.column, constant)
    return getattr(expressions, "or")(condition, expressions.isNaN(field.column)) if nans else condition


def _below(table: IcebergTable, field: KeyField, source: Any, value: pa.Scalar, equal: bool) -> Any:
    expressions = table.iceberg.expressions.Expressions
    if not value.is_valid:
        return expressions.alwaysFalse()  # below NULL is nothing; NULL itself is for the caller
    if is_nan(value):
        return expressions.alwaysTrue()
    following = next_value(value, field) if equal and field.transform != "identity" else value
    constant = None if following is None else source_value(table.spark, following, field, source, up=True)
    if constant is None:
        return expressions.alwaysTrue()
    if equal and field.transform == "identity":
        return expressions.lessThanOrEqual(field.column, constant)
    return expressions.lessThan(field.column, constant)
