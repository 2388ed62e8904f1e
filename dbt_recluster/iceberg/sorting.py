"""The table's sort order, which is its cluster key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.columns import quote_path
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg.locks import table_lock

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from dbt_recluster.iceberg.table import IcebergTable

# Iceberg's own transforms as SQL functions. They are looked up through a catalog, and the session catalog has
# no place for them, so a catalog that holds nothing else is registered under a name of ours.
_FUNCTIONS = "recluster_iceberg_functions"
_FUNCTION_CATALOG = "org.apache.iceberg.spark.SparkFunctionCatalog"

METRICS_PREFIX = "write.metadata.metrics.column."
ROW_GROUP_BYTES = "write.parquet.row-group-size-bytes"
_ROW_GROUP_BYTES = 4 * 1024 * 1024
_COLUMN_CHUNK_BYTES = 128 * 1024

_TRUNCATE = re.compile(r"truncate\[(\d+)\]")


def table_cluster_key(table: IcebergTable) -> ClusterKey | None:
    """Return the cluster key that the table's sort order stands for, or None when the table is unsorted.

    Raises:
        ClusterKeyError: The order has a direction, a place of nulls or a transform that no cluster key has.
    """
    order = table.java.sortOrder()
    if order.isUnsorted():
        return None
    fields = []
    items = order.fields()
    for position in range(items.size()):  # iterating ends with a Java exception, which costs a lot
        field = items.get(position)
        column = table.java.schema().findColumnName(field.sourceId())
        transform = field.transform().toString()
        truncate = _TRUNCATE.fullmatch(transform)
        plain = transform in ("identity", "hour", "day", "month", "year")
        ascending = field.direction().toString() == "ASC" and field.nullOrder().toString() == "NULLS FIRST"
        if not (plain or truncate) or not ascending:
            raise ClusterKeyError(
                f"{table.name} is sorted by {order}, which is not a cluster key: every item of one is ascending, nulls "
                "first, by a column or a monotonic expression. Set another with cluster_by."
            )
        fields.append(
            KeyField(column, "truncate", int(truncate.group(1))) if truncate else KeyField(column, transform)
        )
    return ClusterKey(tuple(fields))


def set_cluster_key(table: IcebergTable, key: ClusterKey) -> None:
    """Make ``key`` the table's sort order, with the properties that go with it; commits only what differs."""
    with table_lock(table.lock_name):
        table.refresh()
        actual = table.properties
        wanted = clustering_properties(key, len(table.java.schema().columns()))
        missing = {name: value for name, value in wanted.items() if name not in actual}
        reordered = not is_cluster_key(table, key)
        if not missing and not reordered:
            return
        transaction = table.java.newTransaction()
        if reordered:
            order = transaction.replaceSortOrder()
            for field in key.fields:
                order.asc(_term(table, field), table.iceberg.NullOrder.NULLS_FIRST)
            order.commit()
        if missing:
            update = transaction.updateProperties()
            for name, value in missing.items():
                update.set(name, value)
            update.commit()
        transaction.commitTransaction()
        table.refresh()


def clustering_properties(key: ClusterKey, columns: int) -> dict[str, str]:
    """Return the table properties that clustering works best with; what a user has set goes before them.

    - Whole bounds of the key's columns. By default Iceberg cuts string bounds to 16 characters, which makes
      keys with a long common prefix look as if they all overlapped, and keeps none beyond the first 100
      columns.
    - Small row groups. They are what a merge can skip of a sorted file; by default a file is one.

    Args:
        key: The cluster key.
        columns: How many columns the table has; a column's part of a row group should be worth a read.
    """
    bounds = {f"{METRICS_PREFIX}{field.column}": "full" for field in key.fields}
    return {**bounds, ROW_GROUP_BYTES: str(max(_ROW_GROUP_BYTES, columns * _COLUMN_CHUNK_BYTES))}


def sort_columns(spark: SparkSession, key: ClusterKey) -> list[Column]:
    """Return one column expression per item of the key, computed by Iceberg's own transforms."""
    from pyspark.sql import functions as F

    if any(field.transform != "identity" for field in key.fields):
        spark.conf.set(f"spark.sql.catalog.{_FUNCTIONS}", _FUNCTION_CATALOG)
    columns = []
    for field in key.fields:
        quoted = quote_path(field.column)
        if field.transform == "identity":
            columns.append(F.expr(quoted))
        elif field.transform == "truncate":
            columns.append(F.expr(f"{_FUNCTIONS}.truncate({field.width}, {quoted})"))
        else:
            columns.append(F.expr(f"{_FUNCTIONS}.{field.transform}s({quoted})"))
    return columns


def is_cluster_key(table: IcebergTable, key: ClusterKey) -> bool:
    """Whether the table is sorted by this very key."""
    try:
        return table_cluster_key(table) == key
    except ClusterKeyError:
        return False


def _term(table: IcebergTable, field: KeyField) -> Any:
    expressions = table.iceberg.expressions.Expressions
    if field.transform == "identity":
        return expressions.ref(field.column)
    if field.transform == "truncate":
        return expressions.truncate(field.column, field.width)
    return getattr(expressions, field.transform)(field.column)
