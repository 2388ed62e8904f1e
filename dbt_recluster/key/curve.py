"""A Hilbert curve over the ranks of a key's columns, so that skew and types do not matter.

A cell of one level of the grid has 2**dimensions cells of the next, which the curve visits in the order of a state. So
the cells of a coarser grid are ranges of the curve, and a box needs no list of its cells.

Source: Hamilton, "Compact Hilbert Indices", 2006 (technical report CS-2006-07, Dalhousie University).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.key.types import BoolArray, FloatArray, IntArray, filled, value_type

# Ranks of n cells, int64 (n,) in each dimension.
Coordinates = Sequence[IntArray] | IntArray

# 2**10 parts of each column: of 1,024 blocks, 2**8 open as few, 2**6 a fifth more (docs/design/curves.md).
BITS = 10


@dataclass(frozen=True, eq=False)
class Curve:
    """A Hilbert curve over equal shares of each column."""

    # Ascending values of each column without NULL and NaN, (2**bits - 1,). The rank of a value is the number of
    # boundaries that are not above it.
    boundaries: tuple[pa.Array, ...]
    bits: int = BITS  # each column has 2**bits parts
    # Whether loads begin where those before them ended, for each column; () if none.
    ascending: tuple[bool, ...] = ()
    newest: int = 0  # the sequence number of the last load among the rows that were cut; 0 if unknown

    @classmethod
    def from_columns(cls, columns: Sequence[pa.Array], weights: FloatArray | None = None, bits: int = BITS) -> Curve:
        """Cut columns, (n,) each, into 2**bits equal shares of rows, given the rows of each value, float (n,), or None.

        NULL and NaN cut nothing; a column without other values is cut anywhere.
        """
        boundaries = []
        for column in columns:
            valid = np.asarray(column.is_valid())
            if value_type(column.type).has_nan:
                valid &= ~np.isnan(column.to_numpy(zero_copy_only=False))
            place = np.flatnonzero(valid)
            if not len(place):
                boundaries.append(pa.array([value_type(column.type).some] * ((1 << bits) - 1), column.type))
                continue
            order = place[np.asarray(pc.sort_indices(column.take(pa.array(place))))]
            weight = np.ones(len(order)) if weights is None else weights[order]
            total = np.cumsum(weight)
            share = np.arange(1, 1 << bits) / (1 << bits) * total[-1]
            cut = np.minimum(np.searchsorted(total, share, side="right"), len(order) - 1)
            boundaries.append(column.take(pa.array(order[cut])))
        return cls(tuple(boundaries), bits)

    @property
    def parts(self) -> int:
        """Parts of each column."""
        return 1 << self.bits

    def ranks(self, columns: Sequence[pa.Array], *, first: bool = False) -> IntArray:
        """The part of each value, int64 (columns, n): of NULL the first, of NaN the last.

        A value that fills several parts is in the last of them, or with ``first`` in the first.
        """
        of_columns = zip(self.boundaries, columns, strict=True)
        return np.stack([_ranks(ends, values, first) for ends, values in of_columns])

    def index(self, columns: Sequence[pa.Array]) -> IntArray:
        """The place of each row on the curve: int64 (n,)."""
        return hilbert_index(self.ranks(columns), self.bits)

    def beyond(self, columns: Sequence[pa.Array]) -> BoolArray:
        """Values above the last boundary: bool (columns, n)."""
        beyond: BoolArray = self.ranks(columns, first=True) == self.parts - 1
        return beyond

    def index_of_load(self, columns: Sequence[pa.Array]) -> IntArray:
        """The place of each row in the order of a load: int64 (n,).

        Rows beyond the boundaries of an ascending column follow all others. So late rows widen one block of the load.
        """
        is_new = self.beyond(columns)[np.flatnonzero(self.ascending)].any(axis=0)
        return self.index(columns) + (is_new.astype(np.int64) << (self.bits * len(columns)))


def _ranks(boundaries: pa.Array, values: pa.Array, first: bool) -> IntArray:
    valid = np.asarray(values.is_valid())
    ends, numbers = _as_numbers(boundaries), _as_numbers(values)
    if ends is not None and numbers is not None:
        rank = np.searchsorted(ends, numbers, side="left" if first else "right")
    else:
        rank = _bisect(boundaries, values.cast(boundaries.type), pc.less if first else pc.less_equal)
    return np.where(valid, rank, 0).astype(np.int64)


def _bisect(ends: pa.Array, values: pa.Array, is_before: Callable[[pa.Array, pa.Array], pa.Array]) -> IntArray:
    """Number of ascending ends before each value: int64 (n,), any number for NULL."""
    rank = np.zeros(len(values), np.int64)
    step = 1 << (len(ends).bit_length() - 1)
    while step:
        # Two to three times as fast as sorting the values.
        place = rank + step
        end = ends.take(pa.array(np.minimum(place, len(ends)) - 1))
        is_past = np.asarray(pc.fill_null(is_before(end, values), False))
        rank = np.where(is_past & (place <= len(ends)), place, rank)
        step //= 2
    return rank


def _as_numbers(values: pa.Array) -> npt.NDArray[np.generic] | None:
    """Values as numbers in the same order, 0 for NULL; None if their type has no such numbers."""
    kind = value_type(values.type)
    return np.asarray(filled(kind.numbers(values))) if kind.is_exact else None


@dataclass(frozen=True, eq=False)
class CurveStates:
    """The order of the 2**d parts of a cell in each state of the curve.

    Bit n of a part is set in the upper half of dimension n. The whole grid is in state 0.
    """

    place: IntArray  # when a part is visited, int64 (states, 2**d)
    following: IntArray  # the state within that part, int64 (states, 2**d)
    first: IntArray  # the first visited part of a box, (states, 2**d, 2**d), by the parts of its lower and upper corner
    last: IntArray  # the last one, likewise

    def step(self, state: IntArray, part: IntArray, place: IntArray) -> tuple[IntArray, IntArray]:
        """Enter parts of n cells, int64 (n,) each; return the states there and the places with one level more."""
        dimensions = self.place.shape[1].bit_length() - 1
        # Lookups in flat tables take a third of the time.
        key = state << dimensions
        key |= part
        place = place << dimensions
        place |= self.place.ravel()[key]
        return self.following.ravel()[key], place


def hilbert_index(coordinates: Coordinates, bits: int) -> IntArray:
    """The places on the curve of n cells: int64 (n,), from 0 to below 2**(dimensions * bits).

    The coordinates of each of one to four dimensions are int64 (n,), from 0 to below 2**bits. All bits together are at
    most 62, since planning doubles the places.
    """
    states = curve_states(len(coordinates))
    place = np.zeros(len(coordinates[0]), np.int64)
    state = np.zeros_like(place)
    for level in reversed(range(bits)):
        state, place = states.step(state, _parts(coordinates, level), place)
    return place


def hilbert_range(lower: Coordinates, upper: Coordinates, bits: int) -> tuple[IntArray, IntArray]:
    """The least and greatest places on the curve of n closed boxes, given by their corners: int64 (n,) each."""
    states = curve_states(len(lower))
    return _extreme(lower, upper, bits, states.first), _extreme(lower, upper, bits, states.last)


def _extreme(lower: Coordinates, upper: Coordinates, bits: int, choice: IntArray) -> IntArray:
    """The place of the cell of each box to which ``choice``, `first` or `last` of the states, leads: int64 (n,)."""
    states = curve_states(len(lower))
    lower, upper = [column.copy() for column in lower], [column.copy() for column in upper]
    place = np.zeros(len(lower[0]), np.int64)
    state = np.zeros_like(place)
    for level in reversed(range(bits)):
        low, high = _parts(lower, level), _parts(upper, level)
        part = choice.ravel()[((state << len(lower) | low) << len(lower)) | high]
        state, place = states.step(state, part, place)
        # Within the chosen part, the box ends at the border that it crosses.
        for dimension in range(len(lower)):
            crossed = ((low ^ high) >> dimension) & 1
            is_upper = (part >> dimension) & 1
            lower[dimension] *= 1 - (crossed & is_upper)
            upper[dimension] |= ((1 << level) - 1) * (crossed & ~is_upper & 1)
    return place


def _parts(coordinates: Coordinates, level: int) -> IntArray:
    """The parts of n cells at this level: int64 (n,)."""
    part = (coordinates[0] >> level) & 1
    for dimension, column in enumerate(coordinates[1:], 1):
        part |= ((column >> level) & 1) << dimension
    return part


@cache
def curve_states(dimensions: int) -> CurveStates:
    """The states of the curve: 1, 4, 12 or 32 of them in one to four dimensions."""
    parts = range(1 << dimensions)
    # A state is (entry corner, axis), as in Hamilton; the order is a Gray code.
    states = [(0, 0)]
    places, following = [], []
    for entry, direction in states:  # grows in the loop
        visited = [entry ^ _rotate(visit ^ (visit >> 1), direction + 1, dimensions) for visit in parts]
        places.append([visited.index(part) for part in parts])
        after = [_state_after(entry, direction, visit, dimensions) for visit in places[-1]]
        states += [state for state in dict.fromkeys(after) if state not in states]
        following.append([states.index(state) for state in after])
    place = np.array(places)
    first = np.zeros((len(states), len(parts), len(parts)), np.int64)
    last = first.copy()
    for low, high in product(parts, parts):
        inside = np.array([part for part in parts if part & low == low and part | high == high])
        if len(inside):
            first[:, low, high] = inside[place[:, inside].argmin(axis=1)]
            last[:, low, high] = inside[place[:, inside].argmax(axis=1)]
    return CurveStates(place, np.array(following), first, last)


def _state_after(entry: int, direction: int, visit: int, dimensions: int) -> tuple[int, int]:
    """The state within the part that the curve visits at this turn."""
    before = max(visit - 1, 0)
    even, odd = before & ~1, before | (visit & 1)
    trailing_ones = (odd ^ (odd + 1)).bit_length() - 1
    entry ^= _rotate(even ^ (even >> 1), direction + 1, dimensions)
    return entry, (direction + trailing_ones + 1) % dimensions


def _rotate(part: int, by: int, dimensions: int) -> int:
    """Rotate the bits of a part to the left."""
    by %= dimensions
    return ((part << by) | (part >> (dimensions - by))) & ((1 << dimensions) - 1)
