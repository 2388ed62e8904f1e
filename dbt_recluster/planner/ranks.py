"""Ranks: integers in the order of the bounds, from what callers pass. Nothing after this step sees a key itself.

Order of a key column: NULL, the values (booleans, numbers, text and binary by byte, dates, timestamps, decimals, or
anything that Python can sort), NaN, unknown upper bounds. This is Spark's order with NULLS FIRST.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.exceptions import BoundsError
from dbt_recluster.planner.arrays import BoolArray, IntArray, dense_ranks

Keys: TypeAlias = "Sequence[Any] | npt.NDArray[Any] | Any"

# A float64 holds every whole number up to this one.
_EXACT_IN_FLOAT = 2**53
# Maps uint64, read as int64, to int64 in the same order.
_FLIP_SIGN = np.int64(-(2**63))


@dataclass(frozen=True)
class _Column:
    """Keys of one column: a mask of the NULLs, and the other keys as numbers, byte strings or Python objects."""

    null: BoolArray
    values: npt.NDArray[Any] | pa.LargeBinaryArray


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
    if isinstance(keys, pa.Array | pa.ChunkedArray):
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
    array = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    null = np.zeros(len(array), np.bool_)
    if array.null_count:
        null = array.is_null().to_numpy(zero_copy_only=False)
        array = array.drop_null()
    kind = str(array.type)
    if kind in ("string", "binary", "large_string", "large_binary", "string_view", "binary_view"):
        return _Column(null, array.cast(pa.large_binary()))
    if kind.startswith(
        ("int", "uint", "float", "double", "halffloat", "bool", "date", "timestamp", "duration")
    ):
        return _Column(null, array.to_numpy(zero_copy_only=False))
    # Times, decimals and everything rarer: as Python objects.
    return _Column(null, _object_column(array.to_pylist()).values)


def _object_column(values: list[Any]) -> _Column:
    null = np.fromiter((value is None for value in values), np.bool_, len(values))
    if null.any():
        values = [value for value in values if value is not None]
    types = set(map(type, values))
    if not types:
        return _Column(null, np.zeros(0, np.int64))
    if types == {str}:
        return _Column(
            null, pa.array([value.encode("utf-8", "surrogatepass") for value in values], pa.large_binary())
        )
    if all(issubclass(kind, bytes | bytearray | memoryview) for kind in types):
        return _Column(null, pa.array(map(bytes, values), pa.large_binary()))
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


def _rank_values(parts: list[npt.NDArray[Any] | pa.LargeBinaryArray]) -> tuple[IntArray, int]:
    """Dense ranks of the keys that are not NULL, in the order of the parts, and the number of distinct keys."""
    # An empty part has no type.
    parts = [part for part in parts if len(part)]
    texts = [part for part in parts if isinstance(part, pa.LargeBinaryArray)]
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if texts and arrays:
        raise BoundsError("bounds cannot be compared: text in some of them, something else in others")
    if texts:
        ranks = pc.rank(pa.concat_arrays(texts), tiebreaker="dense").to_numpy().astype(np.int64) - 1
        return ranks, int(ranks.max()) + 1
    if not arrays:
        return np.zeros(0, np.int64), 0
    keys = _sortable(arrays)
    if keys is None:
        return _rank_objects([value for array in arrays for value in array.tolist()])
    return dense_ranks(keys)


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


def key_columns(lower: Keys, upper: Keys) -> tuple[list[Keys], list[Keys]]:
    """Split both bounds into key columns: a list whose first item is itself a sequence is a compound key.

    Raises:
        BoundsError: The numbers of columns differ.
    """
    lowers, uppers = _columns(lower), _columns(upper)
    if len(lowers) != len(uppers):
        raise BoundsError(f"lower has {len(lowers)} key columns, upper has {len(uppers)}")
    return lowers, uppers


def unbounded_masks(unbounded: Keys | None, n: int, columns: int) -> list[BoolArray]:
    """Check the masks of unknown upper bounds, bool (n,) for each key column.

    Raises:
        BoundsError: The number of masks or of their values is wrong.
    """
    if unbounded is None:
        return [np.zeros(n, np.bool_)] * columns
    masks = [_as_numpy(mask).astype(np.bool_) for mask in _columns(unbounded)]
    if len(masks) != columns and len(masks) > 1:
        raise BoundsError(f"unbounded has {len(masks)} masks for {columns} key columns")
    for mask in masks:
        if mask.shape != (n,):
            raise BoundsError(f"unbounded must have {n} values for each key column, not {mask.shape}")
    # One mask for a compound key applies to the whole tuple, which its first column decides.
    return masks if len(masks) == columns else masks * columns


def number_partitions(partition: Keys | None, n: int) -> tuple[IntArray, int]:
    """Number the partitions.

    Returns:
        Codes from 0, int64 (n,), which do not depend on the order of the blocks, and the number of partitions.

    Raises:
        BoundsError: There are not n values.
    """
    if partition is None:
        return np.zeros(n, np.int64), 1
    values = _as_numpy(partition)
    if len(values) != n:
        raise BoundsError(f"partition must have {n} values, not {len(values)}")
    if values.dtype.kind in "biu":
        codes, count = dense_ranks(values.astype(np.int64))
        return codes, max(count, 1)
    objects = values.tolist()
    distinct = sorted(set(objects), key=lambda value: (str(type(value)), repr(value)))
    code_of = {value: code for code, value in enumerate(distinct)}
    return np.fromiter(map(code_of.__getitem__, objects), np.int64, n), max(len(distinct), 1)


def whole_numbers(name: str, values: Keys, n: int, least: int = 0) -> IntArray:
    """Check one whole number for each block, int64 (n,).

    Raises:
        BoundsError: There are not n values, or one is not a whole number or below ``least``.
    """
    array = _as_numpy(values)
    if array.shape != (n,):
        raise BoundsError(f"{name} must have {n} values, not {array.shape}")
    if n and array.dtype.kind not in "biu":
        raise BoundsError(f"{name} must be whole numbers, not {array.dtype}")
    numbers: IntArray = array.astype(np.int64)
    if n and int(numbers.min()) < least:
        raise BoundsError(
            f"{name} must be at least {least}, and is {numbers.min()} at position {numbers.argmin()}"
        )
    return numbers


def _columns(keys: Keys) -> list[Keys]:
    compound = isinstance(keys, list | tuple) and len(keys) > 0 and _is_column(keys[0])
    return list(keys) if compound else [keys]


def _is_column(item: Any) -> bool:
    return isinstance(item, list | tuple | np.ndarray) or hasattr(item, "to_numpy")


def _as_numpy(values: Keys) -> Any:
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "to_numpy"):
        return np.asarray(values) if isinstance(values, pa.Array | pa.ChunkedArray) else values.to_numpy()
    if not isinstance(values, Sequence):
        raise BoundsError(f"expected a list, a NumPy array or an Arrow array, not {type(values).__name__}")
    objects = np.empty(len(values), np.object_)
    objects[:] = list(values)
    numbers = {type(value) for value in values} <= {bool, int, float, np.bool_, np.int64}
    return np.asarray(values) if numbers else objects
