"""One class for each transform of a cluster key's items: its names, SQL, values and bounds.

The values are those of Iceberg's specification: whole hours, days, months or years since 1970 (UTC), and truncated
numbers and texts. NULL stays NULL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.key.types import (
    TYPES,
    Binary,
    ColumnType,
    Date,
    DecimalNumber,
    Integer,
    Text,
    Time,
    TimeWithoutZone,
    Uuid,
    column_type,
    filled,
    like,
    value_type,
)

_MAX_WIDTH = 2**30  # Iceberg doubles it, and its ints would wrap around
_MOST_SPANS = 2**33


class FunctionCall(NamedTuple):
    """A function of a column as users write it, without quotes, and in lower case except for the column."""

    function: str
    column: str
    others: Sequence[str]

    def __str__(self) -> str:  # for errors
        return f"cluster_by item {self.function}({self.column})"


@dataclass(frozen=True)
class Transform:
    """A monotonic transform of one column; the base class is the identity."""

    name: ClassVar[str] = "identity"  # Iceberg's, also of the method of its ``Expressions``
    written: ClassVar[Sequence[str]] = ("a column",)  # examples for errors
    takes: ClassVar[Sequence[type[ColumnType]]] = tuple(kind for kind in TYPES if kind is not Uuid)

    @classmethod
    def parse(cls, call: FunctionCall) -> Transform | None:
        """Return the transform of a call, or None if it is of another class."""
        return None

    @classmethod
    def from_iceberg(cls, text: str) -> Transform | None:
        """Return the transform with Iceberg's name ``text``, or None if it is of another class."""
        return cls() if text == cls.name else None

    @property
    def arguments(self) -> tuple[int, ...]:
        """The further arguments of Iceberg's ``Expressions``."""
        return astuple(self)

    @property
    def types(self) -> list[str]:
        """Spark's types that it takes."""
        return [name for kind in self.takes for name in kind.spark]

    def text(self, column: str) -> str:
        """Return the item as users write it, and as DDL if ``column`` is quoted."""
        return column

    def description(self, column: str) -> str:
        """Return the item as in the sort order of ``SHOW TBLPROPERTIES``."""
        return f"{self.text(column)} ASC NULLS FIRST"

    def sql(self, column: str, spark_type: str) -> str:
        """Return SQL of the value, in words that `sql.MACROS` gives DuckDB too."""
        return column

    def sql_type(self, spark_type: str) -> str:
        """Return Spark's type of :meth:`sql`."""
        return spark_type

    def values(self, values: pa.Array) -> pa.Array:
        """Return the transform of a column's values."""
        return values.cast(pa.int64()) if isinstance(value_type(values.type), Time) else values

    def as_bounds(self, results: pa.Array) -> pa.Array:
        """Convert Spark's results of :meth:`sql` to those of :meth:`values`."""
        return self.values(results)

    def start(self, value: pa.Scalar, *, of_date: bool) -> Any:
        """Return the least value of the column whose transform is ``value``, neither NULL nor NaN.

        Times are microseconds since 1970, or days ``of_date`` columns.
        """
        kind = value_type(value.type)
        return value.cast(kind.whole).as_py() if isinstance(kind, Date) else value.as_py()

    def printed(self, value: pa.Scalar, spark_type: str) -> str | None:
        """Return a value for people, or None to print it as a value of the column."""
        return None


