"""Values of columns by their types, as Spark SQL, in Iceberg's expressions and as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dbt_recluster.key.cluster_key import KeyField
from dbt_recluster.key.columns import base_type, decimal_precision, decimal_scale, sql_literal
from dbt_recluster.key.transforms import EXACT, INTEGERS, TEXTS, TIMES, Transform, Truncate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KeyValue = Sequence[pa.Scalar]


def exact_literal(value: pa.Scalar, spark_type: str) -> str:
    """Return a value as SQL, independent of quoting rules, time zones and rounding."""
    if not value.is_valid:
        return f"cast(null as {spark_type})"
    kind = value.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"cast(X'{value.as_buffer().to_pybytes().hex()}' as string)"  # which need not be UTF-8
    if pa.types.is_date32(kind):
        return f"date_from_unix_date({value.cast(pa.int32()).as_py()})"
    if pa.types.is_timestamp(kind):
        micros = value.cast(pa.int64()).as_py()
        if spark_type == "timestamp_ntz":
            # NumPy reads the first microsecond as NaT.
            seconds, rest = divmod(micros, 1_000_000)
            # Spark wants four digits of a year, also before year 1.
            text = re.sub(r"\d+", lambda year: f"{year[0]:0>4}", str(np.datetime64(seconds, "s")), count=1)
            return f"timestamp_ntz'{text}.{rest:06}'"
        return f"timestamp_micros({micros}L)"
    return sql_literal(value.as_py(), spark_type)


def printed(spark: SparkSession, values: Sequence[pa.Scalar], spark_type: str) -> list[str]:
    """Return values of one type as Spark prints them, in UTC; binary as hex. Times may be microseconds since 1970."""
    if not values:
        return []
    if spark_type in TIMES:
        values = [value.cast(pa.int64()).cast(pa.timestamp("us")) for value in values]
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
    kind, given, transform = base_type(spark_type), boundaries.type, field.transform
    if kind == "date" or kind in TIMES:
        starts = [transform.start(value, of_date=kind == "date") for value in boundaries]
        return _within(starts, pa.int32() if kind == "date" else pa.int64())
    if kind == "decimal":
        return _decimal_starts(transform, spark_type, boundaries.to_pylist())
    if kind in INTEGERS and pa.types.is_integer(given):
        least = -(2**63) if kind in ("bigint", "long") else -(2**31)
        return _within([_multiple(transform, value, least) for value in boundaries.to_pylist()], pa.int64())
    if kind == "float":
        exact = boundaries.cast(pa.float64()).to_numpy()
        nearest = exact.astype(np.float32)
        return pa.array(np.where(nearest < exact, np.nextafter(nearest, np.float32(np.inf)), nearest))
    if kind == "double":
        return boundaries.cast(pa.float64())
    same = {"boolean": "bool", "binary": "binary", **dict.fromkeys(TEXTS, "string")}
    if str(given).removeprefix("large_") == same.get(kind):
        return boundaries
    raise ValueError(f"{field} is {spark_type}, which boundaries of type {given} do not cut")


def _decimal_starts(transform: Transform, spark_type: str, boundaries: Sequence[Any]) -> pa.Array:
    precision, scale = decimal_precision(spark_type), decimal_scale(spark_type)
    if not isinstance(transform, Truncate):  # truncated decimals are unscaled (see Truncate.values)
        boundaries = [Decimal(value).scaleb(scale, EXACT) for value in boundaries]
    most = 10**precision - 1
    numbers = (min(_multiple(transform, max(int(value), -most)), most) for value in boundaries)
    return pa.array(
        [Decimal(number).scaleb(-scale, EXACT) for number in numbers], pa.decimal128(precision, scale)
    )


def _multiple(transform: Transform, value: int, least: float = -math.inf) -> int:
    """Return the least number that is truncated to ``value`` or more; below the first multiple none is truncated."""
    width = transform.width if isinstance(transform, Truncate) else 1
    multiple = -(-value // width) * width
    return multiple if multiple - width >= least else value


def _within(numbers: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Return integers of any size, clipped to the range of the type."""
    limits = np.iinfo(str(kind))
    return pa.array([min(max(number, int(limits.min)), int(limits.max)) for number in numbers], kind)


def iceberg_json(value: Any, kind: str, *, up: bool) -> Any | None:
    """Return a value of an Iceberg type, as from :meth:`Transform.start`, for Iceberg's parser of expressions.

    It is None if the parser has no constant for it. -0.0 and 0.0 are one value to Spark, and two to Iceberg, so zero is
    rounded ``up`` or down.
    """
    if kind in ("boolean", "uuid", "timestamp_ns", "timestamptz_ns") or isinstance(value, bytes):
        return None
    if isinstance(value, int):
        bits = 31 if kind == "date" else 63
        return value if -(1 << bits) <= value < 1 << bits else None
    if isinstance(value, float):
        zero = 0.0 if up else -0.0
        return (value or zero) if math.isfinite(value) else None
    return str(value) if isinstance(value, Decimal) else value


@dataclass(frozen=True)
class ValueType:
    """The type of a column with ranges."""

    arrow: pa.DataType
    read: Callable[[Any], Any]  # from JSON, as Iceberg writes it
    step: Any = None  # the distance from a value to the next one

    def check(self, value: Any) -> None:
        """Raise a ValueError or an ArithmeticError if the type does not hold a value, or it is not finite."""
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        pa.scalar(value, self.arrow)

    def read_again(self, value: Any) -> Any:
        """Read the output of `as_json`, or raise if it is not of this type."""
        if value is None:
            return None
        result = self.read(value)
        if as_json(result) != value or isinstance(result, bool) != isinstance(value, bool):
            raise ValueError
        self.check(result)
        return result


def as_json(value: Any) -> Any:
    """Return a value as JSON."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def value_types(types: Mapping[str, str]) -> dict[str, ValueType]:
    """Return the types of the columns that can have ranges, given Spark's type of each column."""
    kinds = {path: _TYPES[base_type(kind)] for path, kind in types.items() if base_type(kind) in _TYPES}
    scales = {path: decimal_scale(kind) for path, kind in types.items() if base_type(kind) == "decimal"}
    return kinds | {path: ValueType(pa.decimal128(38, scale), Decimal) for path, scale in scales.items()}


def _time(text: str) -> datetime:
    """Read a time, in UTC if it has a zone."""
    # Python 3.10 reads only three or six digits after the point.
    text = re.sub(r"\.(\d+)", lambda digits: f".{digits[1]:0<6.6}", text)
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=None)


_TYPES = {
    **dict.fromkeys(INTEGERS, ValueType(pa.int64(), int, 1)),
    **dict.fromkeys((*TEXTS, "uuid"), ValueType(pa.string(), str)),
    **dict.fromkeys(TIMES, ValueType(pa.timestamp("us"), _time, timedelta(microseconds=1))),
    "float": ValueType(pa.float32(), float),
    "double": ValueType(pa.float64(), float),
    "date": ValueType(pa.date32(), date.fromisoformat, timedelta(days=1)),
    "boolean": ValueType(pa.bool_(), bool),
    "binary": ValueType(pa.binary(), bytes.fromhex),
}
