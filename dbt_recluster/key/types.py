"""One class for each type of columns: its names, values, SQL and order.

The same classes describe values in Arrow: bounds, and results of transforms, so days of a timestamp are integers.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.key.columns import base_type, decimal_digits, sql_literal

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]

EXACT = Context(prec=80)  # Python has 28 digits, and Arrow up to 76
Start = Callable[[pa.Scalar], Any]


@dataclass(frozen=True)
class ColumnType:
    """A type of a column, or of values in Arrow."""

    text: str  # as Spark, Iceberg or Arrow prints it
    arrow: pa.DataType

    spark: ClassVar[Sequence[str]] = ()  # Spark's names, without parameters
    column: ClassVar[Any] = None  # the Arrow type of a column's values
    bounds: ClassVar[Any] = {}  # the Arrow types of bounds, by Iceberg's names
    holds: ClassVar[Any] = None  # tests an Arrow type, if ``column`` is not the only one of the class
    whole: ClassVar[Any] = None  # the Arrow type of the whole numbers that stand for values
    read: ClassVar[Any] = str  # from JSON, as Iceberg writes it
    wide: ClassVar[Any] = None  # the Arrow type of the ends of reads, if it is another
    step: ClassVar[Any] = None  # the distance from a value to the next one
    some: ClassVar[Any] = 0  # an arbitrary value
    has_nan: ClassVar[bool] = False
    is_exact: ClassVar[bool] = False  # whether NumPy holds :meth:`numbers` exactly
    is_number: ClassVar[bool] = False  # whether values have distances
    in_days: ClassVar[bool] = False  # whether they are days since 1970
    width_of: ClassVar[Any] = None  # the function of a value's length, if it has one
    json_type: ClassVar[str | None] = None  # the Iceberg type as which bounds are read, if it is another
    compared: ClassVar[Any] = ("{}", None)  # SQL that Spark compares with boundaries, and its type
    units: ClassVar[Any] = {}  # SQL of whole days and hours since 1970, UTC, bigint; ``{0}`` is the column
    has_own_literals: ClassVar[bool] = False  # whether Spark cannot cast every value's text back

    def read_plan(self, text: str) -> Any:
        """Read a value in a plan of Spark."""
        return self.read(text)

    def numbers(self, values: pa.Array) -> pa.Array:
        """Return values as whole numbers if such stand for them."""
        return values if self.whole is None else values.cast(self.whole)

    def from_json(self, values: Sequence[Any]) -> pa.Array:
        """Return bounds in Iceberg's JSON."""
        return pa.array(values, self.arrow)

    @property
    def has_bounds(self) -> bool:
        """Whether the class reads bounds of this Iceberg type; `Text` also stands for types without a class."""
        return self.text.partition("[")[0] in self.bounds

    def from_bytes(self, bound: bytes) -> Any:
        """Return a bound in Iceberg's binary form as Python compares it: dates, times and decimals as whole numbers."""
        return int.from_bytes(bound, "little", signed=True)

    def truncated(self, values: pa.Array, width: int) -> pa.Array:
        """Return values as Iceberg truncates them."""
        numbers = filled(values)
        return like(np.minimum(numbers - numbers % width, numbers), values)

    def starts(self, values: pa.Array, start: Start, width: int) -> pa.Array:
        """Return the least values of a column at which a transform reaches ``values``, within the range of the type.

        ``start`` is `Transform.start`, and ``width`` is that of a truncation, or 1. Values of a type that does not fit
        are a ValueError. The result is the numbers of dates and times.
        """
        if type(value_type(values.type)) is not type(self):
            raise ValueError(f"boundaries of type {values.type} do not cut {self.text}")
        return values

    def as_texts(self, values: pa.Array) -> list[str]:
        """Return values as texts in the same order: numbers as hexadecimal digits."""
        digits = (self.whole or self.arrow).bit_width // 4
        return [f"{number + 16**digits // 2:0{digits}x}" for number in self._integers(values)]

    def of_texts(self, texts: list[str]) -> pa.Array:
        """Return the values of texts that may have lost their ends, or raise a ValueError if they descend."""
        digits = (self.whole or self.arrow).bit_width // 4
        ends = [int(text.ljust(digits, "0"), 16) - 16**digits // 2 for text in texts]
        return self._of_integers(_ascending(ends))

    def comparable(self, values: pa.Array) -> Sequence[Any]:
        """Return values as :meth:`from_bytes` returns bounds, NULL as None."""
        return list(self.numbers(values).to_pylist())

    def _integers(self, values: pa.Array) -> Sequence[int]:
        return self.comparable(values)

    def _of_integers(self, numbers: Sequence[int]) -> pa.Array:
        return pa.array(numbers, self.whole or self.arrow).cast(self.arrow)

    def literal(self, value: pa.Scalar, spark_type: str) -> str:
        """Return a value that is not NULL as SQL, independent of quoting rules, time zones and rounding."""
        return sql_literal(value.as_py(), spark_type)

    def truncated_sql(self, column: str, width: int) -> str:
        """Return SQL of truncated values; those beyond the range of numbers stay themselves."""
        return f"coalesce(try_subtract({column}, pmod({column}, {width})), {column})"


class Integer(ColumnType):
    spark = ("tinyint", "smallint", "int", "integer", "bigint", "long")
    column = pa.int64()
    bounds: ClassVar = {"int": pa.int32(), "long": column}
    wide = column
    read = int
    step = 1
    is_exact = is_number = True
    compared = ("{}", "bigint")
    holds = staticmethod(pa.types.is_integer)

    def starts(self, values: pa.Array, start: Start, width: int) -> pa.Array:
        least = -(2**63) if base_type(self.text) in ("bigint", "long") else -(2**31)
        numbers = super().starts(values, start, width).to_pylist()
        return _within([_multiple(width, number, least) for number in numbers], pa.int64())


class DecimalNumber(ColumnType):
    """Truncated decimals are unscaled, and have more digits than a column's."""

    spark = ("decimal",)
    read = Decimal
    is_number = True
    holds = staticmethod(pa.types.is_decimal)

    def from_json(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, pa.string()).cast(self.arrow)

    has_bounds = True

    def from_bytes(self, bound: bytes) -> Any:
        return int.from_bytes(bound, "big", signed=True)

    def comparable(self, values: pa.Array) -> Sequence[Any]:
        return [None if value is None else int(value.scaleb(self.arrow.scale, EXACT)) for value in values.to_pylist()]

    def truncated(self, values: pa.Array, width: int) -> pa.Array:
        # Python integers, for up to 38 digits. Spark turns longer decimals into NULL.
        truncated = (None if v is None else v - v % width for v in self.comparable(values))
        texts = [None if v is None or v <= -(10**self.arrow.precision) else str(v) for v in truncated]
        return pa.array(texts, pa.string()).cast(pa.decimal256(40, 0))

    def starts(self, values: pa.Array, start: Start, width: int) -> pa.Array:
        precision, scale = decimal_digits(self.text)
        shift = 0 if pa.types.is_decimal256(values.type) else scale
        numbers = (int(v.scaleb(shift, EXACT)) for v in super().starts(values, start, width).to_pylist())
        most = 10**precision - 1
        least = [min(_multiple(width, max(number, -most)), most) for number in numbers]
        return pa.array(map(self.scaled, least), pa.decimal128(precision, scale))

    def scaled(self, number: int) -> Decimal:
        """Return an unscaled number as it is printed."""
        return Decimal(number).scaleb(-decimal_digits(self.text)[1], EXACT)

    def _of_integers(self, numbers: Sequence[int]) -> pa.Array:
        # The start of its digits may be less than the least number of the type.
        clamped = [max(number, 1 - 10**self.arrow.precision) for number in numbers]
        return pa.array(map(self.scaled, clamped), self.arrow)

    def truncated_sql(self, column: str, width: int) -> str:
        # The width is unscaled: 50 is 0.50 in a decimal(10, 2). Spark rounds the last of 38 digits.
        return f"try_cast(try_subtract({column}, pmod({column}, {self.scaled(width):f})) as {self.text})"


class Text(ColumnType):
    """The bytes of a text decide its order, and Spark does not check that they are UTF-8."""

    spark: ClassVar[Sequence[str]] = ("string", "varchar", "char")
    column = pa.string()
    bounds: ClassVar = {"string": column}
    some: ClassVar[Any] = ""
    width_of = staticmethod(pc.utf8_length)
    after: ClassVar[Any] = "\U0010ffff"  # a start with this appended is above all texts with that start
    compared: ClassVar[Any] = ("{}", "string")
    has_own_literals = True
    holds = staticmethod(lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind))

    def from_bytes(self, bound: bytes) -> Any:
        return bound.decode(errors="surrogateescape")

    def comparable(self, values: pa.Array) -> Sequence[Any]:
        # Java's writer, too, replaces what is not UTF-8.
        return [None if v is None else v.decode(errors="replace") for v in values.cast(pa.binary()).to_pylist()]

    def truncated(self, values: pa.Array, width: int) -> pa.Array:
        return pc.utf8_slice_codeunits(values, 0, width)

    def as_texts(self, values: pa.Array) -> list[str]:
        return list(values.to_pylist())

    def of_texts(self, texts: list[str]) -> pa.Array:
        return pa.array(_ascending(texts), self.arrow)

    def literal(self, value: pa.Scalar, spark_type: str) -> str:
        return f"cast(X'{value.as_buffer().to_pybytes().hex()}' as string)"

    def truncated_sql(self, column: str, width: int) -> str:
        return f"substr({column}, 1, {width})"


