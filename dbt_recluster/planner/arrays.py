"""Array types of the planner, and the few array operations that several of its files need."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
# Half the memory, where there are many arrays of places or of figures that need not be exact.
PlaceArray: TypeAlias = npt.NDArray[np.int32]
FigureArray: TypeAlias = npt.NDArray[np.float32]
# Either, and the same out as in.
Whole = TypeVar("Whole", IntArray, PlaceArray)

# A table of presence is cheaper than a sort while it has at most this many places a value.
_PLACES_PER_VALUE = 4


def narrow(values: IntArray) -> PlaceArray:
    """The same whole numbers in half the memory: int32 (n,), or as they are where some would not fit.

    No table has so many blocks; but a level is what a caller says.
    """
    limit = np.iinfo(np.int32)
    fits = len(values) == 0 or (limit.min <= int(values.min()) and int(values.max()) <= limit.max)
    return values.astype(np.int32 if fits else np.int64)


def dense_ranks(keys: Whole) -> tuple[Whole, int]:
    """Replace each key by its place among the distinct keys.

    Args:
        keys: int64 or int32 (n,), any values whose differences are of the same type.

    Returns:
        Ranks of that type, (n,), from 0, equal for equal keys and in the order of the keys; and the number of
        distinct keys.
    """
    if len(keys) == 0:
        return keys.copy(), 0
    least, greatest = int(keys.min()), int(keys.max())
    places = greatest - least + 1
    if places <= _PLACES_PER_VALUE * len(keys):
        offset = keys - least
        place = np.zeros(places, np.bool_)
        place[offset] = True
        rank_of_place = np.cumsum(place, dtype=keys.dtype)
        count = int(rank_of_place[-1])
        rank_of_place -= 1
        return rank_of_place[offset], count
    order = np.argsort(keys)
    arranged = keys[order]
    rank_in_order = np.zeros(len(keys), keys.dtype)
    np.cumsum(arranged[1:] != arranged[:-1], out=rank_in_order[1:])
    del arranged
    ranks = np.empty_like(keys)
    ranks[order] = rank_in_order
    return ranks, int(rank_in_order[-1]) + 1


def combined_ranks(codes: list[IntArray], sizes: list[int]) -> tuple[IntArray, int]:
    """Rank tuples, compared left to right, given one array of codes for each of their places.

    Args:
        codes: one int64 (n,) for each place, values from 0.
        sizes: for each place, a number greater than all its codes.

    Returns:
        Dense ranks of the tuples, int64 (n,), and the number of distinct tuples.
    """
    key, size = codes[0], sizes[0]
    for code, width in zip(codes[1:], sizes[1:], strict=True):
        if size * width >= 2**62:
            key, size = dense_ranks(key)
        key = key * width + code
        size *= width
    return dense_ranks(key)


def group_starts(keys: IntArray) -> IntArray:
    """Positions at which a new value begins, in keys that stand in groups of equal values.

    Args:
        keys: int64 (n,).

    Returns:
        int64 (groups,): 0 and every i with keys[i] != keys[i - 1]; empty when there are no keys.
    """
    if len(keys) == 0:
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1]).astype(np.int64)
