"""The bounds of a key item, from the metrics that Iceberg keeps of its column. Arrow in, Arrow and NumPy out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.transforms import Transform

BoolArray = npt.NDArray[np.bool_]


def key_bounds(metrics: pa.StructArray, transform: Transform) -> tuple[pa.Array, pa.Array, BoolArray]:
    """Return the least and greatest value of a key item in each block, and where the greatest is unknown.

    Args:
        metrics: One struct for each block, as in Iceberg's ``readable_metrics``: ``value_count``,
            ``null_value_count``, ``nan_value_count``, ``lower_bound``, ``upper_bound``. Shape (n,).
        transform: The transform of the key item.

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
    lower, upper = transform.values(lower), transform.values(upper)
    lower = pc.if_else(pa.array(null_first), pa.scalar(None, lower.type), lower)
    return lower, upper, unbounded


def _counts(metrics: pa.StructArray, name: str) -> npt.NDArray[np.int64]:
    """Return one count for each block, -1 if it is not recorded."""
    return np.asarray(metrics.field(name).fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)
