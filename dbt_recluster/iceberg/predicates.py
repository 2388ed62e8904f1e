"""A user's ``where``: parsed by Spark, turned into an Iceberg expression by Iceberg, never pasted into a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.blocks import BlockMetadata, BoolArray
from dbt_recluster.iceberg.errors import short_message
from dbt_recluster.iceberg.jvm import jvm
from dbt_recluster.iceberg.scan import file_paths

if TYPE_CHECKING:
    from dbt_recluster.iceberg.table import IcebergTable


def parse_predicate(table: IcebergTable, where: str) -> Any:
    """Return the Iceberg expression of a SQL predicate on the table's columns.

    Raises:
        PredicateError: It does not parse, names an unknown column, or holds something that Iceberg cannot
            push down.
    """
    converter = jvm(table.spark).org.apache.spark.sql.execution.datasources.SparkExpressionConverter
    try:
        resolved = converter.collectResolvedSparkExpression(table.spark._jsparkSession, table.name, where)
        return converter.convertToIcebergExpression(resolved)
    except Exception as e:
        raise PredicateError(
            f"where: {where!r} cannot choose blocks of {table.name}: {short_message(e)}. Use comparisons of columns "
            "with constants, IN, IS NULL and LIKE 'prefix%', joined by AND, OR and NOT."
        ) from e


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
