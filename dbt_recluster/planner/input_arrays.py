"""Checks of the arrays that `Blocks.build` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dbt_recluster.exceptions import BoundsError
from dbt_recluster.planner.arrays import BoolArray, IntArray, dense_ranks
from dbt_recluster.planner.ranks import Keys


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
    masks = [_numpy(mask).astype(np.bool_) for mask in _columns(unbounded)]
    if len(masks) != columns and len(masks) > 1:
        raise BoundsError(f"unbounded has {len(masks)} masks for {columns} key columns")
    for mask in masks:
        if mask.shape != (n,):
            raise BoundsError(f"unbounded must have {n} values for each key column, not {mask.shape}")
    # One mask for a compound key applies to the whole tuple, which its first column decides.
    return masks if len(masks) == columns else masks * columns


def partition_codes(partition: Keys | None, n: int) -> tuple[IntArray, int]:
    """Number the partitions.

    Returns:
        Codes from 0, int64 (n,), which do not depend on the order of the blocks, and the number of partitions.

    Raises:
        BoundsError: There are not n values.
    """
    if partition is None:
        return np.zeros(n, np.int64), 1
    values = _numpy(partition)
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
    array = _numpy(values)
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
    return (
        isinstance(item, list | tuple | np.ndarray)
        or hasattr(item, "null_count")
        or hasattr(item, "to_numpy")
    )


def _numpy(values: Keys) -> Any:
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "to_numpy"):
        return values.to_numpy() if not hasattr(values, "null_count") else np.asarray(values)
    if not isinstance(values, Sequence):
        raise BoundsError(f"expected a list, a NumPy array or an Arrow array, not {type(values).__name__}")
    objects = np.empty(len(values), np.object_)
    objects[:] = list(values)
    numbers = {type(value) for value in values} <= {bool, int, float, np.bool_, np.int64}
    return np.asarray(values) if numbers else objects
