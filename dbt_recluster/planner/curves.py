"""Blocks along a curve: the interval of the curve that each block stands for, and when a curve no longer fits its rows.

Iceberg stores the bounds of each column, so a block is a box of ranks (see `dbt_recluster.curve`). Everything after
this step takes it for an interval, as it takes a block of a plain key. docs/design/curves.md tells why.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.curve import Curve, hilbert_index, hilbert_range
from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray

# Boundaries are drawn anew where a column is this many times less even on them than on fresh ones. There, points of a
# column lose a fifth (docs/design/curves.md).
MOST_UNEVEN = 1.15
# `Policy.tolerance` of a curve. Where loads cover all keys, the average depth is a whole number, and a border that is
# off by a hair would have the table merged one load too early.
CURVE_TOLERANCE = 1.05
# Of a load that was sorted along the curve, blocks keep this share of the places of their boxes when made disjoint.
_KEPT_BY_RUN = 0.45
# New boundaries are drawn from about so many values of a column at most, and from the bounds of all blocks.
_MOST_VALUES = 1 << 21
# Weights are whole numbers of rows times this, so that their sums do not depend on the order of blocks.
_PARTS_OF_ROW = 1_024
# Values that stand for the rows between two bounds.
_VALUES_BETWEEN = 14
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Boxes(NamedTuple):
    """Ranks of the bounds of n blocks: int64 (n,) for each column of the curve."""

    lower: list[IntArray]
    upper: list[IntArray]

    @classmethod
    def of(
        cls,
        curve: Curve,
        lower: Sequence[pa.Array],
        upper: Sequence[pa.Array],
        unbounded: Sequence[BoolArray],
    ) -> Boxes:
        """Rank bounds: a lower NULL is in the first part, an upper NaN or unknown bound in the last one.

        Args:
            curve: The curve.
            lower: Lower bounds: an Arrow array (n,) for each column of the curve.
            upper: Upper bounds, likewise.
            unbounded: Where the upper bound is unknown: bool (n,) for each column.
        """
        lowers = curve.ranks(lower)
        last = (1 << curve.bits) - 1
        uppers = [
            np.where(unknown, last, np.maximum(low, high))
            for low, high, unknown in zip(lowers, curve.ranks(upper), unbounded, strict=True)
        ]
        return cls(lowers, uppers)


def extents_along_curve(
    lower: Sequence[IntArray], upper: Sequence[IntArray], run: IntArray, bits: int
) -> tuple[IntArray, IntArray]:
    """First and last places on the curve of each block, disjoint within a run: int64 (n,) each.

    A block without a run has the places of its box. In a run, blocks follow one another in the order of their middles,
    and where the boxes of two neighbours share places, the border lies half way between their middles.

    ``lower`` and ``upper`` are `Boxes` of ranks of ``bits`` bits; ``run``, int64 (n,), is positive where known.
    """
    first, last = hilbert_range(lower, upper, bits)
    middle = _middles(lower, upper, bits)
    order = _order_in_runs([run, middle, first, last], [*lower, *upper])
    begin, end, middle, runs = first[order], last[order], middle[order], run[order]
    same = (runs[1:] == runs[:-1]) & (runs[1:] > 0)
    border = np.clip((middle[1:] + middle[:-1]) // 2, np.minimum(begin[1:], end[:-1]), end[:-1])
    # Borders ascend within a run, also where a box reaches over more than one neighbour.
    offset = np.cumsum(~same).astype(np.int64) << (len(lower) * bits + 1)
    border = np.maximum.accumulate(np.where(same, border, -1) + offset) - offset
    begin[1:] = np.where(same & (begin[1:] < border), border + 1, begin[1:])
    end[:-1] = np.where(same, np.minimum(end[:-1], border), end[:-1])
    first[order], last[order] = begin, np.maximum(begin, end)
    return first, last


def loads_as_runs(
    lower: Sequence[IntArray], upper: Sequence[IntArray], load: IntArray, bits: int
) -> IntArray:
    """Loads, int64 (n,), that were sorted along the curve, as numbers of runs: int64 (n,), 0 elsewhere.

    Made disjoint, the blocks of such a load keep half of the places of their boxes or more. Of k unsorted blocks each
    keeps one part in k, and so do those of a load that is sorted by one column.

    Other arguments are those of `extents_along_curve`. Numbers of loads are positive.
    """
    first, last = hilbert_range(lower, upper, bits)
    begin, end = extents_along_curve(lower, upper, load, bits)
    _, code, count = np.unique(load, return_inverse=True, return_counts=True)
    kept = np.bincount(code, (end - begin + 1) / (last - first + 1)) / count
    is_run = kept >= np.maximum(_KEPT_BY_RUN, 1.2 / count)
    return np.where(is_run[code], load, 0)


def curve_of_bounds(
    lower: Sequence[pa.Array], upper: Sequence[pa.Array], unbounded: Sequence[BoolArray], rows: IntArray
) -> Curve:
    """Cut columns into equal shares of the rows that blocks with these bounds seem to have.

    Rows, int64 (n,), are assumed to lie evenly between the bounds of their block. Of text and binary only bounds count.
    Other arguments are those of `Boxes.of`.
    """
    columns, weights = [], []
    for low, high, unknown in zip(lower, upper, unbounded, strict=True):
        high = _known(high, unknown)
        between = _values_between(low, high, _MOST_VALUES)
        columns.append(pa.concat_arrays([low, high, *between]))
        weight = np.maximum(rows, 1).astype(np.float64) * _PARTS_OF_ROW
        # Where values between them stand for the rows, bounds count only for blocks that have but one.
        bound = np.ones(len(rows)) if between else weight
        weights.append(np.concatenate([bound, bound, np.tile(weight // max(1, len(between)), len(between))]))
    return Curve.of(columns, weights)


def renewed(
    curve: Curve,
    lower: Sequence[pa.Array],
    upper: Sequence[pa.Array],
    unbounded: Sequence[BoolArray],
    rows: IntArray,
    most: float = MOST_UNEVEN,
) -> Curve | None:
    """Draw boundaries anew if rows lie much less evenly over the parts of a column than they could.

    Args:
        curve: The curve as it is.
        lower: As in `Boxes.of`, like the next two.
        upper: Upper bounds.
        unbounded: Where they are unknown.
        rows: Rows of each block, int64 (n,).
        most: How many times less evenly they may lie than on fresh boundaries, at least 1.

    Returns:
        A curve over equal shares of today's rows, or None if the curve may stay.
    """
    if len(rows) == 0:
        return None
    boxes = Boxes.of(curve, lower, upper, unbounded)
    spread = [SpreadRows.of(low, high, rows, curve.bits) for low, high in zip(*boxes, strict=True)]
    ranks = [np.concatenate(parts) for parts in zip(*boxes, curve.ranks(curve.boundaries), strict=True)]
    now = unevenness(ranks, [column.weight(1) for column in spread], curve.bits, len(rows))
    # Nothing is more even than equal shares.
    if (now <= most).all():
        return None
    columns = zip(lower, upper, unbounded, curve.boundaries, *boxes, strict=True)
    samples = [_values_in_parts(*column) for column in columns]
    weights = [column.weight(number) for column, (_, number) in zip(spread, samples, strict=True)]
    fresh = Curve.of([values for values, _ in samples], weights, curve.bits)
    ranks = fresh.ranks([values for values, _ in samples])
    then = unevenness(ranks, weights, curve.bits, len(rows))
    return fresh if (now > most * then).any() else None


def _middles(lower: Sequence[IntArray], upper: Sequence[IntArray], bits: int) -> IntArray:
    """The place on the curve around which each block lies: int64 (n,).

    It is the mean of the two middle ones among the places of the centres of the box's 2**d quarters. The centre of the
    box itself may belong to a neighbour, where a block is three quarters of a cell.
    """
    quarters = [
        [
            low + ((high - low) * quarter + 2) // 4
            for low, high, quarter in zip(lower, upper, corner, strict=True)
        ]
        for corner in product((1, 3), repeat=len(lower))
    ]
    places = np.sort(np.stack([hilbert_index(quarter, bits) for quarter in quarters]), axis=0)
    half = len(places) // 2
    middle: IntArray = (places[half - 1] + places[half]) // 2
    return middle


def _order_in_runs(keys: Sequence[IntArray], tie_breakers: Sequence[IntArray]) -> IntArray:
    """Order n blocks by these keys, first one first, and where all are equal by the tie breakers: int64 (n,)."""
    order = np.lexsort(keys[::-1])
    same = np.logical_and.reduce([np.diff(key[order]) == 0 for key in keys])
    tied = np.append(same, False) | np.append(False, same)
    if tied.any():
        block = order[tied]
        order[tied] = block[np.lexsort([key[block] for key in (*tie_breakers, *keys[::-1])])]
    return order


def _values_in_parts(
    lower: pa.Array, upper: pa.Array, unknown: BoolArray, ends: pa.Array, low: IntArray, high: IntArray
) -> tuple[pa.Array, int]:
    """Values that stand for the rows of blocks in a column, as `SpreadRows.weight` has them, and how many for a bound.

    A bound stands for the rows between it and the next boundary, or the other bound if that is nearer. Of numbers and
    times there are further values in between, or else a part that many rows have come into would not be cut by them.
    ``low`` and ``high`` are the ranks of the bounds among ``ends``, the boundaries of the column.
    """
    ends, upper = ends.cast(lower.type), _known(upper, unknown)
    if not _is_number(lower.type):
        return pa.concat_arrays([lower, upper, ends]), 1
    following = ends.take(pa.array(np.minimum(low, len(ends) - 1), mask=low == len(ends)))
    preceding = ends.take(pa.array(np.maximum(high - 1, 0), mask=high == 0))
    most = _MOST_VALUES // 2
    after = _values_between(lower, pc.min_element_wise(upper, following), most)
    before = _values_between(pc.max_element_wise(lower, preceding), upper, most)
    return pa.concat_arrays([lower, *after, upper, *before, ends]), 1 + len(after)


class SpreadRows(NamedTuple):
    """Rows of blocks, spread evenly over the bounds of a column and the boundaries between them: whole numbers."""

    bound: FloatArray  # what each of the two bounds of a block stands for, float64 (n,)
    boundary: FloatArray  # what each boundary of the column stands for, float64 (2**bits - 1,)

    @classmethod
    def of(cls, low: IntArray, high: IntArray, rows: IntArray, bits: int) -> SpreadRows:
        """Spread the rows of each block between the ranks of its bounds: int64 (n,) each."""
        weight = np.maximum(np.maximum(rows, 1) * _PARTS_OF_ROW // (high - low + 2), 1).astype(np.float64)
        steps = np.bincount(low, weight, 1 << bits) - np.bincount(high, weight, 1 << bits)
        return cls(weight, np.cumsum(steps)[:-1])

    def weight(self, number: int) -> FloatArray:
        """What so many values for each lower bound, then for each upper bound, and the boundaries stand for."""
        bound = np.maximum(self.bound // number, 1)
        return np.concatenate([np.tile(bound, 2 * number), self.boundary])


def unevenness(
    ranks: Sequence[IntArray], weights: Sequence[FloatArray], bits: int, blocks: int
) -> FloatArray:
    """How unevenly rows lie over the parts of each column: float64 (columns,), 1 where shares are equal.

    A point of a column with shares p of its P parts opens P**(1 - 1/d) * sum(p**(2 - 1/d)) times the blocks that it
    would open at equal shares, if the other columns have equal shares. Parts are half as wide as a block's box, given
    the number of blocks. ``weights`` are the rows that values of these ranks stand for, float64 (m,) for each column.
    """
    power = 1 - 1 / len(ranks)
    coarse = min(bits, int(np.ceil(np.log2(max(blocks, 2)) / len(ranks))) + 1)
    result = []
    for rank, weight in zip(ranks, weights, strict=True):
        share = np.bincount(rank >> (bits - coarse), weight, 1 << coarse) / weight.sum()
        result.append(float((share ** (1 + power)).sum() * (1 << coarse) ** power))
    return np.array(result)


def _known(upper: pa.Array, unknown: BoolArray) -> pa.Array:
    """Upper bounds, NULL where unknown."""
    return pc.if_else(pa.array(~unknown), upper, pa.scalar(None, upper.type)) if unknown.any() else upper


def _is_number(kind: pa.DataType) -> bool:
    """Whether `_values_between` finds values between two of this type."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
    )


