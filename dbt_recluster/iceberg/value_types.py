"""The types of columns with ranges, whose values Iceberg writes as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dbt_recluster.key.columns import base_type, decimal_scale
from dbt_recluster.key.transforms import INTEGERS, TEXTS, TIMES


@dataclass(frozen=True)
class ValueType:
    """The type of a column with ranges.

    Attributes:
        arrow: Its Arrow type.
        read: Reads a value from Iceberg's JSON.
        step: The distance from a value to the next one, or None.
    """

    arrow: pa.DataType
    read: Callable[[Any], Any]
    step: Any = None

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
