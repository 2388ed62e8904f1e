"""Blocks along a curve: the interval of the curve that each block stands for, and when a curve no longer fits its rows.

Iceberg stores the bounds of each column, so a block is a box of ranks (see `dbt_recluster.curve`). Everything after
this step takes it for an interval, as it takes a block of a plain key. docs/design/curves.md says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.curve import Curve, hilbert_index, hilbert_range
from dbt_recluster.planner.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    combined_ranks,
    dense_ranks,
)
from dbt_recluster.planner.ranks import rank_column

# Boundaries are drawn anew where a column is this many times less even on them than on fresh ones. There, points of a
# column lose a fifth (docs/design/curves.md).
MOST_UNEVEN = 1.15
# `Policy.tolerance` of a curve. Where loads cover all keys, the average depth is a whole number, and a border that is
# off by a hair would have the table merged one load too early.
CURVE_TOLERANCE = 1.05
# Of a load that was sorted along the curve, blocks keep this share of the places of their boxes when made disjoint.
_KEPT_BY_RUN = 0.45
# Most values between bounds from which the boundaries of a column are drawn.
_MOST_VALUES = 1 << 21
# Weights are whole numbers of rows times this, so that their sums do not depend on the order of blocks.
_PARTS_OF_ROW = 1_024
# Values that stand for the rows between two bounds.
_VALUES_BETWEEN = 14
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of n blocks: the ranks of their bounds in each column of a curve."""

    lower: Sequence[IntArray]  # int64 (n,) for each column
    upper: Sequence[IntArray]  # likewise
    bits: int  # of each rank

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """First and last places on the curve of the cells of each box: int64 (n,) each."""
        return hilbert_range(self.lower, self.upper, self.bits)

    @cached_property
    def middles(self) -> IntArray:
        """The place on the curve around which each block lies: int64 (n,).

        It is the mean of the two middle ones among the places of the centres of the box's 2**d quarters. The centre of
        the box itself may belong to a neighbour, where a block is three quarters of a cell.
        """
        quarters = [
            [
                low + ((high - low) * quarter + 2) // 4
                for low, high, quarter in zip(self.lower, self.upper, corner, strict=True)
            ]
            for corner in product((1, 3), repeat=len(self.lower))
        ]
        places = np.sort(np.stack([hilbert_index(quarter, self.bits) for quarter in quarters]), axis=0)
        half = len(places) // 2
        middle: IntArray = (places[half - 1] + places[half]) // 2
        return middle

    def intervals(self, run: IntArray) -> tuple[IntArray, IntArray]:
        """First and last places on the curve of each block, disjoint within a run: int64 (n,) each.

        A block without a run has the places of its box. In a run, blocks follow one another in the order of their
        middles, and where the boxes of two neighbours share places, the border lies half way between their middles.
        Runs, int64 (n,), are positive where known.
        """
        first, last = (ends.copy() for ends in self.places)
        order = np.lexsort([*self.lower, *self.upper, last, first, self.middles, run])
        begin, end, middle, runs = first[order], last[order], self.middles[order], run[order]
        same = (runs[1:] == runs[:-1]) & (runs[1:] > 0)
        border = np.clip((middle[1:] + middle[:-1]) // 2, np.minimum(begin[1:], end[:-1]), end[:-1])
        # Borders ascend within a run, also where a box reaches over more than one neighbour.
        offset = np.cumsum(~same).astype(np.int64) << (len(self.lower) * self.bits + 1)
        border = np.maximum.accumulate(np.where(same, border, -1) + offset) - offset
        begin[1:] = np.where(same & (begin[1:] < border), border + 1, begin[1:])
        end[:-1] = np.where(same, np.minimum(end[:-1], border), end[:-1])
        first[order], last[order] = begin, np.maximum(begin, end)
        return first, last

    def is_sorted(self, load: IntArray) -> BoolArray:
        """Blocks of a load, int64 (n,), that was sorted along the curve: bool (n,).

        Made disjoint, the blocks of such a load keep half of the places of their boxes or more. Of k unsorted blocks
        each keeps one part in k, and so do those of a load that is sorted by one column.
        """
        first, last = self.places
        begin, end = self.intervals(load)
        code, _ = dense_ranks(load)
        count = np.bincount(code)
        kept = np.bincount(code, (end - begin + 1) / (last - first + 1)) / count
        is_sorted: BoolArray = (kept >= np.maximum(_KEPT_BY_RUN, 1.2 / count))[code] & (load > 0)
        return is_sorted


class CurveColumn(NamedTuple):
    """The bounds of n blocks in a column of a curve."""

    ends: pa.Array  # boundaries of the column
    lower: pa.Array  # lower bounds
    upper: pa.Array  # upper bounds
    unknown: BoolArray  # where the upper bound is unknown
    low: IntArray  # ranks of the lower bounds; NULL is in the first part
    high: IntArray  # ranks of the upper bounds; NaN and unknown ones are in the last part

    def spread(self, rows: IntArray, number: int = 1) -> FloatArray:
        """Spread the rows of each block, int64 (n,), evenly over its bounds and the boundaries between them.

        Returns:
            Whole numbers: rows at ``number`` values for each lower bound, then for each upper bound, and at each of the
            2**bits - 1 boundaries of the column.
        """
        parts = np.maximum(rows, 1) * _PARTS_OF_ROW // (self.high - self.low + 2)
        weight, size = np.maximum(parts, 1).astype(np.float64), len(self.ends) + 1
        steps = np.bincount(self.low, weight, size) - np.bincount(self.high, weight, size)
        return np.concatenate([np.tile(np.maximum(weight // number, 1), 2 * number), np.cumsum(steps)[:-1]])


@dataclass(frozen=True, eq=False)
class CurveBlocks:
    """n blocks under a key that ends in a curve.

    Attributes:
        curve: The curve over the last columns of the key; the others lead.
        lower: Lower bounds: an Arrow array (n,) for each column of the key.
        upper: Upper bounds, likewise.
        unbounded: Where the upper bound is unknown: bool (n,) for each column.
        rows: Rows of each block, int64 (n,).
        partition: Codes of partitions from 0, int64 (n,), or None for one partition.
    """

    curve: Curve
    lower: Sequence[pa.Array]
    upper: Sequence[pa.Array]
    unbounded: Sequence[BoolArray]
    rows: IntArray
    partition: IntArray | None = None

    @property
    def leading(self) -> int:
        """Number of columns before those of the curve."""
        return len(self.lower) - len(self.curve.boundaries)

    @cached_property
    def columns(self) -> list[CurveColumn]:
        """The columns of the curve."""
        lower, upper, unbounded = (part[self.leading :] for part in (self.lower, self.upper, self.unbounded))
        lows, last = self.curve.ranks(lower), (1 << self.curve.bits) - 1
        highs = [
            np.where(unknown, last, np.maximum(low, high))
            for low, high, unknown in zip(lows, self.curve.ranks(upper), unbounded, strict=True)
        ]
        return list(map(CurveColumn, self.curve.boundaries, lower, upper, unbounded, lows, highs))

    @cached_property
    def boxes(self) -> Boxes:
        """The boxes of the blocks."""
        return Boxes(
            [column.low for column in self.columns],
            [column.high for column in self.columns],
            self.curve.bits,
        )

    @cached_property
    def _leading_keys(self) -> tuple[IntArray, int, BoolArray]:
        """Rank partitions and leading columns: int64 (n,), how many there are, and where blocks have one value."""
        n = len(self.rows)
        partition = np.zeros(n, np.int64) if self.partition is None else self.partition
        keys, is_one = [dense_ranks(partition)], np.ones(n, np.bool_)
        for place in range(self.leading):
            codes, size = rank_column(self.lower[place], self.upper[place], self.unbounded[place])
            keys.append((codes[:n], size))
            is_one &= codes[:n] == codes[n:]
        return *combined_ranks(keys), is_one

    def along_curve(
        self, run: IntArray, added_by: IntArray
    ) -> tuple[list[pa.Array], list[pa.Array], list[BoolArray], IntArray]:
        """Bounds for the planner, of the leading columns and the place on the curve, and runs.

        Blocks of a run follow one another along the curve where they have one value of the leading columns. So do those
        of a load, if their bounds show that it came sorted along the curve.

        Args:
            run: int64 (n,), positive where known.
            added_by: Numbers of loads, int64 (n,), positive where known.

        Returns:
            Lower bounds, upper bounds and where the latter are unknown, for each column; and the runs, int64 (n,).
        """
        group, count, is_one = self._leading_keys
        is_load = is_one & (run <= 0) & (added_by > 0)
        if is_load.any():
            load, _ = combined_ranks([(group, count), dense_ranks(added_by)])
            run = np.where(self.boxes.is_sorted(np.where(is_load, load + 1, 0)), added_by, run)
        known, _ = combined_ranks([(group, count), dense_ranks(run)])
        begin, end = self.boxes.intervals(np.where(is_one & (run > 0), known + 1, 0))
        lower, upper, unbounded = (part[: self.leading] for part in (self.lower, self.upper, self.unbounded))
        none = np.zeros(len(run), np.bool_)
        return [*lower, pa.array(begin)], [*upper, pa.array(end)], [*unbounded, none], run

    def groups(self, block_rows: float) -> IntArray:
        """Number the blocks that the curve sorts together, by partition and leading columns: int64 (n,), from 0.

        Values of leading columns that share full blocks, of ``block_rows``, are one group.
        """
        key, _, _ = self._leading_keys
        order = np.argsort(key, kind="stable")
        rows, partition = (
            self.rows[order],
            np.zeros(len(order)) if self.partition is None else self.partition[order],
        )
        before = np.cumsum(rows) - rows
        is_first = np.diff(partition, prepend=-1) != 0
        # Where its partition and its value begin, in full blocks.
        begins = np.maximum.accumulate(np.where(np.diff(key[order], prepend=-1) != 0, before, 0))
        share = (begins - np.maximum.accumulate(np.where(is_first, before, 0))) // block_rows
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(is_first | (np.diff(share, prepend=-1) != 0)) - 1
        return group


def curve_of_bounds(
    lower: Sequence[pa.Array], upper: Sequence[pa.Array], unbounded: Sequence[BoolArray], rows: IntArray
) -> Curve:
    """Cut columns into equal shares of the rows that blocks with these bounds seem to have.

    Rows, int64 (n,), are assumed to lie evenly between the bounds of their block. Of text and binary only bounds count.
    Other arguments are those of `CurveBlocks`.
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


def renewed(blocks: CurveBlocks, most: float = MOST_UNEVEN) -> Curve | None:
    """Draw boundaries anew if rows lie much less evenly over the parts of a column than they could.

    Args:
        blocks: n blocks, with the curve as it is.
        most: How many times less evenly rows may lie than on fresh boundaries, at least 1.

    Returns:
        A curve over equal shares of today's rows, or None if the curve may stay.
    """
    curve, columns = blocks.curve, blocks.columns
    if len(blocks.rows) == 0:
        return None
    ends = curve.ranks(curve.boundaries)
    ranks = [np.concatenate([column.low, column.high, of]) for column, of in zip(columns, ends, strict=True)]
    now = unevenness(ranks, [column.spread(blocks.rows) for column in columns], curve.bits, len(blocks.rows))
    # Nothing is more even than equal shares.
    if (now <= most).all():
        return None
    samples = [_values_in_parts(column) for column in columns]
    weights = [
        column.spread(blocks.rows, number) for column, (_, number) in zip(columns, samples, strict=True)
    ]
    fresh = Curve.of([values for values, _ in samples], weights, curve.bits)
    ranks = fresh.ranks([values for values, _ in samples])
    then = unevenness(ranks, weights, curve.bits, len(blocks.rows))
    return fresh if (now > most * then).any() else None


def _values_in_parts(column: CurveColumn) -> tuple[pa.Array, int]:
    """Values that stand for the rows of blocks in a column, as `CurveColumn.spread` has them, and how many for a bound.

    A bound stands for the rows between it and the next boundary, or the other bound if that is nearer. Of numbers and
    times there are further values in between, or else a part that many rows have come into would not be cut by them.
    """
    lower, low, high = column.lower, column.low, column.high
    ends, upper = column.ends.cast(lower.type), _known(column.upper, column.unknown)
    if not _is_number(lower.type):
        return pa.concat_arrays([lower, upper, ends]), 1
    following = ends.take(pa.array(np.minimum(low, len(ends) - 1), mask=low == len(ends)))
    preceding = ends.take(pa.array(np.maximum(high - 1, 0), mask=high == 0))
    most = _MOST_VALUES // 2
    after = _values_between(lower, pc.min_element_wise(upper, following), most)
    before = _values_between(pc.max_element_wise(lower, preceding), upper, most)
    return pa.concat_arrays([lower, *after, upper, *before, ends]), 1 + len(after)


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


def _values_between(lower: pa.Array, upper: pa.Array, most: int) -> list[pa.Array]:
    """A value in each of several equal parts between the bounds of each block: arrays (n,), NULL where a bound is.

    Where in a part it lies differs from block to block, or else many blocks over all values had a few in common. There
    are at most ``most`` values in all, or one array; none for text and rarer types.
    """
    kind = lower.type
    if not _is_number(kind):
        return []
    count = max(1, min(_VALUES_BETWEEN, most // max(1, len(lower))))
    invalid = ~np.asarray(pc.and_(lower.is_valid(), upper.is_valid()))
    is_float = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    number = pa.float64() if is_float else pa.int32() if pa.types.is_date32(kind) else pa.int64()
    low, high = (np.asarray(pc.fill_null(end.cast(number), 0)) for end in (lower, upper))
    if is_float:
        shift = _shift(low.view(np.uint64), high.view(np.uint64))
        shares = [(part + shift) / count for part in range(count)]
        with np.errstate(invalid="ignore"):
            values = [pa.array(low * (1 - share) + high * share, mask=invalid) for share in shares]
        is_decimal = pa.types.is_decimal(kind)
        return [(_within(value, lower, upper) if is_decimal else value).cast(kind) for value in values]
    # The distance of two numbers of 64 bits is one without a sign.
    begin, end = (ends.astype(np.int64).view(np.uint64) for ends in (low, high))
    step, rest = (end - begin) // np.uint64(count), (end - begin) % np.uint64(count)
    begin = begin + (step * _shift(begin, end)).astype(np.uint64)
    places = [
        begin + step * np.uint64(part) + rest * np.uint64(part) // np.uint64(count) for part in range(count)
    ]
    return [pa.array(place.view(np.int64), mask=invalid).cast(number).cast(kind) for place in places]


def _within(values: pa.Array, lower: pa.Array, upper: pa.Array) -> pa.Array:
    """Values between bounds as decimals: a number of 64 bits may round beyond both, and beyond the type."""
    values, lower, upper = (
        column.cast(pa.decimal256(76, lower.type.scale)) for column in (values, lower, upper)
    )
    below = pc.min_element_wise(values, upper, skip_nulls=False)
    return pc.max_element_wise(below, lower, skip_nulls=False)


def _shift(lower: npt.NDArray[np.uint64], upper: npt.NDArray[np.uint64]) -> FloatArray:
    """A number for each pair of bounds that looks like chance: float64 (n,), from 0 to below 1."""
    # Multiples of the golden ratio (Knuth, "The Art of Computer Programming", 6.4).
    mixed = (lower * _GOLDEN ^ upper) * _GOLDEN
    return (mixed >> np.uint64(12)).astype(np.float64) / 2**52
