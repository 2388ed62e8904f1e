"""What a user's ``where``, or a whole query, asks of a table: an expression of Iceberg, and ranges of columns.

Spark parses and plans the text, and Iceberg converts it; it is never pasted into a statement.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, BoolArray
from dbt_recluster.iceberg.metadata.scan import file_paths
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.jvm import activate, java_class, java_items, jvm
from dbt_recluster.iceberg.session.spark_module import SparkModule
from dbt_recluster.iceberg.value_types import ValueType, as_json, value_types
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.columns import Columns, quote, quote_path, sql_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_recluster.iceberg.iceberg_table import IcebergTable

T = TypeVar("T")

# Of one predicate. A longer list of values, or more alternatives, say little about where reads end.
MOST_RANGES = 200
# A prefix followed by it is greater than any other text with the prefix.
LAST_CHARACTER = "\U0010ffff"

# The range of one column, closed on both sides; None is an open side.
Interval = tuple[Any, Any]
# The range of each column that a predicate restricts, all of which hold at once. A predicate may have several such
# alternatives, of which a row is in at least one; a single empty one restricts nothing.
ColumnRanges = Mapping[str, Interval]
# The values of a key's items at the lower and at the upper end, as bounds have them; None where an end is open.
KeyRange = tuple[list[Any], list[Any]]


@dataclass(frozen=True)
class Predicate:
    """A predicate on the columns of a table: SQL as the user wrote it, and the Java ``Expression``."""

    text: str
    expression: Any

    @classmethod
    def parse(cls, table: IcebergTable, where: str) -> Predicate:
        """Parse a predicate; a PredicateError if it names an unknown column or cannot be pushed down to Iceberg."""
        return cls(where, _expression(table.spark, table.identifier, table.name, where))

    def columns(self, table: IcebergTable) -> set[str]:
        """Return the columns that the predicate names, spelled as the table does."""
        schema = table.java.schema()
        references = table.iceberg.expressions.Binder.boundReferences(
            schema.asStruct(), [self.expression], table.case_sensitive
        )
        return {str(schema.findColumnName(field_id)) for field_id in references}

    def as_json(self, table: IcebergTable, columns: Columns) -> Any:
        """Return Iceberg's JSON: without NOT, with values of the columns' types and the names that the table has.

        Columns that the table no longer has are a PredicateError.
        """

        def spelled(node: dict[str, Any]) -> dict[str, Any]:
            if isinstance(term := node.get("term"), str):  # as the predicate spells it
                node["term"] = columns.find(term) or term
            return node

        expressions = table.iceberg.expressions
        without_not = expressions.Expressions.rewriteNot(self.expression)
        try:
            bound = expressions.Binder.bind(table.java.schema().asStruct(), without_not, table.case_sensitive)
            text = str(expressions.ExpressionParser.toJson(bound))
        except Exception as e:
            raise PredicateError(f"{self.text!r:.60} is not about {table.name}: {short_message(e)}") from e
        try:
            return json.loads(text, object_hook=spelled)
        except RecursionError:
            return True  # too many alternatives to end anywhere

    def may_match(self, table: IcebergTable, blocks: BlockMetadata) -> BoolArray:
        """Return which blocks may hold a matching row, by Iceberg's own scan planning: bool (n,)."""
        if blocks.snapshot_id is None:
            return np.zeros(0, dtype=bool)
        paths = file_paths(table, blocks.snapshot_id, self.expression)
        matches = pc.is_in(blocks.path, value_set=pa.array(paths, type=pa.string()))
        return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=bool)


def check_predicate(spark: SparkSession, columns: Mapping[str, str], where: str) -> None:
    """Parse a predicate, as :meth:`Predicate.parse` does, on a table that does not exist yet."""
    activate(spark)
    schema = ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
    view = f"recluster_{uuid.uuid4().hex}"
    # The optimizer drops the filter of a relation that it knows to be empty; it knows nothing of an RDD.
    spark.createDataFrame(spark.sparkContext.emptyRDD(), schema).createTempView(view)
    try:
        _expression(spark, view, "the model", where)
    finally:
        spark.catalog.dropTempView(view)


def scan_predicates(table: IcebergTable, query: str) -> list[Predicate]:
    """Return the filters that Spark's optimizer pushes down to each scan of a table in a query, which is not run.

    The optimizer expands views, folds constants and `current_date`, and infers filters from joins. A query that cannot
    be planned, or of whose scans Iceberg does not give the filters, is a PredicateError.
    """
    from py4j.protocol import Py4JError

    plan = _planned(table, query).optimizedPlan()
    try:
        leaves = chain.from_iterable(
            _items(table, part.collectLeaves()) for part in (plan, *_items(table, plan.subqueriesAll()))
        )
        return [
            Predicate(query, _filters(table, leaf.scan()))
            for leaf in leaves
            if leaf.getClass().getSimpleName() == "DataSourceV2ScanRelation" and _is_scan_of(table, leaf)
        ]
    except Py4JError as e:
        raise PredicateError(
            f"this version of Iceberg does not give the filters of a query: {short_message(e)}"
        ) from e


