"""Ranks: integers in the order of the bounds. Nothing after this step sees a key itself.

Order of a key column: NULL, the values (booleans, numbers, text and binary by byte, dates, timestamps, decimals, or
anything that Python can sort), NaN, unknown upper bounds. This is Spark's order with NULLS FIRST.

Arrow arrays are read through their own methods and buffers, so this module does not import Arrow.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dbt_recluster.exceptions import BoundsError
from dbt_recluster.planner.arrays import BoolArray, IntArray, dense_ranks

Keys: TypeAlias = "Sequence[Any] | npt.NDArray[Any] | Any"

# A float64 holds every whole number up to this one.
_EXACT_IN_FLOAT = 2**53
# Maps uint64, read as int64, to int64 in the same order.
_FLIP_SIGN = np.int64(-(2**63))


@dataclass(frozen=True)
class _Text:
    """Byte strings: string i is ``data[offsets[i]:offsets[i] + lengths[i]]``."""

    data: npt.NDArray[np.uint8]
    offsets: IntArray
    lengths: IntArray


@dataclass(frozen=True)
class _Column:
    """Keys of one column: a mask of the NULLs, and the other keys as numbers, text or Python objects."""

    null: BoolArray
    values: npt.NDArray[Any] | _Text


def rank_column(
    lower: Keys, upper: Keys, unbounded: BoolArray, reads: tuple[Keys, Keys] | None = None
) -> tuple[IntArray, int]:
    """Encode the bounds of one key column, and those of reads, as integers.

    Args:
        lower: The lower bounds, length n.
        upper: The upper bounds, length n, of the same type.
        unbounded: bool (n,), true where the upper bound is unknown or above every value.
        reads: Lower and upper bounds of m reads; NULL where there is none.

    Returns:
        Codes of the lower and then of the upper bounds of blocks, and likewise of reads, int64 (2n + 2m,), and a number
        greater than all of them. Code 0 is below all values, 1 is NULL; the greatest code is above all values, and the
        next an unknown upper bound.

    Raises:
        BoundsError: The lengths differ, or the keys cannot be compared with each other.
    """
    low, high = _column(lower), _column(upper)
    n = len(unbounded)
    if len(low.null) != n or len(high.null) != n:
        raise BoundsError(
            f"bounds must be of one length: {len(low.null)} lower, {len(high.null)} upper, {n} blocks"
        )
    ends = [_column(keys) for keys in reads or ()]
    ranks, distinct = _rank_values([column.values for column in (low, high, *ends)])
    null = np.concatenate([column.null for column in (low, high, *ends)])
    if null.any():
        codes = np.ones(len(null), np.int64)
        codes[~null] = ranks + 2
    else:
        codes = ranks
        codes += 2
    codes[n : 2 * n][unbounded] = distinct + 2
    if ends:
        for_lower, for_upper = np.split(codes[2 * n :], 2)
        for_lower[ends[0].null] = 0
        for_upper[ends[1].null] = distinct + 3
    return codes, distinct + 4


def length(keys: Keys) -> int:
    """Number of keys in a sequence, NumPy array or Arrow array."""
    try:
        return len(keys)
    except TypeError:
        raise BoundsError(
            f"bounds must be a list, a NumPy array or an Arrow array, not {type(keys).__name__}"
        ) from None


def _column(keys: Keys) -> _Column:
    if hasattr(keys, "null_count") and hasattr(keys, "to_pylist"):
        return _arrow_column(keys)
    if isinstance(keys, np.ma.MaskedArray):
        null = np.ma.getmaskarray(keys).astype(np.bool_)
        return _Column(null, np.asarray(keys.data)[~null])
    array = keys if isinstance(keys, np.ndarray) else keys.to_numpy() if hasattr(keys, "to_numpy") else None
    if array is not None and array.dtype.kind in "biuf":
        return _Column(np.zeros(len(array), np.bool_), array)
    if array is not None and array.dtype.kind in "mM":
        null = np.isnat(array)
        return _Column(null, array[~null])
    return _object_column(list(array.tolist() if array is not None else keys))


def _arrow_column(keys: Any) -> _Column:
    array = keys.combine_chunks() if hasattr(keys, "combine_chunks") else keys
    if hasattr(array, "dictionary_decode"):
        array = array.dictionary_decode()
    kind = str(array.type)
    if kind in ("string_view", "binary_view"):
        array = array.cast("large_string" if kind == "string_view" else "large_binary")
        kind = str(array.type)
    null = np.zeros(len(array), np.bool_)
    if array.null_count:
        null = array.is_null().to_numpy(zero_copy_only=False)
        array = array.drop_null()
    if kind in ("string", "binary", "large_string", "large_binary"):
        return _Column(null, _arrow_text(array, np.dtype(np.int64 if kind.startswith("large") else np.int32)))
    if kind.startswith(
        ("int", "uint", "float", "double", "halffloat", "bool", "date", "timestamp", "duration")
    ):
        return _Column(null, array.to_numpy(zero_copy_only=False))
    if kind == "null":
        return _Column(null, np.zeros(0, np.int64))
    # Times, decimals and everything rarer: as Python objects.
    column = _object_column(array.to_pylist())
    return _Column(null, column.values)


def _arrow_text(array: Any, offset_type: np.dtype[Any]) -> _Text:
    _, offset_buffer, data_buffer = array.buffers()
    n = len(array)
    if n == 0 or data_buffer is None:
        return _Text(np.zeros(0, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64))
    ends = np.frombuffer(offset_buffer, offset_type)[array.offset : array.offset + n + 1].astype(np.int64)
    return _Text(np.frombuffer(data_buffer, np.uint8), ends[:-1], np.diff(ends))


def _object_column(values: list[Any]) -> _Column:
    null = np.fromiter((value is None for value in values), np.bool_, len(values))
    if null.any():
        values = [value for value in values if value is not None]
    types = set(map(type, values))
    if not types:
        return _Column(null, np.zeros(0, np.int64))
    if types == {str}:
        return _Column(null, _text([value.encode("utf-8", "surrogatepass") for value in values]))
    if all(issubclass(kind, bytes | bytearray | memoryview) for kind in types):
        return _Column(null, _text([bytes(value) for value in values]))
    if types == {datetime.date}:
        return _Column(null, np.array(values, "datetime64[D]"))
    if types == {datetime.datetime} and all(value.tzinfo is None for value in values):
        return _Column(null, np.array(values, "datetime64[us]"))
    if all(issubclass(kind, int | np.integer | np.bool_) for kind in types):
        try:
            return _Column(null, np.fromiter(map(int, values), np.int64, len(values)))
        except OverflowError:
            pass
    elif all(issubclass(kind, float | np.floating) for kind in types):
        return _Column(null, np.array(values, np.float64))
    objects = np.empty(len(values), np.object_)
    objects[:] = values
    return _Column(null, objects)


def _text(values: list[bytes]) -> _Text:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    data = np.frombuffer(b"".join(values), np.uint8)
    return _Text(data, np.cumsum(lengths) - lengths, lengths)


def _rank_values(parts: list[npt.NDArray[Any] | _Text]) -> tuple[IntArray, int]:
    """Dense ranks of the keys that are not NULL, in the order of the parts, and the number of distinct keys."""
    # An empty part has no type.
    parts = [part for part in parts if _count(part)]
    texts = [part for part in parts if isinstance(part, _Text)]
    arrays = [part for part in parts if not isinstance(part, _Text)]
    if texts and arrays:
        raise BoundsError("bounds cannot be compared: text in some of them, something else in others")
    if texts:
        return dense_ranks(_text_order(_joined(texts)))
    if not arrays:
        return np.zeros(0, np.int64), 0
    keys = _sortable(arrays)
    if keys is None:
        return _rank_objects([value for array in arrays for value in array.tolist()])
    return dense_ranks(keys)


def _joined(texts: list[_Text]) -> _Text:
    starts = np.cumsum([0, *(len(text.data) for text in texts)]).tolist()
    return _Text(
        np.concatenate([text.data for text in texts]),
        np.concatenate([text.offsets + start for text, start in zip(texts, starts[:-1], strict=True)]),
        np.concatenate([text.lengths for text in texts]),
    )


def _count(values: npt.NDArray[Any] | _Text) -> int:
    return len(values.lengths if isinstance(values, _Text) else values)


def _sortable(parts: list[npt.NDArray[Any]]) -> IntArray | None:
    """Convert to int64 in the same order, or return None where only Python compares these types without loss."""
    kinds = {part.dtype.kind for part in parts}
    if kinds <= set("bi"):
        return np.concatenate(parts).astype(np.int64, copy=False)
    if kinds == {"u"}:
        flipped: IntArray = np.concatenate(parts).astype(np.uint64).view(np.int64) ^ _FLIP_SIGN
        return flipped
    if kinds in ({"m"}, {"M"}):
        return np.concatenate(parts).view(np.int64)
    if kinds <= set("biuf") and all(
        part.dtype.kind == "f" or max(-int(part.min()), int(part.max())) <= _EXACT_IN_FLOAT for part in parts
    ):
        return _float_order(np.concatenate([part.astype(np.float64) for part in parts]))
    return None


def _float_order(values: npt.NDArray[np.float64]) -> IntArray:
    """Convert floats to integers in the same order. All NaN become one integer, the greatest."""
    values += 0.0  # makes 0.0 of -0.0
    values[np.isnan(values)] = np.nan
    bits = values.view(np.int64)
    order: IntArray = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
    return order


def _rank_objects(values: list[Any]) -> tuple[IntArray, int]:
    # NaN equals nothing, itself included, and ranks above all values.
    nan = np.fromiter((value != value for value in values), np.bool_, len(values))
    try:
        distinct = sorted({value for value in values if value == value})
    except TypeError as error:
        raise BoundsError(f"bounds cannot be compared: {error}") from None
    rank_of = {value: rank for rank, value in enumerate(distinct)}
    ranks = np.fromiter((rank_of.get(value, len(distinct)) for value in values), np.int64, len(values))
    return ranks, len(distinct) + int(nan.any())


def _text_order(text: _Text) -> IntArray:
    """Compare byte strings eight bytes at a time, and only as far as strings are still tied.

    Returns:
        int64 (n,): integers in the order of the strings, equal for equal strings.
    """
    n = len(text.lengths)
    rank = np.zeros(n, np.int64)  # number of strings known to be less
    padded = np.concatenate([text.data, np.zeros(8, np.uint8)])
    words: np.ndarray[tuple[int], np.dtype[np.uint64]] = np.ndarray(
        (len(padded) - 7,), np.dtype(">u8"), padded.data, 0, (1,)
    )
    tied = np.arange(n)
    compared = 0  # bytes
    while len(tied):
        left = np.clip(text.lengths[tied] - compared, 0, 9)  # bytes left, 9 for more than a word
        used = np.minimum(left, 8).astype(np.uint64)
        word = words[np.minimum(text.offsets[tied] + compared, len(words) - 1)].astype(np.uint64)
        unused = (np.uint64(8) - used) % np.uint64(8) * np.uint64(8)
        word = np.where(used == 0, np.uint64(0), word >> unused)
        word <<= unused
        order = np.lexsort((left, word, rank[tied])) if compared else np.lexsort((left, word))
        tied, word, left = tied[order], word[order], left[order]
        tie = rank[tied]
        new_tie = np.concatenate([[True], tie[1:] != tie[:-1]])
        new = new_tie.copy()
        new[1:] |= (word[1:] != word[:-1]) | (left[1:] != left[:-1])
        position = np.arange(len(tied))
        start_of_tie = np.maximum.accumulate(np.where(new_tie, position, 0))
        start = np.maximum.accumulate(np.where(new, position, 0))
        rank[tied] = tie + start - start_of_tie
        group = np.cumsum(new) - 1
        tied = tied[(left == 9) & (np.bincount(group)[group] > 1)]
        compared += 8
    return rank
