"""Blocks that reads of a table on a curve open: now, and if the whole table were sorted at once.

The depth of intervals along the curve says how much overlap merges can remove, and not how many blocks a filter on one
column opens. Both figures here are estimates by bounds and rows of blocks (docs/design/curves.md, "Reports and scale").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dbt_recluster.curve import hilbert_index
from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray, numbers_within
from dbt_recluster.planner.curves import CurveBlocks, CurveColumn
from dbt_recluster.planner.metrics import ReadCosts, rounded
from dbt_recluster.planner.ranks import rank_column
from dbt_recluster.planner.reads import Reads, place_reads, ranked_columns

# Points in the box of a block that stand for its rows, at most and at least; and most points in all.
_POINTS, _LEAST_POINTS, _MOST_POINTS = 8, 3, 1 << 21
# Places of a point within a part of a column.
_PLACE_BITS = 4
PLACES = 1 << _PLACE_BITS
# Boxes that reads ask for, and how much of each column they take.
_QUERIES, _SIDE = 256, 0.01
# Steps of a sequence that fills a square, a cube and so on evenly (Roberts, "The unreasonable effectiveness of
# quasirandom sequences", 2018): powers of these, one for each number of columns.
_STEPS = {2: 1 / 1.32471795724474602596, 3: 1 / 1.22074408460575947536, 4: 1 / 1.16730397826141868426}

# Least and greatest values of n ranges, (n,) each.
Ranges = tuple[IntArray | FloatArray, IntArray | FloatArray]


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


def curve_information(blocks: CurveBlocks, block_rows: int) -> CurveInformation:
    """Estimate the blocks that reads of a table on a curve open; averages are rounded to 4 decimals.

    Args:
        blocks: n blocks.
        block_rows: Rows in a full block. No block of the sorted table would have rows of two partitions.
    """
    columns = blocks.columns
    n = len(blocks.rows)
    if n == 0:
        none = (0.0,) * len(columns)
        return CurveInformation(0, none, 0.0, 0, none, 0.0)
    points = Points.of(blocks, blocks.groups(block_rows))
    queries, at_once = points.queries(), points.sorted_at_once(block_rows)
    now = [(PLACES * column.low, PLACES * (column.high + 1) - 1) for column in columns]
    return CurveInformation(
        n,
        tuple(rounded(_point_blocks(column, blocks.rows)) for column in columns),
        rounded(_mean_opened(now, queries)),
        len(at_once[0][0]),
        tuple(
            rounded(_mean_over(low, high, column, points.weight))
            for (low, high), column in zip(at_once, points.places, strict=True)
        ),
        rounded(_mean_opened(at_once, queries)),
    )


def _point_blocks(column: CurveColumn, rows: IntArray) -> float:
    """Mean blocks over a value of a column, at the places where blocks seem to have rows."""
    n, ends = len(rows), column.ends.cast(column.lower.type)
    codes, _ = rank_column(column.lower, column.upper, column.unknown, reads=(ends, ends))
    return _mean_over(codes[:n], codes[n : 2 * n], codes[: 2 * n + len(ends)], column.spread(rows))


def _mean_over(
    lower: IntArray | FloatArray, upper: IntArray | FloatArray, values: IntArray, weight: FloatArray
) -> float:
    """Weighted mean, over values from 0, of the intervals over them."""
    of_value = np.bincount(values, weight)
    value = np.flatnonzero(of_value)
    over = np.searchsorted(np.sort(lower), value, side="right") - np.searchsorted(np.sort(upper), value)
    mean: float = (over * of_value[value]).sum() / of_value.sum()
    return mean


def _opened(blocks: Sequence[Ranges], asked: Sequence[Ranges], read: int) -> BoolArray:
    """The blocks that meet what a read asks for in every column: bool (n,)."""
    opened: BoolArray = np.logical_and.reduce(
        [
            (low <= greatest[read]) & (high >= least[read])
            for (low, high), (least, greatest) in zip(blocks, asked, strict=True)
        ]
    )
    return opened


def _mean_opened(blocks: Sequence[Ranges], asked: Sequence[Ranges]) -> float:
    """Mean number of blocks that reads open."""
    reads = len(asked[0][0])
    return sum(np.count_nonzero(_opened(blocks, asked, read)) for read in range(reads)) / reads


@dataclass(frozen=True, eq=False)
class Points:
    """Points that lie evenly in the boxes of blocks, in the order of the curve."""

    places: list[IntArray]  # ranks times `PLACES` and places within the part, int64 (m,) for each column
    weight: FloatArray  # rows that each point stands for, float64 (m,)
    group: IntArray  # blocks of a group would be sorted together, int64 (m,), ascending
    bits: int  # of a rank

    @classmethod
    def of(cls, blocks: CurveBlocks, group: IntArray) -> Points:
        """Choose points for n blocks in these groups, int64 (n,)."""
        rows, bits = np.maximum(blocks.rows, 1), blocks.curve.bits
        count = min(_POINTS, max(_LEAST_POINTS, _MOST_POINTS // len(rows)))
        number = np.arange(len(rows) * count)
        step = _STEPS[len(blocks.columns)]
        places = []
        ends = blocks.curve.ranks(blocks.curve.boundaries)
        for power, (column, rank) in enumerate(zip(blocks.columns, ends, strict=True), 1):
            full = np.append(0, rank)
            is_alone = np.bincount(full) > 1
            share = (0.5 + number * step**power) % 1
            low, high = np.repeat(column.low, count), np.repeat(column.high, count)
            place = ((low + share * (high - low + 1)) * PLACES).astype(np.int64)
            # A value that fills more than a part is in the last one, alone.
            part = full[place // PLACES]
            places.append(np.where(is_alone[part], part * PLACES, place))
        index, of_point = hilbert_index(places, bits + _PLACE_BITS), np.repeat(group, count)
        order = np.lexsort((index, of_point))
        weight = np.repeat(rows / count, count)
        return cls([column[order] for column in places], weight[order], of_point[order], bits)

    def queries(self) -> list[Ranges]:
        """Places that reads of `_SIDE` of the parts of each column around rows ask for: int64 (q,) each."""
        total = np.cumsum(self.weight)
        share = (np.arange(_QUERIES) + 0.5) / _QUERIES * total[-1]
        centre = np.minimum(np.searchsorted(total, share), len(total) - 1)
        half = int(_SIDE / 2 * PLACES * (1 << self.bits))
        return [(column[centre] - half, column[centre] + half) for column in self.places]

    def full_blocks(self, block_rows: int) -> IntArray:
        """Blocks that the rows of each group would make: int64 (groups,)."""
        return np.ceil(np.bincount(self.group, self.weight) / block_rows - 1e-9).astype(np.int64)

    def sorted_at_once(self, block_rows: int) -> list[Ranges]:
        """Places that each block would have if each group were sorted and cut: float64 (blocks,) each."""
        rows, blocks = np.bincount(self.group, self.weight), self.full_blocks(block_rows)
        before = np.cumsum(rows) - rows
        of_block = np.repeat(np.arange(len(rows)), blocks)
        begin = before[of_block] + numbers_within(blocks) * rows[of_block] / blocks[of_block]
        starts = np.searchsorted(np.cumsum(self.weight) - self.weight / 2, begin)
        starts = np.minimum(starts, len(self.weight) - 1)
        count = np.diff(starts, append=len(self.weight))
        intervals: list[Ranges] = []
        for column in self.places:
            least, greatest = np.minimum.reduceat(column, starts), np.maximum.reduceat(column, starts)
            # A few points do not reach as far as all rows of a block do.
            reach = (greatest - least) / np.maximum(count - 1, 1)
            intervals.append((least - reach, greatest + reach))
        return intervals


def curve_read_costs(blocks: CurveBlocks, bytes: IntArray, reads: Reads) -> ReadCosts:
    """Count the blocks that reads open, each of which asks for a range of every column.

    A read wastes the blocks beyond those that it would open in a table of as many blocks, sorted at once. That table is
    estimated from the boxes of the blocks.

    Args:
        blocks: n blocks, at least one.
        bytes: Their sizes, int64 (n,).
        reads: Ranges of all columns of the key; None is an open end. A read takes O(n).

    Returns:
        The costs. `bytes_per_depth` has the bytes that each read opens in the sorted table.

    Raises:
        BoundsError: As `Blocks.build`.
    """
    n, _, columns = ranked_columns(blocks.lower, blocks.upper, blocks.unbounded, reads)
    placed = [place_reads([column], n) for column in columns]
    now = [(column.blocks[:n], column.blocks[n:]) for column in placed]
    asked: list[Ranges] = [(column.lower, column.upper) for column in placed]
    group, leading = blocks.groups(blocks.rows.mean()), blocks.leading
    block_rows = -(-int(np.maximum(blocks.rows, 1).sum()) // n)
    points = Points.of(blocks, group)
    at_once = [
        *_repeated(now[:leading], group, points.full_blocks(block_rows)),
        *points.sorted_at_once(block_rows),
    ]
    asked_at_once = [*asked[:leading], *_places_asked(blocks, reads)]
    costs = [
        (np.flatnonzero(_opened(now, asked, read)), np.count_nonzero(_opened(at_once, asked_at_once, read)))
        for read in range(len(placed[0].lower))
    ]
    opened = np.array([len(of_read) for of_read, _ in costs], np.int64)
    least = np.minimum(np.array([count for _, count in costs], np.float64), opened)
    size = np.array([bytes[of_read].sum() for of_read, _ in costs], np.int64)
    mean_size = size / np.maximum(opened, 1)
    wasted = (opened - least).astype(np.float64)
    return ReadCosts(opened, wasted, size, wasted * mean_size, least * mean_size)


def _repeated(columns: Sequence[Ranges], group: IntArray, count: IntArray) -> list[Ranges]:
    """The hull of the intervals of each group, (n,) in each column, repeated ``count``, int64 (groups,), times."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    hulls = [
        (np.minimum.reduceat(low[order], starts), np.maximum.reduceat(high[order], starts))
        for low, high in columns
    ]
    return [(np.repeat(least, count), np.repeat(greatest, count)) for least, greatest in hulls]


def _places_asked(blocks: CurveBlocks, reads: Reads) -> list[Ranges]:
    """The first and the last place of each column of the curve that reads ask for, int64 (m,) each."""
    curve, leading = blocks.curve, blocks.leading
    lower, upper = (
        [pa.array(side[leading + place], _wide(ends.type)) for place, ends in enumerate(curve.boundaries)]
        for side in (reads.lower, reads.upper)
    )
    last = (1 << curve.bits) - 1
    return [
        (PLACES * low, PLACES * (np.where(np.asarray(end.is_valid()), high, last) + 1) - 1)
        for low, high, end in zip(curve.ranks(lower), curve.ranks(upper), upper, strict=True)
    ]


def _wide(kind: pa.DataType) -> pa.DataType:
    """A type that also holds the values beyond this one with which a read may compare a column."""
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else kind
