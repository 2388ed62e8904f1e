"""The scans of a table in whole queries, from Spark's plan of them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.reads.column_ranges import ColumnRanges, predicate_ranges
from dbt_recluster.iceberg.reads.predicates import Predicate
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.jvm import activate, java_class, java_items, jvm
from dbt_recluster.iceberg.value_types import ValueType

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

_QUERY = re.compile(
    r"(\s|\(|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*(select|with|from|table|values)\b(?!\s*[=<>!.])", re.I | re.S
)
# Of Iceberg's scans.
_FILTERS = "filterExpressions"


def is_query(text: str) -> bool:
    """Whether a text is a whole query, by its first word; otherwise it is a predicate."""
    return _QUERY.match(text) is not None


def scan_predicates(table: IcebergTable, query: str) -> list[Predicate]:
    """Return the filters that Spark's optimizer pushes down to the scans of a table in a query.

    The optimizer expands views, folds constants and `current_date`, and infers filters from joins.

    Args:
        table: The table.
        query: A query that may read other tables too. It is planned and not run.

    Returns:
        A predicate for each scan of the table: none if the query reads other tables only.

    Raises:
        PredicateError: The query cannot be planned, or Iceberg does not give the filters of its scans.
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


def query_ranges(
    table: IcebergTable, kinds: Mapping[str, ValueType], query: str
) -> tuple[int, list[ColumnRanges]]:
    """Return how many scans of a table a query makes, and the ranges that each alternative of their filters reads.

    Args:
        table: The table.
        kinds: The types of its columns.
        query: A query that may read other tables too.

    Raises:
        PredicateError: The query cannot be planned.
    """
    scans = scan_predicates(table, query)
    return len(scans), [ranges for scan in scans for ranges in predicate_ranges(table, kinds, scan)]


def _planned(table: IcebergTable, query: str) -> Any:
    """Return Spark's ``QueryExecution`` of a query, optimized.

    Raises:
        PredicateError: The query cannot be planned, or is a command, which is not run.
    """
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

    Iceberg has no public way to them. Counts and extremes are read from metadata, by a scan that opens no block.

    Raises:
        PredicateError: Iceberg has no hidden way to them either.
    """
    expressions = table.iceberg.expressions.Expressions
    kind = scan.getClass()
    if kind.getSimpleName() == "SparkLocalScan":
        return expressions.alwaysFalse()
    while kind is not None:
        if any(method.getName() == _FILTERS for method in kind.getDeclaredMethods()):
            method = kind.getDeclaredMethod(_FILTERS, None)
            method.setAccessible(True)
            return reduce(
                getattr(expressions, "and"), java_items(method.invoke(scan, None)), expressions.alwaysTrue()
            )
        kind = kind.getSuperclass()
    raise PredicateError(
        "this version of Iceberg does not give the filters of a query: "
        f"{scan.getClass().getSimpleName()} has no method {_FILTERS}"
    )


def run_query(table: IcebergTable, query: str) -> float:
    """Run a query to its end and drop its rows; return the seconds that it took.

    Raises:
        PredicateError: It is no query, or it fails.
    """
    execution = _planned(table, query)
    started = time.monotonic()
    try:
        execution.toRdd().count()
    except Exception as e:
        raise PredicateError(f"the query cannot be run: {short_message(e)}") from e
    return time.monotonic() - started
