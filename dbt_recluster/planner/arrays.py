"""Array types of the planner, and operations on arrays: ranks, orders, range maxima, intervals on an axis."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

# int64, or int32: half the memory, for arrays that a plan of ten million blocks holds many of.
IntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]
# float64, or float32 for the same reason.
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
# Codes of n keys that compare as they do, int64 (n,), from 0; and a number greater than all of them.
Codes: TypeAlias = tuple[IntArray, int]

# `dense_ranks` marks keys in a table of presence instead of sorting them, up to this many entries for each key. For a
# million random keys both take the same time at 4: the table 18 ms at 1, 50 ms at 4 and 80 ms at 8, the sort 55 ms.
_TABLE_ENTRIES_PER_KEY = 4


def arrays_at(record: object, places: IntArray | BoolArray) -> dict[str, Any]:
    """The arrays of a record that have one entry for each block, by name, at these places."""
    return {name: array[places] for name, array in vars(record).items() if isinstance(array, np.ndarray)}


def narrow(values: IntArray) -> IntArray:
    """Cast to int32 if every value fits, otherwise to int64."""
    limit = np.iinfo(np.int32)
    fits = len(values) == 0 or (limit.min <= int(values.min()) and int(values.max()) <= limit.max)
    return values.astype(np.int32 if fits else np.int64)


def dense_ranks(keys: IntArray) -> Codes:
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
        return rank_of_entry[offset] - 1, int(rank_of_entry[-1])
    distinct, ranks = np.unique(keys, return_inverse=True)
    return ranks.astype(keys.dtype), len(distinct)


def combined_ranks(columns: Sequence[Codes]) -> Codes:
    """Rank n tuples, compared left to right, by the codes of each position; dense, as of `dense_ranks`."""
    key, size = columns[0]
    for code, width in columns[1:]:
        if size * width >= 2**62:
            key, size = dense_ranks(key)
        key = key * width + code
        size *= width
    return dense_ranks(key)


def numbers_within(size: IntArray) -> IntArray:
    """Concatenated ranges 0, 1, ..., size - 1, one for each size."""
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


def fewest_chains(kind: IntArray, lower: IntArray, upper: IntArray) -> list[int]:
    """Number the fewest chains such that intervals of one chain have one kind and at most touch.

    This is greedy interval colouring, which is optimal when intervals are taken in the order of their lower ends.
    """
    chains = [0] * len(kind)
    free: dict[int, list[tuple[int, int]]] = {}  # upper end and number of the chains of each kind
    count = 0
    for place in np.lexsort((upper, lower, kind)).tolist():
        of_kind = free.setdefault(int(kind[place]), [])
        if of_kind and of_kind[0][0] <= lower[place]:
            chains[place] = of_kind[0][1]
            heapq.heapreplace(of_kind, (int(upper[place]), chains[place]))
        else:
            chains[place] = count
            heapq.heappush(of_kind, (int(upper[place]), count))
            count += 1
    return chains


@dataclass(frozen=True, eq=False)
class Intervals:
    """Half-open ranges of places that n blocks cover, on an axis of numbered places."""

    begin: IntArray  # first place of each block, (n,)
    end: IntArray  # first place after each block, (n,), at least `begin`
    size: int  # number of places

    @classmethod
    def from_closed(cls, first: IntArray, last: IntArray) -> Intervals:
        """Closed ranges, (n,) each, on an axis of their ends alone."""
        ranks, size = dense_ranks(np.concatenate([first, last]))
        return cls(ranks[: len(first)], ranks[len(first) :] + 1, size)

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def length(self) -> IntArray:
        """Number of places that each block covers: (n,)."""
        return self.end - self.begin

    def take(self, blocks: IntArray | BoolArray | slice) -> Intervals:
        """The intervals of some blocks, given by position."""
        return Intervals(self.begin[blocks], self.end[blocks], self.size)

    def depth(self, blocks: BoolArray | slice = slice(None)) -> IntArray:
        """Number of blocks over each place, of all or of those of a mask, bool (n,): int32 (size,)."""
        change = np.bincount(self.begin[blocks], minlength=self.size + 1).astype(np.int32)
        change -= np.bincount(self.end[blocks], minlength=self.size + 1)
        return np.cumsum(change[:-1], out=change[:-1])

    def depths(self) -> IntArray:
        """Greatest depth of a place of each block, none of which is empty: int32 (n,)."""
        return self.greatest(self.depth())

    def overlaps(self) -> IntArray:
        """Number of other blocks that share a place with each block: int32 (n,)."""
        begun = np.cumsum(np.bincount(self.begin, minlength=self.size), dtype=np.int32)
        ended = np.cumsum(np.bincount(self.end, minlength=self.size + 1), dtype=np.int32)
        return begun[self.end - 1] - ended[self.begin] - 1

    def greatest(self, values: IntArray) -> IntArray:
        """Greatest value of a place of each block, given one for each place, (size,): of their type, (n,)."""
        return range_max(values, self.begin, self.end - 1)

    def total(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum of the values of each block's places, given one for each place, (size,): int64 or float64 (n,)."""
        return self.total_between(np.append(0, np.cumsum(values)))

    def total_between(self, before: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum over each block's places, given prefix sums, (size + 1,)."""
        total = before[self.end]
        total -= before[self.begin]
        return total

    def components(self) -> IntArray:
        """Number the ranges that blocks, in the order of `begin`, cover without a gap: int32 (n,) for each block."""
        component = np.zeros(len(self), np.int32)
        np.cumsum(self.begin[1:] >= np.maximum.accumulate(self.end)[:-1], out=component[1:])
        return component


class Segments(NamedTuple):
    """The axis, once for each group of m blocks and cut at their ends."""

    group: IntArray  # rank of the group of each segment, int64 (segments,), ascending
    begins: IntArray  # where each segment begins, int64 (segments,); the last one of a group is empty
    covered: Intervals  # the segments that each block covers

    @classmethod
    def from_intervals(cls, lower: IntArray, upper: IntArray, group: IntArray) -> Segments:
        """Cut the axis of each group of m half-open intervals: begins, greater ends, and groups, int64 (m,) each."""
        groups, count = dense_ranks(group)
        both, places = np.concatenate([groups, groups]), np.concatenate([lower, upper])
        ends, size = combined_ranks([(both, count), (places, int(places.max(initial=0)) + 1)])
        group_of, begins = np.empty(size, np.int64), np.empty(size, np.int64)
        group_of[ends], begins[ends] = both, places
        return cls(group_of, begins, Intervals(ends[: len(group)], ends[len(group) :], size))

    @property
    def length(self) -> IntArray:
        """Length of each segment: int64 (segments,)."""
        length = np.diff(self.begins, append=0)
        length[np.diff(self.group, append=-1) != 0] = 0
        return length

    def at(self, group: IntArray, place: IntArray) -> IntArray:
        """The segments of these groups, given by rank, in which these places are: int64 (k,)."""
        size = int(self.begins.max()) + 1
        return np.searchsorted(self.group * size + self.begins, group * size + place, side="right") - 1
