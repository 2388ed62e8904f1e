"""Values of columns as Iceberg writes them in JSON."""

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
    """The type of a column that has ranges: its Arrow type, and what reads a value from Iceberg's JSON.

    Attributes:
        step: The distance from a value to the next, or None if there is none.
    """

    arrow: pa.DataType
    read: Callable[[Any], Any]
    step: Any = None

    def check(self, value: Any) -> None:
        """Raise a ValueError or an ArithmeticError if no column of this type holds the value, or it is not finite."""
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        pa.scalar(value, self.arrow)

    def read_again(self, value: Any) -> Any:
        """Read a value that `as_json` wrote for a column of this type; one of anything else raises."""
        if value is None:
            return None
        result = self.read(value)
        if as_json(result) != value or isinstance(result, bool) != isinstance(value, bool):
            raise ValueError
        self.check(result)
        return result


def as_json(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def value_types(types: Mapping[str, str]) -> dict[str, ValueType]:
    """Return the types of columns, given Spark's type of each, without those that have no ranges."""
    kinds = {path: value_type(kind) for path, kind in types.items()}
    return {path: kind for path, kind in kinds.items() if kind is not None}


def value_type(kind: str) -> ValueType | None:
    """Return the type that Spark calls ``kind``, or None if it has no ranges."""
    base = base_type(kind)
    if base == "decimal":
        return ValueType(pa.decimal128(38, decimal_scale(kind)), Decimal)
    return _TYPES.get(base)


def _time(text: str) -> datetime:
    """Read a time; one with a zone is in UTC, as Iceberg writes it."""
    # Python 3.10 wants three or six digits after the point.
    text = re.sub(r"\.(\d+)", lambda digits: f".{digits[1]:0<6.6}", text)
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=None)


_TIME = ValueType(pa.timestamp("us"), _time, timedelta(microseconds=1))
_TYPES = {
    **dict.fromkeys(INTEGERS, ValueType(pa.int64(), int, 1)),
    **dict.fromkeys((*TEXTS, "uuid"), ValueType(pa.string(), str)),
    **dict.fromkeys(TIMES, _TIME),
    "float": ValueType(pa.float32(), float),
    "double": ValueType(pa.float64(), float),
    "date": ValueType(pa.date32(), date.fromisoformat, timedelta(days=1)),
    "boolean": ValueType(pa.bool_(), bool),
    "binary": ValueType(pa.binary(), bytes.fromhex),
}
