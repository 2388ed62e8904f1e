"""A user's ``where``: parsed by Spark, converted to an Iceberg expression by Iceberg, never pasted into a statement."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.columns import quote
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, BoolArray
from dbt_recluster.iceberg.metadata.scan import file_paths
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.jvm import activate, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_recluster.iceberg.iceberg_table import IcebergTable


@dataclass(frozen=True)
class Predicate:
    """A predicate on the columns of a table.

    Attributes:
        text: The SQL as the user wrote it.
        expression: The Java ``Expression``.
    """

    text: str
    expression: Any

    @classmethod
    def parse(cls, table: IcebergTable, where: str) -> Predicate:
        """Parse a SQL predicate.

        Raises:
            PredicateError: It does not parse, names an unknown column, or cannot be pushed down to Iceberg.
        """
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
    """Parse a predicate on a table that does not exist yet.

    Args:
        spark: A session.
        columns: Spark's type of each column.
        where: The predicate.

    Raises:
        PredicateError: As :meth:`Predicate.parse`.
    """
    activate(spark)
    schema = ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
    view = f"recluster_{uuid.uuid4().hex}"
    # The optimizer drops the filter of a relation that it knows to be empty; it knows nothing of an RDD.
    spark.createDataFrame(spark.sparkContext.emptyRDD(), schema).createTempView(view)
    try:
        _expression(spark, view, "the model", where)
    finally:
        spark.catalog.dropTempView(view)


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