def run_query(table: IcebergTable, query: str) -> float:
    """Run a query to its end and drop its rows; return the seconds that it took. One that fails is a PredicateError."""
    execution = _planned(table, query)
    started = time.monotonic()
    try:
        execution.toRdd().count()
    except Exception as e:
        raise PredicateError(f"the query cannot be run: {short_message(e)}") from e
    return time.monotonic() - started


def _expression(spark: SparkSession, relation: str, name: str, where: str) -> Any:
    sql = jvm(spark).org.apache.spark.sql
    converter = sql.execution.datasources.SparkExpressionConverter
    try:
        parsed = spark._jsparkSession.sessionState().sqlParser().parseExpression(where)
        if parsed.containsPattern(sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()):
            # Iceberg loses some of them without a word.
            raise PredicateError("it has a subquery")
        resolved = converter.collectResolvedSparkExpression(spark._jsparkSession, relation, where)
        return converter.convertToIcebergExpression(resolved)
    except Exception as e:
        raise PredicateError(
            f"{where!r} cannot choose blocks of {name}: {short_message(e).rstrip('.')}. Use comparisons of "
            "columns with constants, IN, IS NULL and LIKE 'prefix%', joined by AND, OR and NOT."
        ) from e


def _planned(table: IcebergTable, query: str) -> Any:
    """Return Spark's ``QueryExecution`` of a query, optimized. Commands are refused, and not run."""
    spark = table.spark
    activate(spark)
    root = jvm(spark).org.apache.spark.sql
    state = spark._jsparkSession.sessionState()
    beginning = f"It begins {' '.join(query.split())[:60]!r}"
    try:
        plan = state.sqlParser().parsePlan(query)
        execution = state.executePlan(plan, root.execution.CommandExecutionMode.SKIP())
        is_command = execution.analyzed().containsPattern(root.catalyst.trees.TreePattern.COMMAND())
        execution.optimizedPlan()
    except Exception as e:
        raise PredicateError(f"a query cannot be planned: {short_message(e).rstrip('.')}. {beginning}") from e
    if is_command:
        raise PredicateError(f"a command is no query. {beginning}")
    return execution


def _items(table: IcebergTable, sequence: Any) -> list[Any]:
    return java_items(jvm(table.spark).scala.collection.JavaConverters.seqAsJavaList(sequence))


def _is_scan_of(table: IcebergTable, relation: Any) -> bool:
    from py4j.protocol import Py4JJavaError

    scanned = relation.relation().table()
    if not java_class(table.spark, "org.apache.iceberg.spark.source.SparkTable").isInstance(scanned):
        return False
    if java_class(table.spark, "org.apache.iceberg.BaseMetadataTable").isInstance(scanned.table()):
        return False
    try:
        return bool(str(scanned.table().uuid()) == table.uuid)
    except Py4JJavaError:
        return False  # a table from before Iceberg gave them one


def _filters(table: IcebergTable, scan: Any) -> Any:
    """Return the filters of a scan as one expression.

    Counts and extremes are read from metadata, by a scan that opens no block.
    """
    expressions = table.iceberg.expressions.Expressions
    if scan.getClass().getSimpleName() == "SparkLocalScan":
        return expressions.alwaysFalse()
    filters = java_items(SparkModule.of(table.spark).filters(scan))
    return reduce(getattr(expressions, "and"), filters, expressions.alwaysTrue())


