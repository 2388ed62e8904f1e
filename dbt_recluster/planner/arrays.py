"""Array types of the planner, and operations on arrays: ranks, range maxima, sweeps over intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
# Half the memory, for arrays that a plan of ten million blocks holds many of.
Int32Array: TypeAlias = npt.NDArray[np.int32]
Float32Array: TypeAlias = npt.NDArray[np.float32]
# The same type out as in.
IntegerArray = TypeVar("IntegerArray", IntArray, Int32Array)

# `dense_ranks` marks keys in a table of presence instead of sorting them, up to this many entries for each key. For a
# million random keys both take the same time at 4: the table 18 ms at 1, 50 ms at 4 and 80 ms at 8, the sort 55 ms.
_TABLE_ENTRIES_PER_KEY = 4


def narrow(values: IntArray) -> Int32Array:
    """Cast to int32 (n,) if every value fits; otherwise return the int64 array as it is."""
    limit = np.iinfo(np.int32)
    fits = len(values) == 0 or (limit.min <= int(values.min()) and int(values.max()) <= limit.max)
    return values.astype(np.int32 if fits else np.int64)


def dense_ranks(keys: IntegerArray) -> tuple[IntegerArray, int]:
    """Replace each key by its rank among the distinct keys.

    Args:
        keys: int64 or int32 (n,). Differences of any two must fit the type.

    Returns:
        Ranks from 0 in the order of the keys, of the same type and shape, and the number of distinct keys.
    """
    if len(keys) == 0:
        return keys.copy(), 0
    least, greatest = int(keys.min()), int(keys.max())
    entries = greatest - least + 1
    if entries <= _TABLE_ENTRIES_PER_KEY * len(keys):
        offset = keys - least
        present = np.zeros(entries, np.bool_)
        present[offset] = True
        rank_of_entry = np.cumsum(present, dtype=keys.dtype)
        count = int(rank_of_entry[-1])
        rank_of_entry -= 1
        return rank_of_entry[offset], count
    order = np.argsort(keys)
    ordered = keys[order]
    rank_in_order = np.zeros(len(keys), keys.dtype)
    np.cumsum(ordered[1:] != ordered[:-1], out=rank_in_order[1:])
    del ordered
    ranks = np.empty_like(keys)
    ranks[order] = rank_in_order
    return ranks, int(rank_in_order[-1]) + 1


def combined_ranks(columns: list[tuple[IntArray, int]]) -> tuple[IntArray, int]:
    """Rank tuples, compared left to right.

    Args:
        columns: For each position in the tuple its codes, int64 (n,), values from 0, and a number greater than all.

    Returns:
        Dense ranks of the tuples, int64 (n,), and the number of distinct tuples.
    """
    key, size = columns[0]
    for code, width in columns[1:]:
        if size * width >= 2**62:
            key, size = dense_ranks(key)
        key = key * width + code
        size *= width
    return dense_ranks(key)


def places_within(start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Positions from each start up to its end, one range after another, and the index of the range of each."""
    size = end - start
    group = np.repeat(np.arange(len(start)), size)
    return np.arange(len(group)) + np.repeat(start - (np.cumsum(size) - size), size), group


def range_max(
    values: IntegerArray, first: IntArray | Int32Array, last: IntArray | Int32Array
) -> IntegerArray:
    """Greatest of ``values[first[i]:last[i] + 1]`` for each i.

    A sparse table answers such queries from two of its rows. Queries are taken in the order of the rows they need, so
    only one row exists at a time and memory stays O(points + n).

    Args:
        values: int32 or int64 (points,).
        first: Positions in ``values``, int64 or int32 (n,).
        last: Positions in ``values``, of the same type, (n,), at least ``first``.

    Returns:
        Of the same type, (n,).
    """
    result = np.zeros(len(first), values.dtype)
    if len(first) == 0:
        return result
    # frexp is exact here: a length is below 2**53.
    power = np.frexp((last - first + 1).astype(np.float64))[1].astype(np.int8) - 1
    by_power = np.argsort(power, kind="stable")
    borders = np.searchsorted(power[by_power], np.arange(int(power.max()) + 2))
    row = values
    for exponent in range(len(borders) - 1):
        if exponent:
            half = 1 << (exponent - 1)
            row = np.maximum(row[:-half], row[half:])
        query = by_power[borders[exponent] : borders[exponent + 1]]
        result[query] = np.maximum(row[first[query]], row[last[query] - (1 << exponent) + 1])
    return result


@dataclass(frozen=True, eq=False)
class Sweep:
    """Result of a sweep over closed intervals of ranks. Touching counts as overlap.

    Attributes:
        lower: First ranks of the intervals, int64 or int32 (n,).
        upper: Last ranks of the intervals, of the same type, (n,), at least ``lower``.
        started: Number of intervals that start at each rank or before it, int32 (points,).
        ended: Number of intervals that end before each rank, int32 (points + 1,).
    """

    lower: IntArray | Int32Array
    upper: IntArray | Int32Array
    started: Int32Array
    ended: Int32Array

    @classmethod
    def over(cls, lower: IntArray | Int32Array, upper: IntArray | Int32Array, points: int) -> Sweep:
        """Sweep over n closed intervals of ranks below ``points``, in O(n + points)."""
        started = np.cumsum(np.bincount(lower, minlength=points), dtype=np.int32)
        ended = np.cumsum(np.bincount(upper + 1, minlength=points + 1), dtype=np.int32)
        return cls(lower, upper, started, ended)

    @classmethod
    def over_cells(cls, cells: Int32Array) -> Sweep:
        """Sweep over n closed intervals of numbers that need not be dense: first and then last cells, int32 (2n,)."""
        ranks, points = dense_ranks(cells)
        n = len(cells) // 2
        return cls.over(ranks[:n], ranks[n:], points)

    def point_depth(self) -> IntArray:
        """Number of intervals that cover each rank: int64 (points,)."""
        return np.subtract(self.started, self.ended[:-1], dtype=np.int64)

    def overlaps(self) -> Int32Array:
        """Number of other intervals that share a rank with each interval: int32 (n,)."""
        return self.started[self.upper] - self.ended[self.lower] - 1

    def depths(self, first: int | None = None) -> Int32Array:
        """Greatest depth of a rank inside each interval, or each of the ``first`` ones only: int32."""
        return range_max(self.started - self.ended[:-1], self.lower[:first], self.upper[:first])
