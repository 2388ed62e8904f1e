"""The Iceberg expressions and column ranges of a user's ``where`` or of a query.

Spark parses and plans the text, and Iceberg converts it; it never becomes part of a statement.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial, reduce
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.iceberg.metadata.manifest_entries import SnapshotScan
from dbt_recluster.iceberg.session.internals import scan_filters
from dbt_recluster.iceberg.session.jvm import SparkSession, activate, java_class, java_items, java_session, jvm
from dbt_recluster.iceberg.session.redaction import raise_as, short_message, silence_query_errors
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.columns import Columns, quote, quote_path, sql_literal
from dbt_recluster.key.types import BoolArray, ColumnType, Text, column_type
from dbt_recluster.text import shortened

T = TypeVar("T")

# A predicate with more alternatives says little about where reads end.
MOST_RANGES = 200

# The closed range of one column; None is an open end.
Interval = tuple[Any, Any]
# The ranges of the columns that one alternative of a predicate restricts. The predicate holds for the rows in all
# ranges of at least one alternative; an empty one restricts nothing.
ColumnRanges = Mapping[str, Interval]


@dataclass(frozen=True)
class Predicate:
    """A predicate on the columns of a table: SQL as the user wrote it, and the Java ``Expression``."""

    text: str
    expression: Any

    @classmethod
    def parse(cls, table: IcebergTable, where: str) -> Predicate:
        """Parse a predicate; a PredicateError if a column is unknown or Iceberg has no such expression."""
        return cls(where, _expression(table.spark, table.identifier, table.name, where))

    def columns(self, table: IcebergTable) -> set[str]:
        """Return the columns of the predicate, spelled as in the schema."""
        schema = table.java.schema()
        references = table.iceberg.expressions.Binder.boundReferences(
            schema.asStruct(), [self.expression], table.case_sensitive
        )
        return {str(schema.findColumnName(field_id)) for field_id in references}

    def as_json(self, table: IcebergTable, columns: Columns) -> Any:
        """Return Iceberg's JSON, without NOT, spelled as in the schema; a PredicateError if a column was dropped."""

        def spelled(node: dict[str, Any]) -> dict[str, Any]:
            if isinstance(term := node.get("term"), str):
                node["term"] = columns.find(term) or term
            return node

        expressions = table.iceberg.expressions
        without_not = expressions.Expressions.rewriteNot(self.expression)
        with raise_as(PredicateError, f"{self.text!r:.60} is not about {table.name}"):
            bound = expressions.Binder.bind(table.java.schema().asStruct(), without_not, table.case_sensitive)
            text = str(expressions.ExpressionParser.toJson(bound))
        try:
            return json.loads(text, object_hook=spelled)
        except RecursionError:
            return True  # too many alternatives

    def may_match(self, table: IcebergTable, blocks: BlockMetadata) -> BoolArray:
        """Return which blocks a scan by Iceberg opens: bool (n,)."""
        if blocks.snapshot_id is None:
            return np.zeros(0, dtype=bool)
        paths = SnapshotScan(table, blocks.snapshot_id, self.expression).paths()
        matches = pc.is_in(blocks.path, value_set=pa.array(paths, type=pa.string()))
        return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=bool)


def check_predicate(spark: SparkSession, columns: Mapping[str, str], where: str) -> None:
    """Check a predicate, as :meth:`Predicate.parse` does, on a table that does not exist yet."""
    activate(spark)
    schema = ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
    view = f"recluster_{uuid.uuid4().hex}"
    # An RDD, since the optimizer drops the filter of a relation that it knows to be empty.
    spark.createDataFrame(spark.sparkContext.emptyRDD(), schema).createTempView(view)
    try:
        _expression(spark, view, "the model", where)
    finally:
        spark.catalog.dropTempView(view)


def scan_predicates(table: IcebergTable, query: str) -> list[Predicate]:
    """Return the filters of each scan of a table in a query, which is planned and not run.

    Spark's optimizer expands views, folds constants and `current_date`, and infers filters from joins. If it cannot
    plan the query, or Iceberg does not give the filters, that is a PredicateError.
    """
    as_list = jvm(table.spark).scala.collection.JavaConverters.seqAsJavaList
    plan = _planned(table, query).optimizedPlan()
    with raise_as(PredicateError, "this version of Iceberg does not give the filters of a query"):
        parts = [plan, *java_items(as_list(plan.subqueriesAll()))]
        leaves = [leaf for part in parts for leaf in java_items(as_list(part.collectLeaves()))]
        return [
            Predicate(query, _filters(table, leaf.scan()))
            for leaf in leaves
            if leaf.getClass().getSimpleName() == "DataSourceV2ScanRelation" and _is_scan_of(table, leaf)
        ]


def run_query(table: IcebergTable, query: str) -> tuple[float, int]:
    """Run a query, drop its rows and return the seconds it took and their number; a PredicateError if it fails."""
    execution = _planned(table, query)
    started = time.monotonic()
    with raise_as(PredicateError, "the query cannot be run"):
        rows = int(execution.toRdd().count())
    return time.monotonic() - started, rows


