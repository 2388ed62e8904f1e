"""The bounds of a key item, from the metrics that Iceberg keeps of its column. Arrow in, Arrow and NumPy out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.cluster_key import KeyField

_MICROS_PER_HOUR = 3_600_000_000
_MICROS_PER_DAY = 24 * _MICROS_PER_HOUR

BoolArray = npt.NDArray[np.bool_]


def key_bounds(metrics: pa.StructArray, field: KeyField) -> tuple[pa.Array, pa.Array, BoolArray]:
    """Return the least and greatest value of a key item in each block, and where the greatest is unknown.

    Args:
        metrics: One struct for each block, as in Iceberg's ``readable_metrics``: ``value_count``,
            ``null_value_count``, ``nan_value_count``, ``lower_bound``, ``upper_bound``. Shape (n,).
        field: The key item.

    Returns:
        ``(lower, upper, unbounded)``, each of shape (n,). Iceberg's bounds ignore NULL and NaN; these do not:

        - A NULL in the block makes its lower bound NULL (NULLS FIRST). A block that holds only NULLs has two NULL
          bounds.
        - A NaN makes its upper bound NaN, which Spark sorts above every number.
        - Missing metrics mean the worst case: an unknown count of NULLs may be positive, and a block without bounds has
          a NULL lower bound and is unbounded above.
    """
    lower, upper = metrics.field("lower_bound"), metrics.field("upper_bound")
    values = _counts(metrics, "value_count")
    nulls = _counts(metrics, "null_value_count")
    all_null = (values >= 0) & (nulls == values)
    known = lower.is_valid().to_numpy(zero_copy_only=False)
    bounded = upper.is_valid().to_numpy(zero_copy_only=False)
    unbounded = ~bounded & ~all_null

    if pa.types.is_floating(lower.type):
        nans = _counts(metrics, "nan_value_count")
        only_nans = (values >= 0) & (nans > 0) & (np.maximum(nulls, 0) + nans == values)
        nan = pa.scalar(float("nan"), lower.type)
        lower = pc.if_else(pa.array(only_nans), nan, lower)
        upper = pc.if_else(pa.array(nans > 0), nan, upper)
        known |= only_nans
        unbounded = ((~bounded & (nans <= 0)) | (nans < 0)) & ~all_null

    null_first = ~known | (nulls != 0)
    lower, upper = transform_values(lower, field), transform_values(upper, field)
    lower = pc.if_else(pa.array(null_first), pa.scalar(None, lower.type), lower)
    return lower, upper, unbounded


def transform_values(values: pa.Array, field: KeyField) -> pa.Array:
    """Apply a key item's transform to values of its column, as Iceberg's specification defines it.

    NULL stays NULL. Times become whole hours, days, months or years since 1970 (UTC); numbers and strings are
    truncated.
    """
    kind = values.type
    if field.transform == "truncate":
        assert field.width is not None
        return _truncate(values, field.width)
    if field.transform == "identity":
        is_time = pa.types.is_temporal(kind) and not pa.types.is_date32(kind)
        return values.cast(pa.int64()) if is_time else values
    is_date = pa.types.is_date32(kind)
    raw = _with_nulls_filled(values.cast(pa.int32()).cast(pa.int64()) if is_date else values.cast(pa.int64()))
    if field.transform == "hour":
        numbers = raw // _MICROS_PER_HOUR
    else:
        days = raw if is_date else raw // _MICROS_PER_DAY
        unit = {"day": "D", "month": "M", "year": "Y"}[field.transform]
        numbers = days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64)
    return _like(numbers, values)


def _truncate(values: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return pc.utf8_slice_codeunits(values, 0, width)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return pc.binary_slice(values, 0, width)
    if pa.types.is_decimal(values.type):
        scale = values.type.scale
        unscaled = [None if v is None else int(v.scaleb(scale)) for v in values.to_pylist()]
        # Python integers, because an unscaled decimal may have 38 digits.
        return pa.array([None if v is None else str(v - v % width) for v in unscaled]).cast(
            pa.decimal256(40, 0)
        )
    raw = _with_nulls_filled(values.cast(pa.int64()))
    return _like(raw - raw % width, values)


def _counts(metrics: pa.StructArray, name: str) -> npt.NDArray[np.int64]:
    """Return one count for each block, -1 if it is not recorded."""
    return np.asarray(metrics.field(name).fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _with_nulls_filled(values: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)


def _like(numbers: npt.NDArray[Any], values: pa.Array) -> pa.Array:
    return pa.array(numbers, type=pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))
