"""The ranges of a cluster key that a predicate asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.columns import base_type, decimal_scale
from dbt_recluster.iceberg.bounds import transform_values
from dbt_recluster.iceberg.predicates import Predicate

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

# Of one predicate. A list of more values, or alternatives that multiply to more, say little of where reads end.
MOST_RANGES = 200

# Beyond all text that starts alike.
_LAST_CHARACTER = "\U0010ffff"
_MICROSECOND = timedelta(microseconds=1)

# What a predicate asks of one column, closed on both sides; None is an open side.
Interval = tuple[Any, Any]
# What it asks of each column that it names. All of them hold at once.
Box = Mapping[str, Interval]


@dataclass(frozen=True)
class _Type:
    """How values of a column are read from Iceberg's JSON.

    Attributes:
        arrow: Their Arrow type.
        read: Reads one.
        step: From a value to the next, or None if there is no such.
    """

    arrow: pa.DataType
    read: Callable[[Any], Any]
    step: Any = None


def key_ranges(
    table: IcebergTable, types: Mapping[str, str], key: ClusterKey, predicate: Predicate
) -> list[tuple[list[Any], list[Any]]]:
    """Return the ranges of the key that a predicate asks for.

    Args:
        table: The table.
        types: Spark's type of each of its columns (`Columns.types`).
        key: Its key.
        predicate: What a query reads.

    Returns:
        For each range the values of the key's items at its lower and at its upper end, as `bounds.key_bounds` has them;
        None where an end is open. It is empty if the predicate says nothing of the key's first item.
    """
    kinds = {path: kind for path, kind in types.items() if _type_of(kind) is not None}
    boxes = _boxes(_as_json(table, predicate), kinds)
    ranges = (_range(key, box, kinds) for box in boxes or ())
    return [(lower, upper) for lower, upper in ranges if lower[0] is not None or upper[0] is not None]


def _as_json(table: IcebergTable, predicate: Predicate) -> Any:
    """Return the predicate as Iceberg's JSON, with values of the columns' types and without NOT."""
    expressions = table.iceberg.expressions
    without_not = expressions.Expressions.rewriteNot(predicate.expression)
    bound = expressions.Binder.bind(table.java.schema().asStruct(), without_not, table.case_sensitive)
    return json.loads(str(expressions.ExpressionParser.toJson(bound)))


def _boxes(expression: Any, kinds: Mapping[str, str]) -> list[Box] | None:
    """Return the boxes of which a row must be in one; None stands for anything."""
    if isinstance(expression, bool):
        return None if expression else []
    kind = expression["type"]
    if kind in ("and", "or"):
        left, right = (_boxes(expression[side], kinds) for side in ("left", "right"))
        if kind == "or":
            both = None if left is None or right is None else [*left, *right]
        elif left is None or right is None:
            both = right if left is None else left
        else:
            both = [box for one in left for other in right if (box := _intersection(one, other)) is not None]
        return both if both is None or len(both) <= MOST_RANGES else None
    column = expression.get("term")
    if not isinstance(column, str) or column not in kinds:
        return None
    try:
        intervals = list(_intervals(kind, expression, _known_type(kinds[column])))
    except (ValueError, OverflowError, ArithmeticError):  # a date beyond Python's
        return None
    return [{column: interval} for interval in intervals] if 0 < len(intervals) <= MOST_RANGES else None


def _intervals(kind: str, expression: Mapping[str, Any], of: _Type) -> Iterator[Interval]:
    """Yield the intervals that a comparison admits; none for one that is no range."""
    if kind == "in":
        yield from ((value, value) for value in sorted(map(of.read, expression["values"])))
    if "value" not in expression:
        return
    value = of.read(expression["value"])
    if kind == "eq":
        yield value, value
    elif kind in ("gt", "gt-eq"):
        yield (value if kind == "gt-eq" or of.step is None else value + of.step), None
    elif kind in ("lt", "lt-eq"):
        yield None, (value if kind == "lt-eq" or of.step is None else value - of.step)
    elif kind == "starts-with":
        yield value, value + _LAST_CHARACTER


def _intersection(one: Box, other: Box) -> Box | None:
    """Return the box of what is in both, or None if nothing is."""
    box = dict(one)
    for column, (lower, upper) in other.items():
        low, high = box.get(column, (None, None))
        low = lower if low is None else low if lower is None else max(low, lower)
        high = upper if high is None else high if upper is None else min(high, upper)
        if low is not None and high is not None and low > high:
            return None
        box[column] = (low, high)
    return box


def _range(key: ClusterKey, box: Box, kinds: Mapping[str, str]) -> tuple[list[Any], list[Any]]:
    """Return the ends of the least range of the key that holds a box.

    An item bounds the keys only as long as all items before it have a single value.
    """
    lower: list[Any] = [None] * len(key.fields)
    upper: list[Any] = [None] * len(key.fields)
    for place, field in enumerate(key.fields):
        if field.column not in box:
            break
        lower[place], upper[place] = (
            _item(field, value, _known_type(kinds[field.column])) for value in box[field.column]
        )
        if lower[place] is None or lower[place] != upper[place]:
            break
    return lower, upper


def _item(field: KeyField, value: Any, of: _Type) -> Any:
    """Return a key item of a column's value, as the bounds of blocks have it."""
    return None if value is None else transform_values(pa.array([value], of.arrow), field)[0].as_py()


def _known_type(kind: str) -> _Type:
    found = _type_of(kind)
    assert found is not None
    return found


def _type_of(kind: str) -> _Type | None:
    """Return how to read values of a Spark type, or None if they have no ranges."""
    base = base_type(kind)
    if base in ("tinyint", "smallint", "int", "integer", "bigint", "long"):
        return _Type(pa.int64(), int, 1)
    if base in ("float", "double"):
        return _Type(pa.float64(), float)
    if base == "decimal":
        return _Type(pa.decimal128(38, decimal_scale(kind)), Decimal)
    if base == "date":
        return _Type(pa.date32(), date.fromisoformat, timedelta(days=1))
    if base in ("timestamp", "timestamp_ntz"):
        return _Type(pa.timestamp("us"), _time, _MICROSECOND)
    if base in ("string", "varchar", "char", "uuid"):
        return _Type(pa.string(), str)
    if base == "boolean":
        return _Type(pa.bool_(), bool)
    if base == "binary":
        return _Type(pa.binary(), bytes.fromhex)
    return None


def _time(text: str) -> datetime:
    """Read a time; one with a zone is in UTC, as Iceberg writes it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=None)