class Uuid(Text):
    """Spark reads it as text, in another order than Iceberg, so filters on sorted files lose rows."""

    spark = ("uuid",)
    bounds: ClassVar = {}


class Binary(Text):
    spark = ("binary",)
    column = pa.binary()
    bounds: ClassVar = {"binary": column, "fixed": column}
    read = bytes.fromhex
    some = b""
    width_of = staticmethod(pc.binary_length)
    after = b"\xff"
    compared = ("{}", None)
    holds = staticmethod(lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    def from_json(self, values: Sequence[Any]) -> pa.Array:
        return pa.array([None if value is None else bytes.fromhex(value) for value in values], self.arrow)

    def from_bytes(self, bound: bytes) -> Any:
        return bound

    comparable = ColumnType.comparable

    def truncated(self, values: pa.Array, width: int) -> pa.Array:
        return pc.binary_slice(values, 0, width)

    def as_texts(self, values: pa.Array) -> list[str]:
        return [value.hex() for value in values.to_pylist()]

    def of_texts(self, texts: list[str]) -> pa.Array:
        ends = [bytes.fromhex(text + "0" * (len(text) % 2)) for text in texts]
        return pa.array(_ascending(ends), self.arrow)

    literal = ColumnType.literal

    def truncated_sql(self, column: str, width: int) -> str:
        return f"left({column}, {width})"


class Boolean(ColumnType):
    spark = ("boolean",)
    column = pa.bool_()
    bounds: ClassVar = {"boolean": column}
    is_exact = True
    whole = pa.int8()
    read = bool
    some = False

    def read_plan(self, text: str) -> Any:
        return text == "true"


class Double(ColumnType):
    spark: ClassVar[Sequence[str]] = ("double",)
    column = pa.float64()
    bounds: ClassVar = {"double": column}
    is_exact = is_number = True
    wide = column
    read = float
    has_nan = True

    def from_bytes(self, bound: bytes) -> Any:
        if len(bound) not in (4, 8):  # a column may have been a float
            return math.nan
        return struct.unpack("<f" if len(bound) == 4 else "<d", bound)[0]

    def starts(self, values: pa.Array, start: Start, width: int) -> pa.Array:
        exact = values.cast(pa.float64())
        if self.arrow == exact.type:
            return exact
        nearest = exact.to_numpy().astype(np.float32)
        return pa.array(np.where(nearest < exact.to_numpy(), np.nextafter(nearest, np.float32(np.inf)), nearest))

    def _integers(self, values: pa.Array) -> Sequence[int]:
        return list(_in_order((values.to_numpy() + 0.0).view(f"int{self.arrow.bit_width}")).tolist())

    def _of_integers(self, numbers: Sequence[int]) -> pa.Array:
        bits = self.arrow.bit_width
        # A text that has lost its end may lie below -Infinity, where negative NaNs begin.
        least = _in_order(np.array(-np.inf, f"float{bits}").view(f"int{bits}"))
        return pa.array(_in_order(np.maximum(np.array(numbers, f"int{bits}"), least))).view(self.arrow)


class Float(Double):
    spark = ("float",)
    column = pa.float32()
    bounds: ClassVar = {"float": column}
    compared = ("{}", "double")


class Date(ColumnType):
    spark: ClassVar[Sequence[str]] = ("date",)
    column: ClassVar[Any] = pa.date32()
    bounds: ClassVar = {"date": column}
    whole: ClassVar[Any] = pa.int32()
    read: ClassVar[Any] = date.fromisoformat
    step = timedelta(days=1)
    some: ClassVar[Any] = date(1970, 1, 1)
    is_exact = is_number = True
    in_days = True
    json_type = "int"  # parsers do not know every year
    compared: ClassVar[Any] = ("unix_date({})", "int")
    units: ClassVar[Any] = {"day": "cast(unix_date({0}) as bigint)"}

    def read_plan(self, text: str) -> Any:
        return self.some + int(text) * self.step

    def starts(self, values: pa.Array, start: Start, width: int) -> pa.Array:
        if values.type not in (pa.int64(), self.column):
            raise ValueError(f"boundaries of type {values.type} do not cut {self.text}")
        return _within(list(map(start, values)), self.whole)

    def literal(self, value: pa.Scalar, spark_type: str) -> str:
        return f"date_from_unix_date({value.cast(pa.int32()).as_py()})"


class Time(Date):
    spark = ("timestamp",)
    column = pa.timestamp("us")
    bounds: ClassVar = {"timestamp": column, "timestamptz": pa.timestamp("us", "UTC")}
    whole = pa.int64()
    step = timedelta(microseconds=1)
    some = datetime(1970, 1, 1)
    in_days = False
    json_type = "long"
    compared: ClassVar[Any] = ("unix_micros({})", "bigint")
    units: ClassVar[Any] = {
        unit: f"div(unix_micros({{0}}), {micros}) - if(unix_micros({{0}}) % {micros} < 0, 1, 0)"
        for unit, micros in (("day", 86_400_000_000), ("hour", 3_600_000_000))
    }
    holds = staticmethod(pa.types.is_timestamp)

    def read(self, text: str) -> datetime:
        """Read a time, in UTC if it has a zone."""
        # Python 3.10 reads only three or six digits after the point.
        text = re.sub(r"\.(\d+)", lambda digits: f".{digits[1]:0<6.6}", text)
        return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=None)

    def literal(self, value: pa.Scalar, spark_type: str) -> str:
        micros = value.cast(pa.int64()).as_py()
        if spark_type not in TimeWithoutZone.spark:
            return f"timestamp_micros({micros}L)"
        # NumPy reads the first microsecond as NaT.
        seconds, rest = divmod(micros, 1_000_000)
        # Spark wants four digits of a year, also before year 1.
        text = re.sub(r"\d+", lambda year: f"{year[0]:0>4}", str(np.datetime64(seconds, "s")), count=1)
        return f"timestamp_ntz'{text}.{rest:06}'"


