"""Ranks: integers in the order of the bounds, from what callers pass. Nothing after this step sees a key itself.

Order of a key column: NULL, the values (booleans, numbers, text and binary by byte, dates, timestamps, decimals, or
anything that Python can sort), NaN, unknown upper bounds. This is Spark's order with NULLS FIRST.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.exceptions import BoundsError
from dbt_recluster.planner.arrays import BoolArray, Codes, IntArray, dense_ranks

Keys: TypeAlias = "Sequence[Any] | npt.NDArray[Any] | Any"


def rank_column(lower: Keys, upper: Keys, unbounded: BoolArray, reads: tuple[Keys, Keys] | None = None) -> Codes:
    """Encode one key column of the bounds of n blocks, and of m reads, where NULL is no bound, as integers.

    Returns:
        Codes of the lower and then of the upper bounds of blocks, then those of reads, (2n + 2m,). Code 0 is below
        all values, 1 is NULL; the greatest code is above all values, and the one before an unknown upper bound.

    Raises:
        BoundsError: The lengths differ, or the keys cannot be compared with each other.
    """
    columns, n = [lower, upper, *(reads or ())], len(unbounded)
    lengths = [length(keys) for keys in columns]
    if lengths[:2] != [n, n]:
        raise BoundsError(f"bounds must be of one length: {lengths[0]} lower, {lengths[1]} upper, {n} blocks")
    ranks, distinct = _rank_values(columns)
    codes = ranks + 2
    codes[n : 2 * n][unbounded] = distinct + 2
    for_lower, for_upper = np.split(codes[2 * n :], 2)
    for_lower[for_lower == 1] = 0
    for_upper[for_upper == 1] = distinct + 3
    return codes, distinct + 4


def length(keys: Keys) -> int:
    """Number of keys in a sequence, NumPy array or Arrow array."""
    try:
        return len(keys)
    except TypeError:
        kind = type(keys).__name__
        raise BoundsError(f"bounds must be a list, a NumPy array or an Arrow array, not {kind}") from None


def _rank_values(columns: list[Keys]) -> Codes:
    """Dense ranks of the keys in the order of the columns, -1 for NULL, and the number of distinct keys."""
    try:
        arrays = [_arrow_array(keys) for keys in columns]
        if any(pa.types.is_timestamp(keys.type) for keys in arrays):
            arrays = [k.cast(pa.timestamp("s")) if pa.types.is_date(k.type) else k for k in arrays]
        tables = [pa.table({"key": keys}) for keys in arrays]
        # Casts that lose something are errors. Those of decimals to floats are not.
        types = {table["key"].type for table in tables} - {pa.null()}
        if len({pa.types.is_decimal(kind) for kind in types}) > 1:
            return _rank_objects(columns)
        keys = pa.concat_tables(tables, promote_options="permissive")["key"].combine_chunks()
        valid, keys = np.asarray(keys.is_valid()), keys.drop_null()
        ranks = np.full(len(valid), -1)
        if pa.types.is_temporal(keys.type):
            keys = keys.cast(pa.int32() if keys.type.bit_width == 32 else pa.int64())
        if pa.types.is_signed_integer(keys.type):
            ranks[valid], distinct = dense_ranks(keys.to_numpy().astype(np.int64))
            return ranks, distinct
        if len(keys):
            ranks[valid] = pc.rank(keys, tiebreaker="dense").to_numpy().astype(np.int64) - 1
        return ranks, int(ranks.max(initial=-1)) + 1
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _rank_objects(columns)


def _arrow_array(keys: Keys) -> pa.Array:
    """Convert keys to an Arrow array, with text as bytes and timestamps without a zone."""
    array = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys, from_pandas=False)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if str(array.type) in ("string", "binary", "large_string", "large_binary", "string_view", "binary_view"):
        return array.cast(pa.large_binary())
    return array.cast(pa.timestamp(array.type.unit)) if pa.types.is_timestamp(array.type) else array


def _rank_objects(columns: list[Keys]) -> Codes:
    """Rank keys by Python's comparison, for types that Arrow cannot sort; NaN ranks above all values."""
    try:
        arrays = [keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys for keys in columns]
        values = [key for keys in arrays for key in (keys.tolist() if hasattr(keys, "tolist") else keys)]
        distinct = sorted({value for value in values if value is not None and value == value})
    except (TypeError, ValueError, OverflowError) as error:
        raise BoundsError(f"bounds cannot be compared: {error}") from None
    rank_of = {value: rank for rank, value in enumerate(distinct)} | {None: -1}
    ranks = np.fromiter((rank_of.get(value, len(distinct)) for value in values), np.int64, len(values))
    return ranks, max(len(distinct), int(ranks.max(initial=-1)) + 1)


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
    """Number the partitions of n blocks, independently of the order of the blocks."""
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
        raise BoundsError(f"{name} must be at least {least}, and is {numbers.min()} at position {numbers.argmin()}")
    return numbers


def _columns(keys: Keys) -> list[Keys]:
    first = keys[0] if isinstance(keys, list | tuple) and keys else None
    is_compound = isinstance(first, list | tuple | np.ndarray) or hasattr(first, "to_numpy")
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
