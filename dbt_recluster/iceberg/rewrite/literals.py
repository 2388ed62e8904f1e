"""Values of a cluster key as Spark SQL literals and as arguments of Iceberg's expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dbt_recluster.columns import sql_literal
from dbt_recluster.iceberg.session.jvm import jvm
from dbt_recluster.transforms import Transform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INT_MAX = 2**31


def sql_array(values: Sequence[pa.Scalar | None], spark_type: str) -> str:
    """Return an array of a Spark type as SQL, which Spark folds into a constant."""
    items = ", ".join(exact_literal(value, spark_type) for value in values)
    return f"cast(array({items}) as array<{spark_type}>)"


def exact_literal(value: pa.Scalar | None, spark_type: str) -> str:
    """Return a value as SQL that does not depend on quoting rules, time zones or rounding."""
    if value is None or not value.is_valid:
        return f"cast(null as {spark_type})"
    kind = value.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"cast(X'{value.as_buffer().to_pybytes().hex()}' as string)"  # which need not be UTF-8
    if pa.types.is_date32(kind):
        return f"date_from_unix_date({value.cast(pa.int32()).as_py()})"
    if pa.types.is_timestamp(kind):
        micros = value.cast(pa.int64()).as_py()
        if spark_type == "timestamp_ntz":
            return f"timestamp_ntz'{np.datetime64(micros, 'us')}'"
        return f"timestamp_micros({micros}L)"
    return sql_literal(value.as_py(), spark_type)


def printed(spark: SparkSession, values: Sequence[pa.Scalar], spark_type: str) -> list[str]:
    """Return values as Spark prints them, whatever their year and the session's time zone; binary as hex.

    Args:
        spark: The session.
        values: Values of one type; times may be given as microseconds since 1970.
        spark_type: Their Spark type.
    """
    if not values:
        return []
    if spark_type in ("timestamp", "timestamp_ntz"):
        values = [value.cast(pa.int64()).cast(pa.timestamp("us")) for value in values]
    show = "lower(hex({}))" if spark_type == "binary" else "cast({} as string)"
    items = ", ".join(
        f"coalesce({show.format(exact_literal(value, spark_type))}, 'NULL')" for value in values
    )
    row = spark.sql(f"select array({items})").first()
    return [str(text) for text in row[0]] if row is not None else []


def is_nan(value: pa.Scalar) -> bool:
    """Whether a value is NaN, which no comparison of Iceberg's matches."""
    return bool(pa.types.is_floating(value.type) and value.is_valid and value.as_py() != value.as_py())


def source_value(
    spark: SparkSession, value: pa.Scalar, transform: Transform, source: Any, up: bool
) -> Any | None:
    """Return the least value of the column for which a key item reaches ``value``, for Iceberg's expressions.

    Args:
        spark: The session.
        value: A value of the key item, neither NULL nor NaN.
        transform: The transform of the key item.
        source: The Java type of the column.
        up: Whether to round up what py4j cannot pass on exactly, and zero: -0.0 and 0.0 are one value to Spark, and two
            to Iceberg.

    Returns:
        The value, or None if no constant of this type can be passed to Iceberg from Python.
    """
    name = source.typeId().toString()
    if name in ("BOOLEAN", "UUID", "TIMESTAMP_NANO"):
        return None
    start = transform.start(value, of_date=name == "DATE")
    if isinstance(start, float) and start == 0:
        return 0.0 if up else -0.0
    if name == "FLOAT" and isinstance(start, float) and math.isinf(start):
        return None  # Iceberg takes it for a number that no float reaches
    if isinstance(start, bytes):
        return jvm(spark).java.nio.ByteBuffer.wrap(start)
    return _micros(start, up) if name == "TIMESTAMP" else start


def _micros(micros: int, up: bool) -> int:
    """Avoid numbers that py4j would pass as an Integer, which Iceberg does not accept as a time."""
    if -_INT_MAX <= micros < _INT_MAX:
        return _INT_MAX if up else -_INT_MAX - 1
    return micros