def _expression(spark: SparkSession, relation: str, name: str, where: str) -> Any:
    sql = jvm(spark).org.apache.spark.sql
    converter = sql.execution.datasources.SparkExpressionConverter
    try:
        parsed = java_session(spark).sessionState().sqlParser().parseExpression(where)
        if parsed.containsPattern(sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()):
            # Iceberg drops some of them silently.
            raise PredicateError("it has a subquery")
        resolved = converter.collectResolvedSparkExpression(java_session(spark), relation, where)
        return converter.convertToIcebergExpression(resolved)
    except Exception as e:
        raise PredicateError(
            f"{where!r} cannot choose blocks of {name}: {short_message(e).rstrip('.')}. Use comparisons of "
            "columns with constants, IN, IS NULL and LIKE 'prefix%', joined by AND, OR and NOT."
        ) from e


def _planned(table: IcebergTable, query: str) -> Any:
    """Return Spark's optimized ``QueryExecution`` of a query; a command is refused without being run."""
    spark = table.spark
    activate(spark)
    silence_query_errors()
    root = jvm(spark).org.apache.spark.sql
    state = java_session(spark).sessionState()
    beginning = f"It begins {shortened(query)!r}"
    with raise_as(PredicateError, "a query cannot be planned", advice=beginning):
        plan = state.sqlParser().parsePlan(query)
        execution = state.executePlan(plan, root.execution.CommandExecutionMode.SKIP())
        is_command = execution.analyzed().containsPattern(root.catalyst.trees.TreePattern.COMMAND())
        execution.optimizedPlan()
    if is_command:
        raise PredicateError(f"a command is no query. {beginning}")
    return execution


def _is_scan_of(table: IcebergTable, relation: Any) -> bool:
    from py4j.protocol import Py4JJavaError

    scanned = relation.relation().table()
    if not java_class(table.spark, "org.apache.iceberg.spark.source.SparkTable").isInstance(scanned):
        return False
    is_metadata = java_class(table.spark, "org.apache.iceberg.BaseMetadataTable").isInstance(scanned.table())
    with suppress(Py4JJavaError):  # early writers gave tables no uuid
        return not is_metadata and str(scanned.table().uuid()) == table.uuid
    return False


def _filters(table: IcebergTable, scan: Any) -> Any:
    expressions = table.iceberg.expressions.Expressions
    if scan.getClass().getSimpleName() == "SparkLocalScan":  # counts and extremes, from metadata alone
        return expressions.alwaysFalse()
    filters = java_items(scan_filters(table.spark, scan))
    return reduce(getattr(expressions, "and"), filters, expressions.alwaysTrue())


def fold(expression: Any, value_of: Callable[[Any], T], both: Callable[[str, T, T], T]) -> T:
    """Return the value of an expression in Iceberg's JSON, without recursion: alternatives nest hundreds deep.

    ``value_of`` returns the value of a predicate, or of true or false; ``both``, given ``and`` or ``or``, that of two
    expressions by their values.
    """
    waiting: list[Any] = [expression]
    done: list[T] = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            right, left = done.pop(), done.pop()
            done.append(both(node, left, right))
        elif isinstance(node, Mapping) and node["type"] in ("and", "or"):
            waiting += [node["type"], node["right"], node["left"]]
        else:
            done.append(value_of(node))
    return done.pop()


class RangeParser:
    """The column ranges of predicates, queries and records on a table, and the types of columns that can have any."""

    def __init__(self, table: IcebergTable, columns: Columns) -> None:
        self._table, self._columns = table, columns
        self.kinds = range_types(columns.types)

    def of_predicate(self, predicate: Predicate) -> list[ColumnRanges]:
        """Return the ranges of each alternative of a predicate, without empty ones."""
        expression = predicate.as_json(self._table, self._columns)
        alternatives = fold(expression, lambda node: alternatives_of(node, self.kinds), both_alternatives)
        return [ranges for ranges in alternatives if ranges]

    def of_query(self, query: str) -> tuple[int, list[ColumnRanges]]:
        """Return the number of scans of the table in a query, and the ranges of each alternative of their filters."""
        scans = scan_predicates(self._table, query)
        return len(scans), [ranges for scan in scans for ranges in self.of_predicate(scan)]

    def of_json(self, value: Mapping[str, Any]) -> ColumnRanges:
        """Read the output of :func:`ranges_as_json`; columns that were dropped or changed their type have no range."""
        ranges = {}
        for column, interval in value.items():
            try:
                lower, upper = (_read_end(self.kinds[column], end) for end in interval)
            except (KeyError, ValueError, TypeError, ArithmeticError):
                continue
            is_open = lower is None and upper is None
            if not is_open and (lower is None or upper is None or lower <= upper):
                ranges[column] = (lower, upper)
        return ranges

    def of_key(self, key: ClusterKey, ranges: ColumnRanges) -> tuple[list[Any], list[Any]] | None:
        """Return the smallest range of a key with the rows in ``ranges``, or None if they do not restrict it.

        It is the lower and upper ends of the key's items, as in bounds; None is an open end.
        An item bounds the key only if all items before it have a single value; under a curve, each item does.
        """
        intervals: list[list[Any]] = []
        for field in key.fields:
            is_bounding = key.curve or all(low is not None and low == high for low, high in intervals)
            ends = ranges.get(field.column) if is_bounding else None
            if ends is None:
                intervals.append([None, None])
            else:
                values = pa.array(ends, self.kinds[field.column].arrow)
                intervals.append(field.transform.values(values).to_pylist())
        if all(end is None for interval in intervals for end in interval):
            return None
        return [lower for lower, _ in intervals], [upper for _, upper in intervals]

    def sql(self, ranges: ColumnRanges) -> str:
        """Return the SQL predicate of ranges, at least one of which has an end."""
        terms = []
        for column, (lower, upper) in ranges.items():
            ends = {"=": lower} if lower is not None and lower == upper else {">=": lower, "<=": upper}
            kind = self._columns.types[column]
            literals = {sign: sql_literal(end, kind) for sign, end in ends.items() if end is not None}
            terms += [f"{quote_path(column)} {sign} {literal}" for sign, literal in literals.items()]
        return " and ".join(terms)


