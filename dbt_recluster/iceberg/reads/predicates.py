"""What a user's ``where``, or a whole query, asks of a table, as expressions of Iceberg.

Spark parses and plans the text, and Iceberg converts it; it is never pasted into a statement.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.columns import quote
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, BoolArray
from dbt_recluster.iceberg.metadata.scan import file_paths
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.java_functions import JavaFunctions
from dbt_recluster.iceberg.session.jvm import activate, java_class, java_items, java_list, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_recluster.iceberg.iceberg_table import IcebergTable

_QUERY = re.compile(
    r"(\s|\(|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*(select|with|from|table|values)\b(?!\s*[=<>!.])", re.I | re.S
)
# The hidden method of Iceberg's scans.
_FILTERS = "filterExpressions"


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


def is_query(text: str) -> bool:
    """Whether a text is a whole query, by its first word; otherwise it is a predicate."""
    return _QUERY.match(text) is not None


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

    Iceberg has no public way to them. Counts and extremes are read from metadata, by a scan that opens no block.
    """
    from py4j.protocol import Py4JError

    expressions, kind = table.iceberg.expressions.Expressions, scan.getClass().getSimpleName()
    if kind == "SparkLocalScan":
        return expressions.alwaysFalse()
    try:
        method = JavaFunctions(table.spark).hidden_method(
            "org.apache.iceberg.spark.source.SparkScan", _FILTERS
        )
        filters = method.invokeWithArguments(java_list(table.spark, [scan]))
    except Py4JError as e:
        raise PredicateError(
            f"this version of Iceberg does not give the filters of a query: {kind} has no method {_FILTERS}"
        ) from e
    return reduce(getattr(expressions, "and"), java_items(filters), expressions.alwaysTrue())
