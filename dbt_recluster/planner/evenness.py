"""How evenly rows lie over the parts of a curve's columns, as far as the bounds of blocks tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray

# Weights are whole numbers of rows times this, so that their sums do not depend on the order of blocks.
PARTS_OF_ROW = 1_024
# Values that stand for the rows between two bounds.
_VALUES_BETWEEN = 14
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class SpreadRows(NamedTuple):
    """Rows of blocks, spread evenly over the bounds of a column and the boundaries between them.

    Attributes:
        bound: What each of the two bounds of a block stands for, float64 (n,): a whole number.
        boundary: What each boundary of the column stands for, float64 (2**bits - 1,): likewise.
    """

    bound: FloatArray
    boundary: FloatArray

    @classmethod
    def of(cls, low: IntArray, high: IntArray, rows: IntArray, bits: int) -> SpreadRows:
        """Spread the rows of each block between the ranks of its bounds: int64 (n,) each."""
        weight = np.maximum(np.maximum(rows, 1) * PARTS_OF_ROW // (high - low + 2), 1).astype(np.float64)
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
    would open at equal shares, if the other columns have equal shares. Parts are half as wide as a block's box.

    Args:
        ranks: Ranks of values of each column, int64 (m,) each.
        weights: How many rows each value stands for, float64 likewise.
        bits: Bits of a rank.
        blocks: Blocks of the table.
    """
    power = 1 - 1 / len(ranks)
    coarse = min(bits, int(np.ceil(np.log2(max(blocks, 2)) / len(ranks))) + 1)
    result = []
    for rank, weight in zip(ranks, weights, strict=True):
        share = np.bincount(rank >> (bits - coarse), weight, 1 << coarse) / weight.sum()
        result.append(float((share ** (1 + power)).sum() * (1 << coarse) ** power))
    return np.array(result)


def known(upper: pa.Array, unknown: BoolArray) -> pa.Array:
    """Upper bounds, NULL where unknown."""
    return pc.if_else(pa.array(~unknown), upper, pa.scalar(None, upper.type)) if unknown.any() else upper


def is_number(kind: pa.DataType) -> bool:
    """Whether `values_between` finds values between two of this type."""
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


def values_between(lower: pa.Array, upper: pa.Array, most: int) -> list[pa.Array]:
    """A value in each of several equal parts between the bounds of each block: arrays (n,), NULL where a bound is.

    Where in a part it lies differs from block to block, or else many blocks over all values had a few in common.

    Args:
        lower: Lower bounds, (n,).
        upper: Upper bounds, likewise.
        most: Values in all. There is an array at least, but none for text and rarer types.
    """
    if not is_number(lower.type):
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