class Span(Transform):
    """A unit of time, as the number of units since 1970."""

    takes: ClassVar[Sequence[type[ColumnType]]] = (Date, Time, TimeWithoutZone)
    units: ClassVar[Sequence[str]] = ()  # further names of the unit for ``date_trunc``
    from_date: ClassVar[str] = ""  # SQL of the number of a date ``{0}``, unless types have their own
    numpy_type: ClassVar[str] = "datetime64[D]"

    @classmethod
    def parse(cls, call: FunctionCall) -> Transform | None:
        if call.function in ("date_trunc", "trunc"):
            return cls() if len(call.others) == 1 and call.others[0] in (cls.name, *cls.units) else None
        if call.function == cls.name and not call.others:
            raise ClusterKeyError(f"{call} is cyclic and cannot order rows; write {cls.name}s({call.column})")
        return cls() if call.function == f"{cls.name}s" and not call.others else None

    def text(self, column: str) -> str:
        return f"{self.name}s({column})"

    def sql(self, column: str, spark_type: str) -> str:
        units = column_type(spark_type).units
        unit = units.get(self.name) or self.from_date.format(f"date_from_unix_date(cast({units['day']} as int))")
        return str(unit.format(column))

    def sql_type(self, spark_type: str) -> str:
        return "bigint"

    def values(self, values: pa.Array) -> pa.Array:
        kind = value_type(values.type)
        # Days, or microseconds since 1970, of which to NumPy the first is no time.
        numbers = filled(kind.numbers(values)).astype(np.int64)
        times = numbers.astype("datetime64[D]") if kind.in_days else (numbers // 10**6).astype("datetime64[s]")
        return like(times.astype(self.numpy_type).astype("int64"), values)

    def as_bounds(self, results: pa.Array) -> pa.Array:
        return results.cast(pa.int64())

    def start(self, value: pa.Scalar, *, of_date: bool) -> Any:
        unit, factor = ("D", 1) if of_date else ("s", 10**6)
        start = np.array(_number(value), self.numpy_type).astype(f"datetime64[{unit}]")
        return int(start.astype("int64")) * factor

    def printed(self, value: pa.Scalar, spark_type: str) -> str | None:
        text = str(np.array(_number(value), self.numpy_type))
        return f"+{text}" if len(text.partition("-")[0]) > len("9999") else text  # as Spark prints dates


class Hour(Span):
    name = "hour"
    written = ("hours(ts)", "date_trunc('hour', ts)")
    takes = (Time, TimeWithoutZone)
    numpy_type = "datetime64[h]"

    def printed(self, value: pa.Scalar, spark_type: str) -> str | None:
        return f"{super().printed(value, spark_type)}h".replace("T", " ")


class Day(Span):
    name = "day"
    written = ("days(ts)", "date_trunc('day', ts)", "to_date(ts)", "cast(ts as date)")
    units = ("dd",)

    @classmethod
    def parse(cls, call: FunctionCall) -> Transform | None:
        is_cast = (call.function, *call.others) in (("to_date",), ("date",), ("cast", "date"))
        return cls() if is_cast else super().parse(call)


class Week(Span):
    """Weeks, which raise an error: Iceberg has no such transform."""

    name = "week"
    written = ()
    takes = ()

    @classmethod
    def parse(cls, call: FunctionCall) -> Transform | None:
        if (call.function, *call.others) != ("week",) and super().parse(call) is None:
            return None
        raise ClusterKeyError(
            f"{call}: Iceberg has no transform to weeks; write days({call.column}), which keeps weeks together too and "
            "lets a query of one day skip more"
        )


class Month(Span):
    name = "month"
    written = ("months(ts)", "date_trunc('month', ts)")
    units = ("mon", "mm")
    from_date = "cast((year({0}) - 1970) * 12 + month({0}) - 1 as bigint)"
    numpy_type = "datetime64[M]"


class Year(Span):
    name = "year"
    written = ("years(ts)", "date_trunc('year', ts)")
    units = ("yyyy", "yy")
    from_date = "cast(year({0}) - 1970 as bigint)"
    numpy_type = "datetime64[Y]"

    @classmethod
    def parse(cls, call: FunctionCall) -> Transform | None:
        # Unlike an hour, a year does not start over.
        return cls() if call.function == "year" and not call.others else super().parse(call)


@dataclass(frozen=True)
class Truncate(Transform):
    """The start of a text or of bytes, or a number rounded down to a multiple of the width, in its last digit."""

    name = "truncate"
    written = ("truncate(n, c)", "substr(c, 1, n)", "left(c, n)")
    takes = (Integer, DecimalNumber, Text, Binary)
    width: int

    @classmethod
    def parse(cls, call: FunctionCall) -> Transform | None:
        *start, width = call.others or ("",)
        is_substring = call.function in ("substr", "substring") and start in (["0"], ["1"])
        is_truncate = call.function in ("truncate", "left") and not start
        if not (is_substring or is_truncate) or not re.fullmatch(r"[0-9]+", width):
            return None
        if int(width) > _MAX_WIDTH:
            raise ClusterKeyError(f"{call}: the width must be at most {_MAX_WIDTH}")
        return cls(int(width)) if int(width) > 0 else None

    @classmethod
    def from_iceberg(cls, text: str) -> Transform | None:
        match = re.fullmatch(r"truncate\[(\d+)\]", text)
        return cls(int(match[1])) if match and int(match[1]) <= _MAX_WIDTH else None

    def text(self, column: str) -> str:
        return f"truncate({self.width}, {column})"

    def description(self, column: str) -> str:
        return f"truncate({column}, {self.width}) ASC NULLS FIRST"

    def sql(self, column: str, spark_type: str) -> str:
        return column_type(spark_type).truncated_sql(column, self.width)

    def values(self, values: pa.Array) -> pa.Array:
        return value_type(values.type).truncated(values, self.width)

    def as_bounds(self, results: pa.Array) -> pa.Array:
        # Spark has truncated them; Arrow cannot truncate text that is not UTF-8.
        return results if value_type(results.type).width_of else self.values(results)

    def printed(self, value: pa.Scalar, spark_type: str) -> str | None:
        kind = column_type(spark_type)
        # Truncated decimals are unscaled.
        return str(kind.scaled(value.as_py())) if isinstance(kind, DecimalNumber) else None


# In the order of error messages.
TRANSFORMS: tuple[type[Transform], ...] = (Transform, *Span.__subclasses__(), Truncate)


def transform_of_iceberg(text: str) -> Transform | None:
    """Return the transform with Iceberg's name ``text``, or None if no cluster key has it."""
    return next(filter(None, (kind.from_iceberg(text) for kind in TRANSFORMS)), None)


def _number(value: pa.Scalar) -> int:
    """Return a number of units, a date or an int, limited to those that NumPy can count in seconds."""
    number = int(Transform().start(value, of_date=True))
    return min(max(number, -_MOST_SPANS), _MOST_SPANS)
