"""Values of a cluster key as Spark SQL and as arguments of Iceberg's expressions."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dbt_recluster.cluster_key import KeyField
from dbt_recluster.iceberg.jvm import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MICROS_PER_HOUR = 3_600_000_000
_MICROS_PER_DAY = 24 * _MICROS_PER_HOUR
_INT_MAX = 2**31


def sql_array(values: Sequence[pa.Scalar | None], spark_type: str) -> str:
    """Return an array of a Spark type as SQL that Spark folds into one constant."""
    items = ", ".join(sql_literal(value, spark_type) for value in values)
    return f"cast(array({items}) as array<{spark_type}>)"


def sql_literal(value: pa.Scalar | None, spark_type: str) -> str:
    """Return a value as SQL; no quoting rule, time zone or rounding stands between the two."""
    if value is None or not value.is_valid:
        return f"cast(null as {spark_type})"
    kind = value.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"cast(X'{value.as_py().encode().hex()}' as string)"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"X'{value.as_py().hex()}'"
    if pa.types.is_date32(kind):
        return f"date_from_unix_date({value.cast(pa.int32()).as_py()})"
    if pa.types.is_timestamp(kind):
        micros = value.cast(pa.int64()).as_py()
        if spark_type == "timestamp_ntz":
            return f"timestamp_ntz'{np.datetime64(micros, 'us')}'"
        return f"timestamp_micros({micros}L)"
    if pa.types.is_boolean(kind):
        return str(value.as_py()).lower()
    number = value.as_py()
    if isinstance(number, float):
        return f"cast('{number!r}' as {spark_type})"
    return (
        f"cast('{number:f}' as {spark_type})" if isinstance(number, Decimal) else _integer(number, spark_type)
    )


def is_nan(value: pa.Scalar) -> bool:
    """Whether a value is the one that no comparison of Iceberg's finds."""
    return bool(pa.types.is_floating(value.type) and value.is_valid and value.as_py() != value.as_py())


def source_value(spark: SparkSession, value: pa.Scalar, field: KeyField, source: Any, up: bool) -> Any | None:
    """Return the column's value at which a key item reaches ``value``, for Iceberg's expressions.

    A column is at or above it if and only if the key item is at or above ``value``.

    Args:
        spark: The session.
        value: Not NULL and not NaN.
        field: The key item.
        source: The Java type of the column.
        up: Where a value cannot be passed on exactly, whether to err on the greater side.

    Returns:
        None if Iceberg cannot compare such values with a constant from here.
    """
    name = source.typeId().toString()
    if name in ("BOOLEAN", "UUID", "TIMESTAMP_NANO"):
        return None
    if field.transform in ("hour", "day", "month", "year"):
        micros = _start_micros(value, field.transform)
        return micros // _MICROS_PER_DAY if name == "DATE" else _micros(micros, up)
    if name == "TIMESTAMP":
        return _micros(int(value.cast(pa.int64()).as_py()), up)
    if name == "DATE":
        return int(value.cast(pa.int32()).as_py())
    plain = value.as_py()
    if isinstance(plain, bytes):
        return jvm(spark).java.nio.ByteBuffer.wrap(plain)
    return plain


def next_value(value: pa.Scalar, field: KeyField) -> pa.Scalar | None:
    """Return the value of a key item that follows ``value``, None where that cannot be told."""
    if field.transform in ("hour", "day", "month", "year"):
        return pa.scalar(value.cast(pa.int32()).as_py() + 1, pa.int64())
    if pa.types.is_integer(value.type) and value.type != pa.int64():
        return pa.scalar(value.as_py() + field.width, pa.int64())
    return None


def _integer(number: int, spark_type: str) -> str:
    return f"cast('{number}' as {spark_type})"


def _micros(micros: int, up: bool) -> int:
    """Keep clear of numbers that py4j makes an Integer of, which Iceberg does not take for a time."""
    if -_INT_MAX <= micros < _INT_MAX:
        return _INT_MAX if up else -_INT_MAX - 1
    return micros


def _start_micros(value: pa.Scalar, transform: str) -> int:
    """Return when an hour, day, month or year begins that is counted from 1970."""
    number = value.cast(pa.int32()).as_py()
    if transform == "hour":
        return int(number) * _MICROS_PER_HOUR
    if transform == "day":
        return int(number) * _MICROS_PER_DAY
    unit = {"month": "M", "year": "Y"}[transform]
    days = int(np.datetime64(int(number), unit).astype("datetime64[D]").astype(np.int64))  # type: ignore[call-overload]
    return days * _MICROS_PER_DAY