def fold(expression: Any, value_of: Callable[[Any], T], both: Callable[[str, T, T], T]) -> T:
    """Return the value of an expression in Iceberg's JSON.

    Hundreds of alternatives nest one in the other, deeper than Python calls functions.

    Args:
        expression: The JSON.
        value_of: Returns the value of a predicate, or of true or false.
        both: Returns the value of two expressions with the word ``and`` or ``or`` between them.
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


class Ranges:
    """The ranges of a table's columns that predicates, queries and records restrict its rows to.

    Attributes:
        kinds: The types of the columns that have ranges.
    """

    def __init__(self, table: IcebergTable, columns: Columns) -> None:
        self._table, self._columns = table, columns
        self.kinds = value_types(columns.types)

    def of_predicate(self, predicate: Predicate) -> list[ColumnRanges]:
        """Return the ranges of each alternative of a predicate; none if it restricts no column to a range."""
        expression = predicate.as_json(self._table, self._columns)
        alternatives = fold(expression, lambda node: alternatives_of(node, self.kinds), both_alternatives)
        return [ranges for ranges in alternatives if ranges]

    def of_query(self, query: str) -> tuple[int, list[ColumnRanges]]:
        """Return how many scans of the table a query makes, and the ranges of each alternative of their filters."""
        scans = scan_predicates(self._table, query)
        return len(scans), [ranges for scan in scans for ranges in self.of_predicate(scan)]

    def of_json(self, value: Mapping[str, Any]) -> ColumnRanges:
        """Return the ranges that :func:`ranges_as_json` wrote, as far as the table has their columns.

        A column that was dropped, or got another type, restricts nothing.
        """
        ranges = {}
        for column, interval in value.items():
            if column not in self.kinds:
                continue
            try:
                lower, upper = map(self.kinds[column].read_again, interval)
            except (ValueError, TypeError, ArithmeticError):
                continue
            is_open = lower is None and upper is None
            if not is_open and (lower is None or upper is None or lower <= upper):
                ranges[column] = (lower, upper)
        return ranges

    def of_key(self, key: ClusterKey, ranges: ColumnRanges) -> KeyRange | None:
        """Return the least range of a key that holds the rows in some ranges, or None if they do not restrict it.

        An item bounds the keys only as long as all items before it have a single value. Under a key with a curve it is
        the range of each item by itself, of which one at least must be restricted.
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
        """Return the SQL predicate that holds for the rows in ranges, of which one at least has an end."""
        terms = []
        for column, (lower, upper) in ranges.items():
            is_single = lower is not None and lower == upper
            ends = [("=", lower)] if is_single else [(">=", lower), ("<=", upper)]
            kind = self._columns.types[column]
            terms += [
                f"{quote_path(column)} {sign} {sql_literal(end, kind)}"
                for sign, end in ends
                if end is not None
            ]
        return " and ".join(terms)


def ranges_as_json(ranges: ColumnRanges) -> dict[str, list[Any]]:
    """Return ranges as JSON can hold them; :meth:`Ranges.of_json` reads it."""
    return {column: [as_json(end) for end in interval] for column, interval in ranges.items()}


def both_alternatives(word: str, left: list[ColumnRanges], right: list[ColumnRanges]) -> list[ColumnRanges]:
    """Return the alternatives of two expressions joined by ``and`` or ``or``."""
    if word == "or":
        both = [*left, *right]
    else:
        pairs = (_intersection(one, other) for one in left for other in right)
        both = [ranges for ranges in pairs if ranges is not None]
    return both if len(both) <= MOST_RANGES and {} not in both else [{}]


def alternatives_of(node: Any, kinds: Mapping[str, ValueType]) -> list[ColumnRanges]:
    """Return the alternatives of a comparison in Iceberg's JSON, or of true or false."""
    if isinstance(node, bool):
        return [{}] if node else []
    column = node.get("term")
    kind = kinds.get(column) if isinstance(column, str) else None
    if kind is None:
        return [{}]
    try:
        intervals = _intervals(node, kind)
        for end in chain.from_iterable(intervals):
            kind.check(end)
    except (ValueError, OverflowError, ArithmeticError):  # a date beyond Python's
        return [{}]
    return [{column: interval} for interval in intervals] if 0 < len(intervals) <= MOST_RANGES else [{}]


def _intervals(node: Mapping[str, Any], kind: ValueType) -> list[Interval]:
    """Return the intervals that a comparison admits; none for one that is no range."""
    comparison, step = node["type"], kind.step
    if comparison == "in":
        return [(value, value) for value in sorted(map(kind.read, node["values"]))]
    if "value" not in node:
        return []
    value = kind.read(node["value"])
    if comparison == "eq":
        return [(value, value)]
    if comparison in ("gt", "gt-eq"):
        return [(value if comparison == "gt-eq" or step is None else value + step, None)]
    if comparison in ("lt", "lt-eq"):
        return [(None, value if comparison == "lt-eq" or step is None else value - step)]
    return [(value, value + LAST_CHARACTER)] if comparison == "starts-with" else []


def _intersection(one: ColumnRanges, other: ColumnRanges) -> ColumnRanges | None:
    """Return the ranges in which both hold, or None if no row is in both."""
    ranges = dict(one)
    for column, (lower, upper) in other.items():
        low, high = ranges.get(column, (None, None))
        low = lower if low is None else low if lower is None else max(low, lower)
        high = upper if high is None else high if upper is None else min(high, upper)
        if low is not None and high is not None and low > high:
            return None
        ranges[column] = (low, high)
    return ranges
