"""A sample of a table's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dbt_recluster.columns import quote_path
from dbt_recluster.iceberg.block_metadata import collect_arrow

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable


def sample_rows(table: IcebergTable, columns: Sequence[str], rows: int, limit: int) -> pa.Table:
    """Return a random sample of about ``limit`` rows.

    Args:
        table: The table.
        columns: Columns, or fields of structs; the sample names them ``column_0``, ``column_1``... Its column ``path``
            is the block of each row.
        rows: The table's number of rows.
        limit: The size of the sample.
    """
    from pyspark.sql import functions as F

    frame = table.rows()
    if rows > limit:
        frame = frame.sample(fraction=limit / rows, seed=1)
    values = (F.col(quote_path(name)).alias(f"column_{place}") for place, name in enumerate(columns))
    return collect_arrow(frame.select(F.col("_file").alias("path"), *values))
