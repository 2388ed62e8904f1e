"""The scans of a table in whole queries, from Spark's plan of them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.java_errors import short_message
from dbt_recluster.iceberg.jvm import activate, java_items, jvm
from dbt_recluster.iceberg.predicates import Predicate
from dbt_recluster.iceberg.read_boxes import Box, predicate_boxes
from dbt_recluster.iceberg.value_types import ValueType

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

_QUERY = re.compile(
    r"(\s|\(|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*(select|with|from|table|values)\b(?!\s*[=<>!.])", re.I | re.S
)


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
        PredicateError: The query cannot be planned.
    """
    leaves = _planned(table, query).optimizedPlan().collectLeaves()
    return [
        Predicate(query, filters)
        for leaf in java_items(jvm(table.spark).scala.collection.JavaConverters.seqAsJavaList(leaves))
        if leaf.getClass().getSimpleName() == "DataSourceV2ScanRelation" and _is_scan_of(table, leaf)
        if (filters := _filters(table, leaf.scan())) is not None
    ]


def query_boxes(table: IcebergTable, kinds: Mapping[str, ValueType], query: str) -> tuple[int, list[Box]]:
    """Return how many scans of a table a query makes, and the boxes of their filters.

    Args:
        table: The table.
        kinds: The types of its columns.
        query: A query that may read other tables too.

    Raises:
        PredicateError: The query cannot be planned.
    """
    scans = scan_predicates(table, query)
    return len(scans), [box for scan in scans for box in predicate_boxes(table, kinds, scan)]


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


def _is_scan_of(table: IcebergTable, relation: Any) -> bool:
    scanned = relation.relation().table()
    if not scanned.getClass().getName().startswith("org.apache.iceberg.spark.source."):
        return False
    try:
        return bool(str(scanned.table().uuid()) == table.uuid)
    except Exception:
        return False  # a metadata table


def _filters(table: IcebergTable, scan: Any) -> Any:
    """Return the filters of a scan as one expression, or None for a scan that opens no block.

    Iceberg has no public way to them. Counts and extremes are read from metadata, by a scan without filters.
    """
    expressions = table.iceberg.expressions.Expressions
    kind = scan.getClass()
    while kind is not None:
        if any(method.getName() == "filterExpressions" for method in kind.getDeclaredMethods()):
            method = kind.getDeclaredMethod("filterExpressions", None)
            method.setAccessible(True)
            return reduce(
                getattr(expressions, "and"), java_items(method.invoke(scan, None)), expressions.alwaysTrue()
            )
        kind = kind.getSuperclass()
    return None


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