def range_types(types: Mapping[str, str]) -> dict[str, ColumnType]:
    """Return the types of the columns that can have ranges, given Spark's type of each column."""
    kinds = {path: column_type(kind) for path, kind in types.items()}
    return {path: kind for path, kind in kinds.items() if kind.spark}


def ranges_as_json(ranges: ColumnRanges) -> dict[str, list[Any]]:
    """Return ranges as JSON, for :meth:`RangeParser.of_json`."""
    return {column: [_as_json(end) for end in interval] for column, interval in ranges.items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def _read_end(kind: ColumnType, value: Any) -> Any:
    """Read the output of `_as_json`, or raise if it is not of this type."""
    if value is None:
        return None
    end = kind.read(value)
    if _as_json(end) != value or isinstance(end, bool) != isinstance(value, bool):
        raise ValueError
    _check_end(kind, end)
    return end


def _check_end(kind: ColumnType, value: Any) -> None:
    """Raise a ValueError or an ArithmeticError if the type does not hold a value, or it is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    pa.scalar(value, kind.arrow)


def both_alternatives(word: str, left: list[ColumnRanges], right: list[ColumnRanges]) -> list[ColumnRanges]:
    """Return the alternatives of two expressions joined by ``and`` or ``or``."""
    if word == "or":
        both = [*left, *right]
    else:
        pairs = (_intersection(one, other) for one in left for other in right)
        both = [ranges for ranges in pairs if ranges is not None]
    return both if len(both) <= MOST_RANGES and {} not in both else [{}]


def alternatives_of(
    node: Any,
    kinds: Mapping[str, ColumnType],
    read: Callable[[ColumnType, Any], Any] = lambda kind, value: kind.read(value),
) -> list[ColumnRanges]:
    """Return the alternatives of a comparison in Iceberg's JSON, of true or of false. ``read`` reads its values."""
    if isinstance(node, bool):
        return [{}] if node else []
    column = node.get("term")
    kind = kinds.get(column) if isinstance(column, str) else None
    if kind is None:
        return [{}]
    try:
        intervals = _intervals(node, kind, partial(read, kind))
        for end in chain.from_iterable(intervals):
            _check_end(kind, end)
    except (ValueError, ArithmeticError):  # a date beyond Python's
        return [{}]
    return [{column: interval} for interval in intervals] if 0 < len(intervals) <= MOST_RANGES else [{}]


def _intervals(node: Mapping[str, Any], kind: ColumnType, read: Callable[[Any], Any]) -> list[Interval]:
    """Return the intervals of a comparison, or none if it is not a range."""
    comparison, step = node["type"], kind.step
    if comparison == "in":
        return [(value, value) for value in sorted(map(read, node["values"]))]
    if "value" not in node:
        return []
    value = read(node["value"])
    if comparison == "eq":
        return [(value, value)]
    if comparison in ("gt", "gt-eq"):
        return [(value if comparison == "gt-eq" or step is None else value + step, None)]
    if comparison in ("lt", "lt-eq"):
        return [(None, value if comparison == "lt-eq" or step is None else value - step)]
    return [(value, value + Text.after)] if comparison == "starts-with" else []


def _intersection(one: ColumnRanges, other: ColumnRanges) -> ColumnRanges | None:
    ranges = dict(one)
    for column, (lower, upper) in other.items():
        low, high = ranges.get(column, (None, None))
        low = lower if low is None else low if lower is None else max(low, lower)
        high = upper if high is None else high if upper is None else min(high, upper)
        if low is not None and high is not None and low > high:
            return None
        ranges[column] = (low, high)
    return ranges
