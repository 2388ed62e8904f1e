"""Array types of the planner, and operations on arrays: ranks, range maxima, sweeps over intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

# int64, or int32: half the memory, for arrays that a plan of ten million blocks holds many of.
IntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]
# float64, or float32 likewise.
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

# `dense_ranks` marks keys in a table of presence instead of sorting them, up to this many entries for each key. For a
# million random keys both take the same time at 4: the table 18 ms at 1, 50 ms at 4 and 80 ms at 8, the sort 55 ms.
_TABLE_ENTRIES_PER_KEY = 4


def narrow(values: IntArray) -> IntArray:
    """Cast to int32 if every value fits, otherwise to int64."""
    limit = np.iinfo(np.int32)
    fits = len(values) == 0 or (limit.min <= int(values.min()) and int(values.max()) <= limit.max)
    return values.astype(np.int32 if fits else np.int64)


def dense_ranks(keys: IntArray) -> tuple[IntArray, int]:
    """Return the rank from 0 of each key among the distinct keys, of the keys' type, and the number of distinct keys.

    Differences of any two keys must fit their type.
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


def numbers_within(size: IntArray) -> IntArray:
    """Numbers from 0 to below each size, one range after another."""
    return np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)


def places_within(start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Positions from each start up to its end, one range after another, and the index of the range of each."""
    size = end - start
    return numbers_within(size) + np.repeat(start, size), np.repeat(np.arange(len(start)), size)


def ranges_where(where: BoolArray, group: IntArray) -> tuple[IntArray, IntArray]:
    """First and last place of each range of neighbouring true places of one group, both (n,): int64 (ranges,) each."""
    together = where[1:] & where[:-1] & (group[1:] == group[:-1])
    begins, ends = where & ~np.append(False, together), where & ~np.append(together, False)
    return np.flatnonzero(begins), np.flatnonzero(ends)


def range_max(values: IntArray, first: IntArray, last: IntArray) -> IntArray:
    """Greatest of ``values[first[i]:last[i] + 1]`` for each i, of the type of the values.

    A sparse table answers such queries from two of its rows. Queries are taken in the order of the rows they need, so
    only one row exists at a time and memory stays O(points + n).
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
    """Result of a sweep over n closed intervals of ranks below ``points``. Touching counts as overlap."""

    lower: IntArray  # first ranks of the intervals, (n,)
    upper: IntArray  # last ranks, (n,), at least `lower`
    started: IntArray  # number of intervals that start at each rank or before it, int32 (points,)
    ended: IntArray  # number of intervals that end before each rank, int32 (points + 1,)

    @classmethod
    def over(cls, lower: IntArray, upper: IntArray, points: int) -> Sweep:
        """Sweep over intervals in O(n + points)."""
        started = np.cumsum(np.bincount(lower, minlength=points), dtype=np.int32)
        ended = np.cumsum(np.bincount(upper + 1, minlength=points + 1), dtype=np.int32)
        return cls(lower, upper, started, ended)

    @classmethod
    def over_cells(cls, cells: IntArray) -> Sweep:
        """Sweep over n closed intervals of numbers that need not be dense: first and then last cells, (2n,)."""
        ranks, points = dense_ranks(cells)
        n = len(cells) // 2
        return cls.over(ranks[:n], ranks[n:], points)

    def point_depth(self) -> IntArray:
        """Number of intervals that cover each rank: int64 (points,)."""
        return np.subtract(self.started, self.ended[:-1], dtype=np.int64)

    def overlaps(self) -> IntArray:
        """Number of other intervals that share a rank with each interval: int32 (n,)."""
        return self.started[self.upper] - self.ended[self.lower] - 1

    def depths(self, first: int | None = None) -> IntArray:
        """Greatest depth of a rank inside each interval, or each of the ``first`` ones only: int32."""
        return range_max(self.started - self.ended[:-1], self.lower[:first], self.upper[:first])


class Segments(NamedTuple):
    """The axis, once for each group of intervals and cut at their ends."""

    group: IntArray  # rank of the group of each segment, int64 (segments,), ascending
    begins: IntArray  # where each segment begins, int64 (segments,); the last one of a group is empty
    first: IntArray  # first segment of each of m intervals, int64 (m,)
    end: IntArray  # first segment after each interval, int64 (m,), greater than `first`

    @classmethod
    def of(cls, lower: IntArray, upper: IntArray, group: IntArray) -> Segments:
        """Cut the axis of each group of m half-open intervals: begins, greater ends, and groups, int64 (m,) each."""
        groups, count = dense_ranks(group)
        both, places = np.concatenate([groups, groups]), np.concatenate([lower, upper])
        ends, segments = combined_ranks([(both, count), (places, int(places.max(initial=0)) + 1)])
        group_of, begins = np.empty(segments, np.int64), np.empty(segments, np.int64)
        group_of[ends], begins[ends] = both, places
        return cls(group_of, begins, ends[: len(group)], ends[len(group) :])

    @property
    def length(self) -> IntArray:
        """Length of each segment: int64 (segments,)."""
        length = np.diff(self.begins, append=0)
        length[np.diff(self.group, append=-1) != 0] = 0
        return length

    def depth(self, blocks: BoolArray | slice = slice(None)) -> IntArray:
        """Number of intervals over each segment, of all or of those of a mask, bool (m,): int64 (segments,)."""
        begun = np.bincount(self.first[blocks], minlength=len(self.begins))
        depth: IntArray = np.cumsum(begun - np.bincount(self.end[blocks], minlength=len(self.begins)))
        return depth

    def total(self, values: IntArray | BoolArray) -> IntArray:
        """Sum of a value of each segment, (segments,), over those of each interval: int64 (m,)."""
        before = np.append(0, np.cumsum(values))
        total: IntArray = before[self.end] - before[self.first]
        return total

    def at(self, group: IntArray, place: IntArray) -> IntArray:
        """The segments of these groups, given by rank, in which these places are: int64 (k,)."""
        size = int(self.begins.max()) + 1
        return np.searchsorted(self.group * size + self.begins, group * size + place, side="right") - 1

    def first_and_last(self, where: BoolArray) -> tuple[IntArray, IntArray]:
        """First and last segment of each interval where ``where``, bool (segments,), is true: int64 (m,) each.

        The first one lies behind the last one if there is none.
        """
        place = np.arange(len(where))
        following = np.minimum.accumulate(np.where(where, place, len(where))[::-1])[::-1]
        preceding = np.maximum.accumulate(np.where(where, place, -1))
        first, last = following[self.first], preceding[self.end - 1]
        return first, np.where(first < self.end, last, -1)
