"""Ranks: integers in the order of the bounds, from what callers pass. Nothing after this step sees a key itself.

Order of a key column: NULL, the values (booleans, numbers, text and binary by byte, dates, timestamps, decimals, or
anything that Python can sort), NaN, unknown upper bounds. This is Spark's order with NULLS FIRST.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.exceptions import BoundsError
from dbt_recluster.planner.arrays import BoolArray, Codes, IntArray, dense_ranks

Keys: TypeAlias = "Sequence[Any] | npt.NDArray[Any] | Any"

# A float64 holds every whole number up to this one.
_EXACT_IN_FLOAT = 2**53

# Keys of one column that are not NULL: numbers, byte strings or Python objects.
_Values: TypeAlias = "npt.NDArray[Any] | pa.LargeBinaryArray"


def rank_column(
    lower: Keys, upper: Keys, unbounded: BoolArray, reads: tuple[Keys, Keys] | None = None
) -> Codes:
    """Encode the bounds of one key column, and those of reads, as integers.

    Args:
        lower: The lower bounds, length n.
        upper: The upper bounds, length n, of the same type.
        unbounded: bool (n,), true where the upper bound is unknown or above every value.
        reads: Lower and upper bounds of m reads; NULL where there is none.

    Returns:
        Codes of the lower and then of the upper bounds of blocks, and likewise of reads, (2n + 2m,). Code 0 is below
        all values, 1 is NULL; the greatest code is above all values, and the one before an unknown upper bound.

    Raises:
        BoundsError: The lengths differ, or the keys cannot be compared with each other.
    """
    columns = [_column(keys) for keys in (lower, upper, *(reads or ()))]
    nulls = [null for null, _ in columns]
    n = len(unbounded)
    if len(nulls[0]) != n or len(nulls[1]) != n:
        raise BoundsError(
            f"bounds must be of one length: {len(nulls[0])} lower, {len(nulls[1])} upper, {n} blocks"
        )
    ranks, distinct = _rank_values([values for _, values in columns])
    null = np.concatenate(nulls)
    codes = np.ones(len(null), np.int64)
    codes[~null if null.any() else slice(None)] = ranks + 2
    codes[n : 2 * n][unbounded] = distinct + 2
    if reads is not None:
        for_lower, for_upper = np.split(codes[2 * n :], 2)
        for_lower[nulls[2]] = 0
        for_upper[nulls[3]] = distinct + 3
    return codes, distinct + 4


def length(keys: Keys) -> int:
    """Number of keys in a sequence, NumPy array or Arrow array."""
    try:
        return len(keys)
    except TypeError:
        raise BoundsError(
            f"bounds must be a list, a NumPy array or an Arrow array, not {type(keys).__name__}"
        ) from None


def _column(keys: Keys) -> tuple[BoolArray, _Values]:
    """Return a mask of the NULLs, and the other keys."""
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return _arrow_column(keys)
    if isinstance(keys, np.ma.MaskedArray):
        null = np.ma.getmaskarray(keys).astype(np.bool_)
        return null, np.asarray(keys.data)[~null]
    array = keys.to_numpy() if hasattr(keys, "to_numpy") else keys
    if isinstance(array, np.ndarray):
        if array.dtype.kind in "biuf":
            return np.zeros(len(array), np.bool_), array
        if array.dtype.kind in "mM":
            null = np.isnat(array)
            return null, array[~null]
        array = array.tolist()
    values = list(array)
    null = np.fromiter((value is None for value in values), np.bool_, len(values))
    return null, _typed([value for value in values if value is not None])


def _arrow_column(keys: Any) -> tuple[BoolArray, _Values]:
    array = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    null, array = np.asarray(array.is_null()), array.drop_null()
    if str(array.type) in ("string", "binary", "large_string", "large_binary", "string_view", "binary_view"):
        return null, array.cast(pa.large_binary())
    if pa.types.is_primitive(array.type):
        return null, array.to_numpy(zero_copy_only=False)
    return null, _typed(array.to_pylist())


def _typed(values: list[Any]) -> _Values:
    types = set(map(type, values))
    if types == {str}:
        return pa.array([value.encode("utf-8", "surrogatepass") for value in values], pa.large_binary())
    if all(issubclass(kind, bytes | bytearray | memoryview) for kind in types):
        return pa.array(map(bytes, values), pa.large_binary())
    if types == {datetime.date}:
        return np.array(values, "datetime64[D]")
    if types == {datetime.datetime} and all(value.tzinfo is None for value in values):
        return np.array(values, "datetime64[us]")
    if all(issubclass(kind, float | np.floating) for kind in types):
        return np.array(values, np.float64)
    if all(issubclass(kind, int | np.integer | np.bool_) for kind in types):
        with suppress(OverflowError):
            return np.fromiter(map(int, values), np.int64, len(values))
    objects = np.empty(len(values), np.object_)
    objects[:] = values
    return objects


def _rank_values(parts: list[_Values]) -> Codes:
    """Dense ranks of the keys, in the order of the parts, and the number of distinct keys."""
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
        return (np.concatenate(parts).astype(np.uint64) ^ np.uint64(2**63)).view(np.int64)
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


def _rank_objects(values: list[Any]) -> Codes:
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
    """Split both bounds into key columns: a list whose first item is itself a sequence is a compound key."""
    lowers, uppers = _columns(lower), _columns(upper)
    if len(lowers) != len(uppers):
        raise BoundsError(f"lower has {len(lowers)} key columns, upper has {len(uppers)}")
    return lowers, uppers


def unbounded_masks(unbounded: Keys | None, n: int, columns: int) -> list[BoolArray]:
    """Check the masks of unknown upper bounds, bool (n,) for each key column."""
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


def number_partitions(partition: Keys | None, n: int) -> Codes:
    """Number the partitions of n blocks, whatever the order of the blocks."""
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


def whole_numbers(name: str, values: Keys | None, n: int, least: int = 0) -> IntArray:
    """Check one whole number of at least ``least`` for each block; None is 0 for all: int64 (n,)."""
    if values is None:
        return np.zeros(n, np.int64)
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
    is_compound = (
        isinstance(keys, list | tuple)
        and len(keys) > 0
        and (isinstance(keys[0], list | tuple | np.ndarray) or hasattr(keys[0], "to_numpy"))
    )
    return list(keys) if is_compound else [keys]


def _as_numpy(values: Keys) -> Any:
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "to_numpy"):
        return np.asarray(values)
    if not isinstance(values, Sequence):
        raise BoundsError(f"expected a list, a NumPy array or an Arrow array, not {type(values).__name__}")
    if {type(value) for value in values} <= {bool, int, float, np.bool_, np.int64}:
        return np.asarray(values)
    objects = np.empty(len(values), np.object_)
    objects[:] = list(values)
    return objects
