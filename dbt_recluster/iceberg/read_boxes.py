"""Boxes: the ranges of columns that a predicate restricts rows to, which lie in one of its boxes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from dbt_recluster.columns import base_type, quote_path
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.java_errors import short_message
from dbt_recluster.iceberg.predicates import Predicate
from dbt_recluster.iceberg.value_types import ValueType, as_json

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

T = TypeVar("T")

# Of one predicate. A longer list of values, or alternatives that multiply to more, say little about where reads end.
MOST_BOXES = 200

# Beyond all text that starts alike.
LAST_CHARACTER = "\U0010ffff"

# The range of one column, closed on both sides; None is an open side.
Interval = tuple[Any, Any]
# The range of each column that a predicate restricts. All of them hold at once.
Box = Mapping[str, Interval]


def predicate_boxes(table: IcebergTable, kinds: Mapping[str, ValueType], predicate: Predicate) -> list[Box]:
    """Return the boxes of a predicate; none if it restricts no column to a range.

    Args:
        table: The table.
        kinds: The types of its columns (:func:`dbt_recluster.iceberg.value_types.value_types`).
        predicate: The predicate of a query.

    Raises:
        PredicateError: It names columns that the table no longer has.
    """
    expression = expression_json(table, predicate)
    if table.case_sensitive:
        return expression_boxes(expression, kinds)
    # Iceberg keeps a column as the predicate spells it.
    spelled = {column.lower(): column for column in kinds}
    boxes = expression_boxes(expression, {column.lower(): kind for column, kind in kinds.items()}, str.lower)
    return [{spelled[column]: interval for column, interval in box.items()} for box in boxes]


def expression_boxes(
    expression: Any, kinds: Mapping[str, ValueType], spell: Callable[[str], str] = str
) -> list[Box]:
    """Return the boxes of an expression in Iceberg's JSON; see `predicate_boxes`.

    Args:
        expression: The JSON.
        kinds: The types of columns.
        spell: Returns the name of a column in ``kinds``.
    """
    return fold(expression, lambda predicate: _boxes(predicate, kinds, spell), _both) or []


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
        return True  # so many alternatives are no range


def _both(word: str, left: list[Box] | None, right: list[Box] | None) -> list[Box] | None:
    """Join what two expressions admit by ``and`` or ``or``."""
    if word == "or":
        both = None if left is None or right is None else [*left, *right]
    elif left is None or right is None:
        both = right if left is None else left
    else:
        both = [box for one in left for other in right if (box := _intersection(one, other)) is not None]
    return both if both is None or len(both) <= MOST_BOXES else None


def _boxes(expression: Any, kinds: Mapping[str, ValueType], spell: Callable[[str], str]) -> list[Box] | None:
    """Return the boxes of a predicate, of which a row must be in one; None stands for anything."""
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
    return [{column: interval} for interval in intervals] if 0 < len(intervals) <= MOST_BOXES else None


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


def _intersection(one: Box, other: Box) -> Box | None:
    """Return the intersection of two boxes, or None if it is empty."""
    box = dict(one)
    for column, (lower, upper) in other.items():
        low, high = box.get(column, (None, None))
        low = lower if low is None else low if lower is None else max(low, lower)
        high = upper if high is None else high if upper is None else min(high, upper)
        if low is not None and high is not None and low > high:
            return None
        box[column] = (low, high)
    return box


def box_as_json(box: Box) -> dict[str, list[Any]]:
    """Return a box as JSON can hold it; :func:`box_of_json` reads it."""
    return {column: [as_json(end) for end in interval] for column, interval in box.items()}


def box_predicate(types: Mapping[str, str], box: Box) -> str:
    """Return the SQL predicate that holds for the rows of a box.

    Args:
        types: Spark's type of each column.
        box: The ranges, of which one at least has an end.
    """
    terms = []
    for column, (lower, upper) in box.items():
        if lower is not None and lower == upper:
            terms.append(f"{quote_path(column)} = {_literal(lower, types[column])}")
            continue
        for sign, end in ((">=", lower), ("<=", upper)):
            if end is not None:
                terms.append(f"{quote_path(column)} {sign} {_literal(end, types[column])}")
    return " and ".join(terms)


def _literal(value: Any, spark_type: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        is_local = base_type(spark_type) == "timestamp_ntz"
        return f"timestamp_ntz'{value}'" if is_local else f"timestamp'{value}Z'"
    if isinstance(value, date):
        return f"date'{value}'"
    return f"cast('{value}' as {spark_type})"


def box_of_json(kinds: Mapping[str, ValueType], value: Mapping[str, Any]) -> Box | None:
    """Return the box that JSON holds, as far as the table has its columns, or None if it is no box.

    A column that was dropped, or got another type, restricts nothing.
    """
    box = {}
    for column, interval in value.items():
        if column not in kinds:
            continue
        try:
            lower, upper = map(kinds[column].read_again, interval)
            if lower is not None and upper is not None and lower > upper:
                continue
        except (ValueError, TypeError, ArithmeticError):
            continue
        box[column] = (lower, upper)
    return box or None
