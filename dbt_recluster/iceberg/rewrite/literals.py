"""Keys and values of columns as Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from dbt_recluster.key.cluster_key import KeyField
from dbt_recluster.key.transforms import Truncate
from dbt_recluster.key.types import Time, column_type, value_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KeyValue = Sequence[pa.Scalar]


def exact_literal(value: pa.Scalar, spark_type: str) -> str:
    """Return a value as SQL, independent of quoting rules, time zones and rounding."""
    return (
        value_type(value.type).literal(value, spark_type) if value.is_valid else f"cast(null as {spark_type})"
    )


def printed(spark: SparkSession, values: Sequence[pa.Scalar], spark_type: str) -> list[str]:
    """Return values of one type as Spark prints them, in UTC; binary as hex. Times may be microseconds since 1970."""
    if not values:
        return []
    kind = column_type(spark_type)
    if isinstance(kind, Time):
        values = [value.cast(kind.whole).cast(kind.arrow) for value in values]
    show = "lower(hex(value))" if spark_type == "binary" else "cast(value as string)"
    array = keys_sql([[value] for value in values], [spark_type])
    row = spark.sql(f"select transform({array}, value -> coalesce({show}, 'NULL'))").first()
    return [str(text) for text in row[0]] if row is not None else []


def key_sql(names: Sequence[str]) -> str:
    """Return a row's key as one SQL value; Spark compares structs like tuples, NULL first."""
    if len(names) == 1:
        return names[0]
    fields = (f"'k{place}', {name}" for place, name in enumerate(names))
    return f"named_struct({', '.join(fields)})"


def keys_sql(keys: Sequence[KeyValue], types: Sequence[str]) -> str:
    """Return the first ``len(types)`` columns of keys as a constant array of values like :func:`key_sql`."""
    items = (key_sql([*map(exact_literal, key, types)]) for key in keys)
    return f"array({', '.join(items)})"


def deciding_columns(keys: Sequence[KeyValue]) -> int:
    """Return how many columns decide whether a row is at or above keys: trailing NULLs do not, they are least."""
    deciding = (place for key in keys for place, value in enumerate(key, 1) if value.is_valid)
    return max(deciding, default=1)


def column_starts(field: KeyField, spark_type: str, boundaries: pa.Array) -> pa.Array:
    """Return the least values of a column at which a key item reaches boundaries, within the range of its type.

    Boundaries are values of the item, as in ``BlockMetadata``; those of another type are a ValueError. The values are
    one for each: dates as days since 1970, times as microseconds.
    """
    kind, transform = column_type(spark_type), field.transform
    width = transform.width if isinstance(transform, Truncate) else 1
    try:
        return kind.starts(boundaries, partial(transform.start, of_date=kind.in_days), width)
    except ValueError:
        raise ValueError(
            f"{field} is {spark_type}, which boundaries of type {boundaries.type} do not cut"
        ) from None
