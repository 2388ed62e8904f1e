"""What expressions of Iceberg ask for: the ranges that they restrict columns and keys to, and the blocks to open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.columns import quote_path, sql_literal
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.metadata.block_metadata import BoolArray, IntArray
from dbt_recluster.iceberg.reads.predicates import Predicate, scan_predicates
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.value_types import ValueType, as_json

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

T = TypeVar("T")

# Of one predicate. A longer list of values, or more alternatives, say little about where reads end.
MOST_RANGES = 200

# Iceberg opens every block for a longer list.
MOST_VALUES = 200

# Beyond all text that starts alike.
LAST_CHARACTER = "\U0010ffff"

# The range of one column, closed on both sides; None is an open side.
Interval = tuple[Any, Any]
# The range of each column that a predicate restricts, all of which hold at once. A predicate may have several such
# alternatives, of which a row is in at least one; a single empty one restricts nothing.
ColumnRanges = Mapping[str, Interval]
# The values of a key's items at the lower and at the upper end, as bounds have them; None where an end is open.
KeyRange = tuple[list[Any], list[Any]]
# Returns the rank of a value in a column, or None for one that no column of its type holds.
Rank = Callable[[str, Any], int | None]


@dataclass(frozen=True, eq=False)
class ColumnBounds:
    """What n blocks record of a column. Bounds are ranks, int64 (n,), and the others masks, bool (n,).

    Attributes:
        lower, upper: The bounds, of any value for a block without values.
        valued: Blocks with a value that is neither NULL nor NaN.
        nulls: Blocks with a NULL.
        nans: Blocks with a NaN.
    """

    lower: IntArray
    upper: IntArray
    valued: BoolArray
    nulls: BoolArray
    nans: BoolArray


def predicate_ranges(
    table: IcebergTable, kinds: Mapping[str, ValueType], predicate: Predicate
) -> list[ColumnRanges]:
    """Return the ranges of each alternative of a predicate; none if it restricts no column to a range.

    Columns that the table no longer has are a PredicateError.
    """
    fold_case = str if table.case_sensitive else str.lower
    # Iceberg keeps a column as the predicate spells it.
    columns = {fold_case(column): column for column in kinds}
    return expression_ranges(
        expression_json(table, predicate), kinds, lambda term: columns.get(fold_case(term), term)
    )


def query_ranges(
    table: IcebergTable, kinds: Mapping[str, ValueType], query: str
) -> tuple[int, list[ColumnRanges]]:
    """Return how many scans of a table a query makes, and the ranges that each alternative of their filters reads."""
    scans = scan_predicates(table, query)
    return len(scans), [ranges for scan in scans for ranges in predicate_ranges(table, kinds, scan)]


def expression_ranges(
    expression: Any, kinds: Mapping[str, ValueType], spelled: Callable[[str], str] = str
) -> list[ColumnRanges]:
    """Return the ranges of each alternative of an expression in Iceberg's JSON; see :func:`predicate_ranges`.

    ``spelled`` returns the name that a column of the expression has in ``kinds``.
    """
    alternatives = fold(expression, lambda node: _alternatives(node, kinds, spelled), _both)
    return [ranges for ranges in alternatives if ranges]


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
    """Return the predicate as Iceberg's JSON, with values of the columns' types and without NOT."""
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


def _both(word: str, left: list[ColumnRanges], right: list[ColumnRanges]) -> list[ColumnRanges]:
    """Return the alternatives of two expressions joined by ``and`` or ``or``."""
    if word == "or":
        both = [*left, *right]
    else:
        both = [
            ranges for one in left for other in right if (ranges := _intersection(one, other)) is not None
        ]
    return both if len(both) <= MOST_RANGES and {} not in both else [{}]


def _alternatives(
    node: Any, kinds: Mapping[str, ValueType], spelled: Callable[[str], str]
) -> list[ColumnRanges]:
    """Return the alternatives of a comparison, or of true or false."""
    if isinstance(node, bool):
        return [{}] if node else []
    term = node.get("term")
    column = spelled(term) if isinstance(term, str) else ""
    kind = kinds.get(column)
    if kind is None:
        return [{}]
    try:
        intervals = _intervals(node, kind)
        for end in chain.from_iterable(intervals):
            kind.check(end)
    except (ValueError, OverflowError, ArithmeticError):  # a date beyond Python's
        return [{}]
    return [{column: interval} for interval in intervals] if 0 < len(intervals) <= MOST_RANGES else [{}]


def _intervals(node: Mapping[str, Any], kind: ValueType) -> list[Interval]:
    """Return the intervals that a comparison admits; none for one that is no range."""
    comparison, step = node["type"], kind.step
    if comparison == "in":
        return [(value, value) for value in sorted(map(kind.read, node["values"]))]
    if "value" not in node:
        return []
    value = kind.read(node["value"])
    if comparison == "eq":
        return [(value, value)]
    if comparison in ("gt", "gt-eq"):
        return [(value if comparison == "gt-eq" or step is None else value + step, None)]
    if comparison in ("lt", "lt-eq"):
        return [(None, value if comparison == "lt-eq" or step is None else value - step)]
    return [(value, value + LAST_CHARACTER)] if comparison == "starts-with" else []


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


def may_match(expression: Any, columns: Mapping[str, ColumnBounds], rank: Rank, blocks: int) -> BoolArray:
    """Return which blocks a scan has to open: bool (n,).

    Args:
        expression: In Iceberg's JSON, without NOT.
        columns: The bounds of each column, by the name that the expression gives it. What it says of other columns
            excludes no block.
        rank: Ranks values as the bounds are ranked.
        blocks: The number n of blocks.
    """

    def of_predicate(node: Any) -> BoolArray:
        if isinstance(node, bool):
            return np.full(blocks, node)
        term = node.get("term")
        bounds = columns.get(term) if isinstance(term, str) else None
        if bounds is None:
            return np.ones(blocks, np.bool_)
        return _may_hold(node, bounds, lambda value: rank(term, value))

    return fold(
        expression, of_predicate, lambda word, one, other: one & other if word == "and" else one | other
    )


def literals(expression: Any) -> list[tuple[str, list[Any]]]:
    """Return the columns that an expression names, each time with the values that it is compared with."""

    def of_predicate(node: Any) -> list[tuple[str, list[Any]]]:
        term = None if isinstance(node, bool) else node.get("term")
        return [(term, _values(node))] if isinstance(term, str) else []

    return fold(expression, of_predicate, lambda _, one, other: [*one, *other])


def _values(node: Mapping[str, Any]) -> list[Any]:
    """Return the values that a predicate compares with; of a prefix, the ends of what begins with it."""
    if node["type"] in ("in", "not-in"):
        return list(node["values"])
    values = [node["value"]] if "value" in node else []
    if node["type"] in ("starts-with", "not-starts-with"):
        values.append(f"{values[0]}{LAST_CHARACTER}")
    return values


def _may_hold(node: Mapping[str, Any], of: ColumnBounds, rank: Callable[[Any], int | None]) -> BoolArray:
    kind = node["type"]
    by_kind_of_value = {
        "is-null": of.nulls,
        "not-null": of.valued | of.nans,
        "is-nan": of.nans,
        "not-nan": of.valued | of.nulls,
    }
    if kind in by_kind_of_value:
        return by_kind_of_value[kind]
    ranks = [rank(value) for value in _values(node)]
    if not 0 < len(ranks) <= MOST_VALUES or None in ranks or kind in ("not-eq", "not-in"):
        return np.ones(len(of.lower), np.bool_)
    return _compared(kind, of, np.sort(np.array(ranks, np.int64)))


def _compared(kind: str, of: ColumnBounds, ranks: IntArray) -> BoolArray:
    """Return the blocks of which a value may compare like this with one of some sorted ranks."""
    first, last = ranks[0], ranks[-1]
    if kind == "not-starts-with":
        unlike: BoolArray = of.nulls | ~of.valued | (of.lower < first) | (of.upper > last)
        return unlike
    if kind in ("eq", "in"):
        among = np.searchsorted(ranks, of.lower) < np.searchsorted(ranks, of.upper, side="right")
    elif kind == "starts-with":
        among = (of.lower <= last) & (of.upper >= first)
    elif kind in ("lt", "lt-eq"):
        among = of.lower < last if kind == "lt" else of.lower <= last
    else:
        among = of.upper > first if kind == "gt" else of.upper >= first
    result: BoolArray = of.valued & among
    return result


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
    """Return the SQL predicate that holds for the rows in ranges, of which one at least has an end."""
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
) -> list[KeyRange]:
    """Return the least range of the key that holds the rows of each alternative that restricts the key's first item.

    The key has no curve. An item bounds the keys only as long as all items before it have a single value.
    """
    ranges = []
    for lower, upper in key_boxes(kinds, key, alternatives):
        are_single = [low is not None and low == high for low, high in zip(lower, upper, strict=True)]
        bounding = [*are_single, False].index(False) + 1
        if lower[0] is not None or upper[0] is not None:
            beyond = [None] * (len(lower) - bounding)
            ranges.append(([*lower[:bounding], *beyond], [*upper[:bounding], *beyond]))
    return ranges


def key_boxes(
    kinds: Mapping[str, ValueType], key: ClusterKey, alternatives: Iterable[ColumnRanges]
) -> list[KeyRange]:
    """Return the range of each item of any key by itself, for each alternative that restricts one of them."""
    boxes = []
    for ranges in alternatives:
        intervals = [
            [_key_item(field, end, kinds) for end in ranges.get(field.column, (None, None))]
            for field in key.fields
        ]
        if any(end is not None for interval in intervals for end in interval):
            boxes.append(([lower for lower, _ in intervals], [upper for _, upper in intervals]))
    return boxes


def _key_item(field: KeyField, value: Any, kinds: Mapping[str, ValueType]) -> Any:
    """Return a key item of a column's value, as the bounds of blocks have it."""
    if value is None:
        return None
    return field.transform.values(pa.array([value], kinds[field.column].arrow))[0].as_py()
