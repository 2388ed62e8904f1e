"""A few of a table's rows: a sample of all of them, or of those that match a predicate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dbt_recluster.columns import quote
from dbt_recluster.iceberg.block_metadata import collect_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dbt_recluster.iceberg.iceberg_table import IcebergTable


def sample_rows(table: IcebergTable, columns: Sequence[str], rows: int, limit: int) -> pa.Table:
    """Return a random sample of about ``limit`` rows.

    Args:
        table: The table.
        columns: Top-level columns; the sample names them ``column_0``, ``column_1``...
        rows: The table's number of rows.
        limit: The size of the sample.
    """
    frame = table.rows()
    if rows > limit:
        frame = frame.sample(fraction=limit / rows, seed=1)
    return collect_arrow(_select(frame, columns))


def matching_rows(table: IcebergTable, columns: Sequence[str], predicate: str, limit: int) -> pa.Table:
    """Return at most ``limit`` rows that match a predicate, which the caller has parsed before."""
    from pyspark.sql import functions as F

    return collect_arrow(_select(table.rows().where(F.expr(predicate)), columns).limit(limit))


def _select(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.select(*(F.col(quote(name)).alias(f"column_{i}") for i, name in enumerate(columns)))