def _within(values: pa.Array, lower: pa.Array, upper: pa.Array) -> pa.Array:
    """Values between bounds as decimals: a number of 64 bits may round beyond both, and beyond the type."""
    wide = pa.decimal256(76, lower.type.scale)
    inside = pc.max_element_wise(
        pc.min_element_wise(values.cast(wide), upper.cast(wide), skip_nulls=False),
        lower.cast(wide),
        skip_nulls=False,
    )
    return inside.cast(lower.type)


def _values_between(lower: pa.Array, upper: pa.Array, most: int) -> list[pa.Array]:
    """A value in each of several equal parts between the bounds of each block: arrays (n,), NULL where a bound is.

    Where in a part it lies differs from block to block, or else many blocks over all values had a few in common. There
    are at most ``most`` values in all, or one array; none for text and rarer types.
    """
    if not _is_number(lower.type):
        return []
    count = max(1, min(_VALUES_BETWEEN, most // max(1, len(lower))))
    kind = lower.type
    invalid = ~np.asarray(pc.and_(lower.is_valid(), upper.is_valid()))
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        least, greatest = (np.asarray(pc.fill_null(end.cast(pa.float64()), 0)) for end in (lower, upper))
        shift = _shift(least.view(np.uint64), greatest.view(np.uint64))
        shares = [(part + shift) / count for part in range(count)]
        with np.errstate(invalid="ignore"):
            values = [least * (1 - share) + greatest * share for share in shares]
        made = [pa.array(value, mask=invalid) for value in values]
        return (
            [_within(value, lower, upper) for value in made]
            if pa.types.is_decimal(kind)
            else [value.cast(kind) for value in made]
        )
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    low, high = (np.asarray(pc.fill_null(end.cast(number), 0)).astype(np.int64) for end in (lower, upper))
    # The distance of two numbers of 64 bits is one without a sign.
    begin, end = low.view(np.uint64), high.view(np.uint64)
    step, rest = (end - begin) // np.uint64(count), (end - begin) % np.uint64(count)
    begin = begin + (step * _shift(begin, end)).astype(np.uint64)
    places = [
        begin + step * np.uint64(part) + rest * np.uint64(part) // np.uint64(count) for part in range(count)
    ]
    return [pa.array(place.view(np.int64), mask=invalid).cast(number).cast(kind) for place in places]


def _shift(lower: npt.NDArray[np.uint64], upper: npt.NDArray[np.uint64]) -> FloatArray:
    """A number for each pair of bounds that looks like chance: float64 (n,), from 0 to below 1."""
    # Multiples of the golden ratio (Knuth, "The Art of Computer Programming", 6.4).
    mixed = (lower * _GOLDEN ^ upper) * _GOLDEN
    return (mixed >> np.uint64(12)).astype(np.float64) / 2**52
