"""What reads of a table on a curve open: now, and if the whole table were sorted at once.

A depth of intervals along the curve tells what a merge could remove, and not how many blocks a filter on one column
opens. Both figures here are estimates by bounds and rows of blocks (docs/design/curves.md, "Reports and scale").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dbt_recluster.curve import Curve
from dbt_recluster.hilbert import hilbert_index
from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray
from dbt_recluster.planner.curves import Boxes
from dbt_recluster.planner.evenness import SpreadRows
from dbt_recluster.planner.metrics import rounded
from dbt_recluster.planner.ranks import rank_column

# Points in the box of a block that stand for its rows; fewer where there are more than so many in all.
_POINTS, _LEAST_POINTS, _MOST_POINTS = 8, 3, 1 << 21
# Places of a point within a part of a column.
_PLACE_BITS = 4
PLACES = 1 << _PLACE_BITS
# Boxes that reads ask for, and how much of each column they take.
_QUERIES, _SIDE = 256, 0.01
# Steps of a sequence that fills a square, a cube and so on evenly (Roberts, "The unreasonable effectiveness of
# quasirandom sequences", 2018): powers of these, one for each number of columns.
_STEPS = {2: 1 / 1.32471795724474602596, 3: 1 / 1.22074408460575947536, 4: 1 / 1.16730397826141868426}
# Blocks whose intervals are compared with boxes at a time.
_AT_A_TIME = 1 << 15


@dataclass(frozen=True)
class CurveInformation:
    """Blocks that reads of a table on a curve open, in the mean over places where rows are.

    Attributes:
        total_block_count: Number of blocks.
        point_blocks: Blocks that a read of one value of each column opens.
        box_blocks: Blocks that a read of 1 % of the rows of every column opens.
        sorted_block_count: Number of blocks if the whole table were sorted along the curve at once.
        sorted_point_blocks: What a read of one value of each column would open then.
        sorted_box_blocks: What a read of 1 % of the rows of every column would.
    """

    total_block_count: int
    point_blocks: tuple[float, ...]
    box_blocks: float
    sorted_block_count: int
    sorted_point_blocks: tuple[float, ...]
    sorted_box_blocks: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, with values that JSON can hold."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }


def curve_information(
    curve: Curve,
    lower: Sequence[pa.Array],
    upper: Sequence[pa.Array],
    unbounded: Sequence[BoolArray],
    rows: IntArray,
    block_rows: int,
    partition: IntArray | None = None,
) -> CurveInformation:
    """Estimate what reads of a table on a curve open; averages are rounded to 4 decimals.

    Args:
        curve: The curve.
        lower: Lower bounds: an Arrow array (n,) for each column of the curve.
        upper: Upper bounds, likewise.
        unbounded: Where the upper bound is unknown: bool (n,) for each column.
        rows: Rows of each block, int64 (n,).
        block_rows: Rows in a full block.
        partition: Codes from 0, int64 (n,), or None for one partition. No block would have rows of two.
    """
    n = len(rows)
    if n == 0:
        none = (0.0,) * len(lower)
        return CurveInformation(0, none, 0.0, 0, none, 0.0)
    boxes = Boxes.of(curve, lower, upper, unbounded)
    columns = zip(curve.boundaries, lower, upper, unbounded, *boxes, strict=True)
    opened = [
        _point_blocks(ends, low, high, unknown, SpreadRows.of(low_rank, high_rank, rows, curve.bits))
        for ends, low, high, unknown, low_rank, high_rank in columns
    ]
    points = Points.of(boxes, np.maximum(rows, 1), partition, curve)
    queries = points.queries(curve.bits)
    sorted_lower, sorted_upper = points.sorted_at_once(block_rows)
    return CurveInformation(
        n,
        tuple(map(rounded, opened)),
        rounded(
            _box_blocks(
                [PLACES * low for low in boxes.lower],
                [PLACES * (high + 1) - 1 for high in boxes.upper],
                queries,
            )
        ),
        len(sorted_lower[0]),
        tuple(
            rounded(_mean_over(low, high, column, points.weight))
            for low, high, column in zip(sorted_lower, sorted_upper, points.places, strict=True)
        ),
        rounded(_box_blocks(sorted_lower, sorted_upper, queries)),
    )


def _point_blocks(
    ends: pa.Array, lower: pa.Array, upper: pa.Array, unknown: BoolArray, spread: SpreadRows
) -> float:
    """Mean blocks over a value of a column, at the places where `spread` has rows."""
    n = len(lower)
    ends = ends.cast(lower.type)
    codes, _ = rank_column(lower, upper, unknown, reads=(ends, ends))
    values = np.concatenate([codes[: 2 * n], codes[2 * n : 2 * n + len(ends)]])
    return _mean_over(codes[:n], codes[n : 2 * n], values, spread.weight(1))


def _mean_over(
    lower: IntArray | FloatArray, upper: IntArray | FloatArray, values: IntArray, weight: FloatArray
) -> float:
    """Weighted mean, over values from 0, of the intervals over them."""
    of_value = np.bincount(values, weight)
    value = np.flatnonzero(of_value)
    over = np.searchsorted(np.sort(lower), value, side="right") - np.searchsorted(np.sort(upper), value)
    mean: float = (over * of_value[value]).sum() / of_value.sum()
    return mean


def _box_blocks(
    lower: Sequence[IntArray] | Sequence[FloatArray],
    upper: Sequence[IntArray] | Sequence[FloatArray],
    queries: tuple[IntArray, IntArray],
) -> float:
    """Mean blocks over boxes, given by their lower and upper corners, int64 (columns, q) each."""
    over, n = 0, len(lower[0])
    for begin in range(0, n, _AT_A_TIME):
        some = slice(begin, begin + _AT_A_TIME)
        inside = np.ones((len(lower[0][some]), queries[0].shape[1]), np.bool_)
        for low, high, least, greatest in zip(lower, upper, *queries, strict=True):
            inside &= (low[some, None] <= greatest) & (high[some, None] >= least)
        over += int(inside.sum())
    return float(over / queries[0].shape[1])


@dataclass(frozen=True, eq=False)
class Points:
    """Points that lie evenly in the boxes of blocks, in the order of the curve.

    Attributes:
        places: Ranks times `PLACES` and places within the part, int64 (m,) for each column.
        weight: Rows that each point stands for, float64 (m,).
        partition: int64 (m,), ascending.
    """

    places: list[IntArray]
    weight: FloatArray
    partition: IntArray

    @classmethod
    def of(cls, boxes: Boxes, rows: IntArray, partition: IntArray | None, curve: Curve) -> Points:
        """Choose points for blocks of these rows and partitions, int64 (n,) each."""
        count = min(_POINTS, max(_LEAST_POINTS, _MOST_POINTS // len(rows)))
        number = np.arange(len(rows) * count)
        step = _STEPS[len(boxes.lower)]
        places = []
        ends = curve.ranks(curve.boundaries)
        for power, (low, high, rank) in enumerate(zip(*boxes, ends, strict=True), 1):
            full = np.append(0, rank)
            is_alone = np.bincount(full) > 1
            share = (0.5 + number * step**power) % 1
            low, high = np.repeat(low, count), np.repeat(high, count)
            place = ((low + share * (high - low + 1)) * PLACES).astype(np.int64)
            # A value that fills more than a part is in the last one, alone.
            part = full[place // PLACES]
            places.append(np.where(is_alone[part], part * PLACES, place))
        index = hilbert_index(places, curve.bits + _PLACE_BITS)
        of_point = np.repeat(np.zeros_like(rows) if partition is None else partition, count)
        order = np.lexsort((index, of_point)) if of_point.any() else np.argsort(index, kind="stable")
        weight = np.repeat(rows / count, count)
        return cls([column[order] for column in places], weight[order], of_point[order])

    def queries(self, bits: int) -> tuple[IntArray, IntArray]:
        """Boxes of `_SIDE` of the parts of each column around rows: corners, int64 (columns, q) each."""
        total = np.cumsum(self.weight)
        share = (np.arange(_QUERIES) + 0.5) / _QUERIES * total[-1]
        centre = np.minimum(np.searchsorted(total, share), len(total) - 1)
        centres = np.stack([column[centre] for column in self.places])
        half = int(_SIDE / 2 * PLACES * (1 << bits))
        return centres - half, centres + half

    def sorted_at_once(self, block_rows: int) -> tuple[list[FloatArray], list[FloatArray]]:
        """Boxes of places if each partition were sorted and cut: lower and upper, float64 (blocks,) for each column."""
        rows = np.bincount(self.partition, self.weight)
        before = np.cumsum(rows) - rows
        blocks = np.ceil(rows / block_rows - 1e-9).astype(np.int64)
        of_block = np.repeat(np.arange(len(rows)), blocks)
        number = np.arange(len(of_block)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        begin = before[of_block] + number * rows[of_block] / blocks[of_block]
        starts = np.searchsorted(np.cumsum(self.weight) - self.weight / 2, begin)
        starts = np.minimum(starts, len(self.weight) - 1)
        count = np.diff(starts, append=len(self.weight))
        lower, upper = [], []
        for column in self.places:
            least, greatest = (end.reduceat(column, starts) for end in (np.minimum, np.maximum))
            # A few points do not reach as far as all rows of a block do.
            reach = (greatest - least) / np.maximum(count - 1, 1)
            lower.append(least - reach)
            upper.append(greatest + reach)
        return lower, upper
