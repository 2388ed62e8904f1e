"""What benchmarks/curves.py would report of a table, by the boxes and rows of its blocks alone."""

from __future__ import annotations

import numpy as np
from curve_drift import rows_by_boxes
from curve_layout import Curve, FloatArray, IntArray, Table
from curve_planning import rank_boxes

from dbt_recluster.hilbert import hilbert_index

# Points in the box of a block that stand for its rows, and boxes asked for in all.
_POINTS = 8
_BOXES = 256
# Steps of a sequence that fills a square, a cube and so on evenly (Roberts, "The unreasonable effectiveness of
# quasirandom sequences", 2018).
_STEPS = {2: 1.32471795724474602596, 3: 1.22074408460575947536, 4: 1.16730397826141868426}


def points_by_boxes(table: Table, curve: Curve) -> FloatArray:
    """Mean blocks that a point of each column opens, and a box of 1 % a side: float64 (columns + 1,)."""
    columns, weights = rows_by_boxes(table, curve)
    opened = [
        _mean_over(table.lower[:, column], table.upper[:, column], values, weight)
        for column, (values, weight) in enumerate(zip(columns, weights, strict=True))
    ]
    return np.array([*opened, _boxes_opened(rank_boxes(table, curve), _points(table, curve), curve)])


def at_once_by_boxes(table: Table, curve: Curve) -> FloatArray:
    """The same for the whole table sorted along the curve at once: float64 (columns + 1,)."""
    points = _points(table, curve)
    order = np.argsort(hilbert_index(points, curve.bits), kind="stable")
    weight = np.repeat(table.sizes / _POINTS, _POINTS)
    total = np.cumsum(weight[order])
    blocks = -(-round(float(total[-1])) // table.block_rows)
    starts = np.append(0, np.searchsorted(total, np.arange(1, blocks) * total[-1] / blocks))
    lowers, uppers, opened = [], [], []
    for column in points:
        least, greatest = (
            np.minimum.reduceat(column[order], starts),
            np.maximum.reduceat(column[order], starts),
        )
        # A few points do not reach as far as all rows of a block do.
        reach = (greatest - least) / (_POINTS - 1)
        lowers.append(least - reach)
        uppers.append(greatest + reach)
        opened.append(_mean_over(lowers[-1], uppers[-1], column, weight))
    return np.array([*opened, _boxes_opened((lowers, uppers), points, curve)])


def _points(table: Table, curve: Curve) -> list[IntArray]:
    """Ranks of points that lie evenly in the boxes of blocks: int64 (points * blocks,) for each column."""
    number = np.arange(len(table) * _POINTS)
    columns = []
    for place, (low, high) in enumerate(zip(*rank_boxes(table, curve), strict=True)):
        share = (0.5 + number * _STEPS[len(curve.boundaries)] ** -(place + 1)) % 1
        low, high = np.repeat(low, _POINTS), np.repeat(high, _POINTS)
        columns.append(low + (share * (high - low + 1)).astype(np.int64))
    return columns


def _mean_over(
    lower: IntArray | FloatArray, upper: IntArray | FloatArray, values: IntArray, weight: FloatArray
) -> float:
    """Weighted mean, over values, of the intervals over them."""
    over = np.searchsorted(np.sort(lower), values, side="right") - np.searchsorted(np.sort(upper), values)
    return float((over * weight).sum() / weight.sum())


def _boxes_opened(
    bounds: tuple[list[IntArray], list[IntArray]] | tuple[list[FloatArray], list[FloatArray]],
    points: list[IntArray],
    curve: Curve,
) -> float:
    """Mean blocks over a box of 1 % of the parts of each column around a point."""
    half = (1 << curve.bits) / 200
    some = np.linspace(0, len(points[0]) - 1, _BOXES).astype(np.int64)
    inside = np.ones((len(bounds[0][0]), _BOXES), np.bool_)
    for low, high, column in zip(*bounds, points, strict=True):
        inside &= (low[:, None] <= column[some] + half) & (high[:, None] >= column[some] - half)
    return float(inside.sum(axis=0).mean())
