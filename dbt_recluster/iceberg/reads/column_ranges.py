"""The ranges that predicates restrict columns to, and the ranges of a cluster key that hold them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.columns import quote_path, sql_literal
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.reads.predicates import Predicate
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.value_types import ValueType, as_json

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

T = TypeVar("T")

# Of one predicate. A longer list of values, or more alternatives, say little about where reads end.
MOST_RANGES = 200

# Beyond all text that starts alike.
LAST_CHARACTER = "\U0010ffff"

# The range of one column, closed on both sides; None is an open side.
Interval = tuple[Any, Any]
# The range of each column that a predicate restricts, all of which hold at once. A predicate may have several such
# alternatives, of which a row is in at least one.
ColumnRanges = Mapping[str, Interval]


def predicate_ranges(
    table: IcebergTable, kinds: Mapping[str, ValueType], predicate: Predicate
) -> list[ColumnRanges]:
    """Return the ranges of each alternative of a predicate; none if it restricts no column to a range.

    Args:
        table: The table.
        kinds: The types of its columns (:func:`dbt_recluster.iceberg.value_types.value_types`).
        predicate: The predicate of a query.

    Raises:
        PredicateError: It names columns that the table no longer has.
    """
    expression = expression_json(table, predicate)
    if table.case_sensitive:
        return expression_ranges(expression, kinds)
    # Iceberg keeps a column as the predicate spells it.
    spelled = {column.lower(): column for column in kinds}
    lower_kinds = {column.lower(): kind for column, kind in kinds.items()}
    alternatives = expression_ranges(expression, lower_kinds, str.lower)
    return [{spelled[column]: interval for column, interval in ranges.items()} for ranges in alternatives]


def expression_ranges(
    expression: Any, kinds: Mapping[str, ValueType], spell: Callable[[str], str] = str
) -> list[ColumnRanges]:
    """Return the ranges of each alternative of an expression in Iceberg's JSON; see `predicate_ranges`.

    Args:
        expression: The JSON.
        kinds: The types of columns.
        spell: Returns the name of a column in ``kinds``.
    """
    return fold(expression, lambda predicate: _alternatives(predicate, kinds, spell), _both) or []


def fold(expression: Any, value_of: Callable[[Any], T], both: Callable[[str, T, T], T]) -> T:
    """Return the value of an expression in Iceberg's JSON.

    Hundreds of alternatives nest one in the other, deeper than Python calls functions.

    Args:
        expression: The JSON.
        value_of: Returns the value of a predicate, or of true or false.
        both: Returns the value of two expressions with the word ``and`` or ``or`` between them.
    """
    waiting: list[Any] = [expression]
    done: list[T] = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            right, left = done.pop(), done.pop()
            done.append(both(node, left, right))
        elif isinstance(node, Mapping) and node["type"] in ("and", "or"):
            waiting += [node["type"], node["right"], node["left"]]
        else:
            done.append(value_of(node))
    return done.pop()


def expression_json(table: IcebergTable, predicate: Predicate) -> Any:
    """Return the predicate as Iceberg's JSON, with values of the columns' types and without NOT.

    Raises:
        PredicateError: It names columns that the table no longer has.
    """
    expressions = table.iceberg.expressions
    without_not = expressions.Expressions.rewriteNot(predicate.expression)
    try:
        bound = expressions.Binder.bind(table.java.schema().asStruct(), without_not, table.case_sensitive)
        text = str(expressions.ExpressionParser.toJson(bound))
    except Exception as e:
        raise PredicateError(f"{predicate.text!r:.60} is not about {table.name}: {short_message(e)}") from e
    try:
        return json.loads(text)
    except RecursionError:
        return True  # too many alternatives to end anywhere


def _both(
    word: str, left: list[ColumnRanges] | None, right: list[ColumnRanges] | None
) -> list[ColumnRanges] | None:
    """Return the alternatives of two expressions joined by ``and`` or ``or``; None stands for anything."""
    if word == "or":
        both = None if left is None or right is None else [*left, *right]
    elif left is None or right is None:
        both = right if left is None else left
    else:
        both = [
            ranges for one in left for other in right if (ranges := _intersection(one, other)) is not None
        ]
    return both if both is None or len(both) <= MOST_RANGES else None


def _alternatives(
    expression: Any, kinds: Mapping[str, ValueType], spell: Callable[[str], str]
) -> list[ColumnRanges] | None:
    """Return the alternatives of a comparison; None stands for anything."""
    if isinstance(expression, bool):
        return None if expression else []
    kind = expression["type"]
    term = expression.get("term")
    column = spell(term) if isinstance(term, str) else None
    if column is None or column not in kinds:
        return None
    try:
        intervals = list(_intervals(kind, expression, kinds[column]))
        for interval in intervals:
            for end in interval:
                kinds[column].check(end)
    except (ValueError, OverflowError, ArithmeticError):  # a date beyond Python's
        return None
    return [{column: interval} for interval in intervals] if 0 < len(intervals) <= MOST_RANGES else None


def _intervals(kind: str, expression: Mapping[str, Any], of: ValueType) -> Iterator[Interval]:
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
        yield value, value + LAST_CHARACTER


def _intersection(one: ColumnRanges, other: ColumnRanges) -> ColumnRanges | None:
    """Return the ranges in which both hold, or None if no row is in both."""
    ranges = dict(one)
    for column, (lower, upper) in other.items():
        low, high = ranges.get(column, (None, None))
        low = lower if low is None else low if lower is None else max(low, lower)
        high = upper if high is None else high if upper is None else min(high, upper)
        if low is not None and high is not None and low > high:
            return None
        ranges[column] = (low, high)
    return ranges


def ranges_as_json(ranges: ColumnRanges) -> dict[str, list[Any]]:
    """Return ranges as JSON can hold them; :func:`ranges_of_json` reads it."""
    return {column: [as_json(end) for end in interval] for column, interval in ranges.items()}


def ranges_of_json(kinds: Mapping[str, ValueType], value: Mapping[str, Any]) -> ColumnRanges:
    """Return the ranges that JSON holds, as far as the table has their columns.

    A column that was dropped, or got another type, restricts nothing.
    """
    ranges = {}
    for column, interval in value.items():
        if column not in kinds:
            continue
        try:
            lower, upper = map(kinds[column].read_again, interval)
        except (ValueError, TypeError, ArithmeticError):
            continue
        is_open = lower is None and upper is None
        if not is_open and (lower is None or upper is None or lower <= upper):
            ranges[column] = (lower, upper)
    return ranges


def ranges_predicate(types: Mapping[str, str], ranges: ColumnRanges) -> str:
    """Return the SQL predicate that holds for the rows in ranges.

    Args:
        types: Spark's type of each column.
        ranges: The ranges, of which one at least has an end.
    """
    terms = []
    for column, (lower, upper) in ranges.items():
        if lower is not None and lower == upper:
            terms.append(f"{quote_path(column)} = {sql_literal(lower, types[column])}")
            continue
        for sign, end in ((">=", lower), ("<=", upper)):
            if end is not None:
                terms.append(f"{quote_path(column)} {sign} {sql_literal(end, types[column])}")
    return " and ".join(terms)


def key_ranges(
    kinds: Mapping[str, ValueType], key: ClusterKey, alternatives: Iterable[ColumnRanges]
) -> list[tuple[list[Any], list[Any]]]:
    """Return the range of the key that holds the rows of each alternative that restricts the key's first item.

    Args:
        kinds: The types of the table's columns.
        key: Its key, without a curve.
        alternatives: The ranges of columns.

    Returns:
        The values of the key's items at the lower and at the upper end, as `bounds.key_bounds` has them; None where an
        end is open.
    """
    of_key = (_key_range(key, ranges, kinds) for ranges in alternatives)
    return [(lower, upper) for lower, upper in of_key if lower[0] is not None or upper[0] is not None]


def key_boxes(
    kinds: Mapping[str, ValueType], key: ClusterKey, alternatives: Iterable[ColumnRanges]
) -> list[tuple[list[Any], list[Any]]]:
    """Return the range of each item of the key by itself, for each alternative that restricts one of them.

    Arguments and results are those of :func:`key_ranges`, for any key.
    """
    boxes = []
    for ranges in alternatives:
        ends = [
            [_key_item(field, value, kinds[field.column]) for value in ranges[field.column]]
            if field.column in ranges
            else [None, None]
            for field in key.fields
        ]
        if any(end is not None for interval in ends for end in interval):
            boxes.append(([lower for lower, _ in ends], [upper for _, upper in ends]))
    return boxes


def _key_range(
    key: ClusterKey, ranges: ColumnRanges, kinds: Mapping[str, ValueType]
) -> tuple[list[Any], list[Any]]:
    """Return the ends of the least range of the key that holds the rows in some ranges of columns.

    An item bounds the keys only as long as all items before it have a single value.
    """
    lower: list[Any] = [None] * len(key.fields)
    upper: list[Any] = [None] * len(key.fields)
    for place, field in enumerate(key.fields):
        if field.column not in ranges:
            break
        lower[place], upper[place] = (
            _key_item(field, value, kinds[field.column]) for value in ranges[field.column]
        )
        if lower[place] is None or lower[place] != upper[place]:
            break
    return lower, upper


def _key_item(field: KeyField, value: Any, of: ValueType) -> Any:
    """Return a key item of a column's value, as the bounds of blocks have it."""
    return None if value is None else field.transform.values(pa.array([value], of.arrow))[0].as_py()
