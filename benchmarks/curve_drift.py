"""When a curve of benchmarks/curves.py has drifted from its rows, as seen from the boxes of blocks alone."""

from __future__ import annotations

import numpy as np
from curve_layout import BITS, Curve, FloatArray, IntArray, Table

# A block stands for at most this many values of each column.
_VALUES = 16


def rows_by_boxes(table: Table, curve: Curve) -> tuple[list[IntArray], list[FloatArray]]:
    """Values of each column, and how many rows each stands for, as if rows lay evenly over the parts of their box.

    A block stands for its bounds and for boundaries between them.
    """
    columns, weights = [], []
    for ends, low, high in zip(curve.boundaries, table.lower.T, table.upper.T, strict=True):
        first, last = np.searchsorted(ends, low, side="right"), np.searchsorted(ends, high, side="right")
        between = np.minimum(last - first, _VALUES - 2)
        block = np.repeat(np.arange(len(first)), between)
        number = np.arange(len(block)) - np.repeat(np.cumsum(between) - between, between)
        inner = ends[first[block] + (2 * number + 1) * (last - first)[block] // (2 * between[block])]
        weight = table.sizes / (between + 2)
        columns.append(np.concatenate([low, high, inner]))
        weights.append(np.concatenate([weight, weight, weight[block]]))
    return columns, weights


def unevenness(columns: list[IntArray], weights: list[FloatArray], curve: Curve, blocks: int) -> FloatArray:
    """How unevenly rows lie over the parts of each column: float64 (columns,), 1 where shares are equal.

    A point of a column with shares p of its P parts opens P**(1 - 1/d) * sum(p**(2 - 1/d)) times the blocks that it
    would open at equal shares, if the other columns have equal shares. Parts are half as wide as a block's box.

    Args:
        columns: Values of each column.
        weights: How many rows each value stands for, float64 likewise.
        curve: The curve.
        blocks: Blocks of the table.
    """
    power = 1 - 1 / len(columns)
    bits = min(curve.bits, int(np.ceil(np.log2(max(blocks, 2)) / len(columns))) + 1)
    result = []
    for rank, weight in zip(curve.ranks(columns), weights, strict=True):
        share = np.bincount(rank >> (curve.bits - bits), weight, 1 << bits) / weight.sum()
        result.append(float((share ** (1 + power)).sum() * (1 << bits) ** power))
    return np.array(result)


def renewed(table: Table, curve: Curve, most: float) -> Curve:
    """The same curve, or one over equal shares of today's rows if a column is this many times less even than there."""
    columns, weights = rows_by_boxes(table, curve)
    fresh = Curve.of(columns, curve.bits, weights)
    now, then = (unevenness(columns, weights, at, len(table)) for at in (curve, fresh))
    return fresh if (now > most * then).any() else curve


def first_curve(table: Table, rows: int, bits: int = BITS) -> Curve:
    """The curve that the first rows give."""
    return Curve.of([column[:rows] for column in table.columns], bits)
