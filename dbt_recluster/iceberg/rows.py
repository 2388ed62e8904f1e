"""A sample of a table's rows: how its values lie, and which rows predicates hold for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dbt_recluster.iceberg.blocks import collect_arrow

if TYPE_CHECKING:
    from dbt_recluster.iceberg.table import IcebergTable


def sample_rows(
    table: IcebergTable, columns: Sequence[str], predicates: Sequence[str], rows: int, most: int
) -> pa.Table:
    """Return about ``most`` of the table's ``rows`` rows, the same ones each time.

    Args:
        table: The table.
        columns: Top-level columns; they come back as ``column_0``, ``column_1``...
        predicates: SQL predicates that have been parsed before; whether they hold comes back as ``holds_0``...
        rows: Rows of the table.
        most: How many to return.
    """
    from pyspark.sql import functions as F

    frame = table.spark.read.format("iceberg").load(table.name)
    if rows > most:
        frame = frame.sample(fraction=most / rows, seed=1)
    chosen = [F.col(f"`{name.replace('`', '``')}`").alias(f"column_{i}") for i, name in enumerate(columns)]
    chosen += [F.expr(each).cast("boolean").alias(f"holds_{i}") for i, each in enumerate(predicates)]
    return collect_arrow(frame.select(*chosen))
