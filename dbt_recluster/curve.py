"""A Hilbert curve over the columns of a key: over ranks, so that skew and types do not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.hilbert import hilbert_index

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.floating[Any]]

# 2**10 parts of each column: 2**6 open as few blocks of 1,024, 2**4 a fifth more (docs/design/curves.md).
BITS = 10


@dataclass(frozen=True, eq=False)
class Curve:
    """A Hilbert curve over equal shares of each column.

    Attributes:
        boundaries: For each column, ascending values without NULL and NaN, (2**bits - 1,). A value's rank is the number
            of boundaries that are not above it, so values outside go to the end parts.
        bits: The columns have 2**bits parts each.
    """

    boundaries: tuple[pa.Array, ...]
    bits: int = BITS

    @classmethod
    def of(
        cls, columns: Sequence[pa.Array], weights: Sequence[FloatArray] | None = None, bits: int = BITS
    ) -> Curve:
        """Cut columns into equal shares of rows.

        Args:
            columns: Values of each column. NULL and NaN lie beyond all boundaries and cut nothing; a column without
                other values is cut anywhere.
            weights: The rows that each value stands for; None is one.
            bits: The parts to cut into.
        """
        boundaries = []
        for number, column in enumerate(columns):
            valid = np.asarray(column.is_valid())
            if pa.types.is_floating(column.type):
                valid &= ~np.isnan(column.to_numpy(zero_copy_only=False).astype(np.float64))
            place = np.flatnonzero(valid)
            if not len(place):
                boundaries.append(_anywhere(column.type, (1 << bits) - 1))
                continue
            order = place[np.asarray(pc.sort_indices(column.take(pa.array(place))))]
            weight = np.ones(len(order)) if weights is None else weights[number][order]
            total = np.cumsum(weight)
            share = np.arange(1, 1 << bits) / (1 << bits) * total[-1]
            cut = np.minimum(np.searchsorted(total, share, side="right"), len(order) - 1)
            boundaries.append(column.take(pa.array(order[cut])))
        return cls(tuple(boundaries), bits)

    def ranks(self, columns: Sequence[pa.Array]) -> list[IntArray]:
        """The part that each value lies in, int64 (n,) for each column; NULL is in the first one, NaN in the last."""
        return [_ranks(ends, values) for ends, values in zip(self.boundaries, columns, strict=True)]

    def index(self, columns: Sequence[pa.Array]) -> IntArray:
        """The place of each row on the curve: int64 (n,)."""
        return hilbert_index(self.ranks(columns), self.bits)


def _anywhere(kind: pa.DataType, count: int) -> pa.Array:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.array([b""] * count, kind)
    value = False if pa.types.is_boolean(kind) else date(1970, 1, 1) if pa.types.is_date32(kind) else 0
    return pa.array([value] * count, kind)


def _ranks(boundaries: pa.Array, values: pa.Array) -> IntArray:
    valid = np.asarray(values.is_valid())
    ends, numbers = _as_numbers(boundaries), _as_numbers(values)
    if ends is not None and numbers is not None:
        rank = np.searchsorted(ends, numbers, side="right")
    else:
        rank = _bisect_right(boundaries, values.cast(boundaries.type))
    return np.where(valid, rank, 0).astype(np.int64)


def _bisect_right(ends: pa.Array, values: pa.Array) -> IntArray:
    """Number of ends, ascending, that are not above each value: int64 (n,), any number for NULL."""
    rank = np.zeros(len(values), np.int64)
    step = 1 << (len(ends).bit_length() - 1)
    while step:
        # Comparing all values at once is two to three times as fast as sorting them.
        place = rank + step
        end = ends.take(pa.array(np.minimum(place, len(ends)) - 1))
        is_below = np.asarray(pc.fill_null(pc.less_equal(end, values), False))
        rank = np.where(is_below & (place <= len(ends)), place, rank)
        step //= 2
    return rank


def _as_numbers(values: pa.Array) -> npt.NDArray[np.generic] | None:
    """Values as NumPy sorts them, 0 for NULL; None if their type is not one of numbers."""
    kind = values.type
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    return np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))
