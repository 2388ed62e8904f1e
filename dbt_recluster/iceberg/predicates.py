"""A user's ``where``: parsed by Spark, turned into an Iceberg expression by Iceberg, never pasted into a statement."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.columns import quote
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.blocks import BlockMetadata, BoolArray
from dbt_recluster.iceberg.errors import short_message
from dbt_recluster.iceberg.jvm import activate, jvm
from dbt_recluster.iceberg.scan import file_paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_recluster.iceberg.table import IcebergTable


def parse_predicate(table: IcebergTable, where: str) -> Any:
    """Return the Iceberg expression of a SQL predicate on the table's columns.

    Raises:
        PredicateError: It does not parse, names an unknown column, or holds something that Iceberg cannot
            push down.
    """
    return _convert(table.spark, table.identifier, table.name, where)


def check_predicate(spark: SparkSession, columns: Mapping[str, str], where: str) -> None:
    """Hold a predicate against the columns of a table that does not exist yet.

    Args:
        spark: A session.
        columns: Spark's type of each column.
        where: The predicate.

    Raises:
        PredicateError: As :func:`parse_predicate`.
    """
    activate(spark)
    schema = ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
    view = f"recluster_{uuid.uuid4().hex}"
    # Of an RDD the optimizer does not know that it is empty; of anything else it would drop the filter.
    spark.createDataFrame(spark.sparkContext.emptyRDD(), schema).createTempView(view)
    try:
        _convert(spark, view, "the model", where)
    finally:
        spark.catalog.dropTempView(view)


def predicate_columns(table: IcebergTable, where: str) -> set[str]:
    """Return the columns that a predicate names, spelled as the table does.

    Raises:
        PredicateError: As :func:`parse_predicate`.
    """
    expression = parse_predicate(table, where)
    references = table.iceberg.expressions.Binder.boundReferences(
        table.java.schema().asStruct(), [expression], False
    )
    return {str(table.java.schema().findColumnName(each)) for each in references}


def may_match(table: IcebergTable, blocks: BlockMetadata, where: str) -> BoolArray:
    """Return a mask of shape (n,): the blocks that may hold a row for which ``where`` is true.

    Raises:
        PredicateError: As :func:`parse_predicate`.
    """
    expression = parse_predicate(table, where)
    if blocks.snapshot_id is None:
        return np.zeros(0, dtype=bool)
    paths = file_paths(table, blocks.snapshot_id, expression)
    found = pc.is_in(blocks.path, value_set=pa.array(paths, type=pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)


def _convert(spark: SparkSession, relation: str, shown: str, where: str) -> Any:
    converter = jvm(spark).org.apache.spark.sql.execution.datasources.SparkExpressionConverter
    try:
        resolved = converter.collectResolvedSparkExpression(spark._jsparkSession, relation, where)
        return converter.convertToIcebergExpression(resolved)
    except Exception as e:
        raise PredicateError(
            f"where: {where!r} cannot choose blocks of {shown}: {short_message(e).rstrip('.')}. Use comparisons of "
            "columns with constants, IN, IS NULL and LIKE 'prefix%', joined by AND, OR and NOT."
        ) from e
