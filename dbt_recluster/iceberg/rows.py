"""Some of a table's rows: a sample of all, and those that a predicate holds for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dbt_recluster.columns import quote
from dbt_recluster.iceberg.blocks import collect_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.table import IcebergTable


def sample_rows(table: IcebergTable, columns: Sequence[str], rows: int, most: int) -> pa.Table:
    """Return about ``most`` of the table's ``rows`` rows.

    Args:
        table: The table.
        columns: Top-level columns; they come back as ``column_0``, ``column_1``...
        rows: Rows of the table.
        most: How many to return.
    """
    frame = _frame(table)
    if rows > most:
        frame = frame.sample(fraction=most / rows, seed=1)
    return collect_arrow(_select(frame, columns))


def matching_rows(table: IcebergTable, columns: Sequence[str], predicate: str, most: int) -> pa.Table:
    """Return at most ``most`` rows that a predicate holds for, which has been parsed before."""
    from pyspark.sql import functions as F

    return collect_arrow(_select(_frame(table).where(F.expr(predicate)), columns).limit(most))


def _frame(table: IcebergTable) -> DataFrame:
    return table.spark.read.format("iceberg").load(table.identifier)


def _select(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    chosen = [F.col(quote(name)).alias(f"column_{i}") for i, name in enumerate(columns)]
    return frame.select(*chosen)