class TimeWithoutZone(Time):
    spark = ("timestamp_ntz",)
    bounds: ClassVar = {}
    compared = ("{}", None)
    units: ClassVar = {
        "day": "cast(unix_date(to_date({0})) as bigint)",
        "hour": "cast(unix_date(to_date({0})) as bigint) * 24 + hour({0})",
    }
    has_own_literals = True


# In the order of error messages. The first that holds values stands for them.
TYPES = (Integer, DecimalNumber, Text, Binary, Boolean, Float, Double, Date, Time, TimeWithoutZone, Uuid)


def column_type(spark_type: str) -> ColumnType:
    """Return the type of a column by Spark's name; one without a class has neither order nor ranges."""
    kind = next((kind for kind in TYPES if base_type(spark_type) in kind.spark), ColumnType)
    arrow = pa.decimal128(38, decimal_digits(spark_type)[1]) if kind is DecimalNumber else kind.column
    return kind(spark_type, arrow)


def iceberg_type(name: str) -> ColumnType:
    """Return the type of a column's bounds by Iceberg's name; those without a class are text."""
    if name.startswith("decimal"):
        return DecimalNumber(name, pa.decimal128(*decimal_digits(name)))
    base = name.partition("[")[0]
    kind = next((kind for kind in TYPES if base in kind.bounds), Text)
    return kind(name, kind.bounds.get(base, kind.column))


@cache
def value_type(kind: pa.DataType) -> ColumnType:
    """Return the type of values in Arrow."""
    held = (each for each in TYPES if (each.holds(kind) if each.holds else kind == each.column))
    return next(held, ColumnType)(str(kind), kind)


def filled(values: pa.Array) -> Any:
    """Return numbers as NumPy has them, 0 for NULL."""
    return np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))


def like(numbers: Any, values: pa.Array) -> pa.Array:
    """Return numbers as int64 with the NULLs of ``values``."""
    return pa.array(numbers, type=pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))


def _ascending(values: list[Any]) -> list[Any]:
    if sorted(values) != values:
        raise ValueError("boundaries ascend")
    return values


def _in_order(bits: Any) -> Any:
    """Return the bits of numbers as whole numbers in their order, or these as the bits."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _multiple(width: int, value: int, least: float = -math.inf) -> int:
    """Return the least number that is truncated to ``value`` or more; below the first multiple none is truncated."""
    multiple = -(-value // width) * width
    return multiple if multiple - width >= least else value


def _within(numbers: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Return integers of any size, clipped to the range of the type."""
    limits = np.iinfo(str(kind))
    return pa.array([min(max(number, int(limits.min)), int(limits.max)) for number in numbers], kind)
