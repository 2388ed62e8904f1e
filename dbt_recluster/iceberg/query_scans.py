"""What whole queries ask of a table: planned by Spark, never run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.java_errors import short_message
from dbt_recluster.iceberg.jvm import activate, java_items, jvm
from dbt_recluster.iceberg.predicates import Predicate

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

_QUERY = re.compile(
    r"(\s|\(|--[^\n]*\n|/\*.*?\*/)*(select|with|from|table|values)\b(?!\s*[=<>!.])", re.I | re.S
)


def is_query(text: str) -> bool:
    """Whether a text is a whole query and no predicate."""
    return _QUERY.match(text) is not None


def scan_predicates(table: IcebergTable, query: str) -> list[Predicate]:
    """Return what the scans of a table in a query ask for: the filters that Spark's optimizer pushes down to Iceberg.

    Views are looked into; constants, `current_date` and what follows from joins are folded in.

    Args:
        table: The table.
        query: A query that may read other tables too. It is planned and not run.

    Returns:
        A predicate for each scan of the table: none if the query reads other tables only.

    Raises:
        PredicateError: The query cannot be planned.
    """
    spark = table.spark
    activate(spark)
    mode = jvm(spark).org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    state = spark._jsparkSession.sessionState()
    try:
        plan = state.executePlan(state.sqlParser().parsePlan(query), mode).optimizedPlan()
    except Exception as e:
        raise PredicateError(
            f"a query cannot be planned: {short_message(e).rstrip('.')}. It begins {' '.join(query.split())[:60]!r}"
        ) from e
    return [
        Predicate(query, filters)
        for leaf in java_items(jvm(spark).scala.collection.JavaConverters.seqAsJavaList(plan.collectLeaves()))
        if leaf.getClass().getSimpleName() == "DataSourceV2ScanRelation" and _is_scan_of(table, leaf)
        if (filters := _filters(table, leaf.scan())) is not None
    ]


def _is_scan_of(table: IcebergTable, relation: Any) -> bool:
    scanned = relation.relation().table()
    if not scanned.getClass().getName().startswith("org.apache.iceberg.spark.source."):
        return False
    try:
        return bool(str(scanned.table().uuid()) == table.uuid)
    except Exception:
        return False  # a metadata table


def _filters(table: IcebergTable, scan: Any) -> Any:
    """Return the filters of a scan as one expression, or None of a scan that opens no block.

    Iceberg has no public way to them. Counts and extremes are read from metadata, by a scan without filters.
    """
    expressions = table.iceberg.expressions.Expressions
    kind = scan.getClass()
    while kind is not None:
        if any(method.getName() == "filterExpressions" for method in kind.getDeclaredMethods()):
            method = kind.getDeclaredMethod("filterExpressions", None)
            method.setAccessible(True)
            found = expressions.alwaysTrue()
            for each in java_items(method.invoke(scan, None)):
                found = getattr(expressions, "and")(found, each)
            return found
        kind = kind.getSuperclass()
    return None
