"""Whether blocks may hold a row of an expression, by their bounds: for blocks that do not exist yet.

Iceberg's ``InclusiveMetricsEvaluator`` decides it for files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbt_recluster.iceberg.metadata.block_metadata import BoolArray, IntArray
from dbt_recluster.iceberg.reads.column_ranges import LAST_CHARACTER, fold

# Iceberg opens every block for a longer list.
MOST_VALUES = 200

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
