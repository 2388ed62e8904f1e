"""Coverage: sums of per-key values over blocks, on an axis whose lengths follow the data.

The axis has one unit for each lower and one for each upper bound, in the order of the bounds. A block covers the units
of all bounds within its own, these two included. So lengths are comparable for every type of key, and the mean
coverage of a unit is the mean depth at the ends of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import Float32Array, FloatArray, Int32Array, IntArray


@dataclass(frozen=True, eq=False)
class Extents:
    """Ranges of units that n blocks cover.

    Attributes:
        begin: First unit of each block, int32 (n,), ascending in the order of the candidates.
        end: First unit after each block, int32 (n,), greater than ``begin``.
    """

    begin: Int32Array
    end: Int32Array

    @classmethod
    def of(cls, first: Int32Array, last: Int32Array) -> Extents:
        """Place n blocks on the axis of their own 2n units.

        Args:
            first: First cells, int32 (n,), ascending.
            last: Last cells, int32 (n,).
        """
        lasts = np.sort(last)
        begin = np.searchsorted(first, first).astype(np.int32)
        begin += np.searchsorted(lasts, first).astype(np.int32)
        end = np.searchsorted(first, last, side="right").astype(np.int32)
        end += np.searchsorted(lasts, last, side="right").astype(np.int32)
        return cls(begin, end)

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.begin)

    @property
    def length(self) -> Int32Array:
        """Number of units that each block covers: int32 (n,)."""
        return self.end - self.begin

    def take(self, blocks: IntArray | Int32Array) -> Extents:
        """The extents of some blocks, given by position."""
        return Extents(self.begin[blocks], self.end[blocks])

    def components(self) -> Int32Array:
        """Number the ranges that blocks cover without a gap, in the order of the axis: int32 (n,) for each block."""
        component = np.zeros(len(self), np.int32)
        np.cumsum(self.begin[1:] >= np.maximum.accumulate(self.end)[:-1], out=component[1:])
        return component


class Coverage:
    """Sum over blocks of a value that a block has in each of its units.

    Args:
        units: Length of the axis.
        weight: Price of each unit, float64 (units,), or None if all cost 1.
    """

    def __init__(self, units: int, weight: FloatArray | None = None) -> None:
        self._steps = np.zeros(units + 1)
        self._weight = weight

    def add(self, extents: Extents, value: FloatArray | Float32Array) -> None:
        """Add n blocks with these values for each unit, (n,)."""
        # `np.add.at` is several times slower if it has to convert.
        value = value.astype(np.float64, copy=False)
        np.add.at(self._steps, extents.begin, value)
        np.subtract.at(self._steps, extents.end, value)

    def values(self) -> FloatArray:
        """Sum over blocks in each unit: float64 (units,)."""
        values: FloatArray = np.cumsum(self._steps[:-1])
        return values

    def integral(self) -> FloatArray:
        """Sum over all units before each, times their price: float64 (units + 1,)."""
        integral = np.empty_like(self._steps)
        integral[0] = 0.0
        np.cumsum(self._steps[:-1], out=integral[1:])
        if self._weight is not None:
            integral[1:] *= self._weight
        return np.cumsum(integral, out=integral)


def total_over(integral: FloatArray, extents: Extents) -> FloatArray:
    """Sum over each block's units, given a coverage's integral: float64 (n,)."""
    total = integral[extents.end]
    total -= integral[extents.begin]
    return total
