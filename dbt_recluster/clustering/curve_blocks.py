"""Blocks under a key with a curve, for the planner: the leading columns, then an interval of the curve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.curve import Curve
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, BoolArray, IntArray
from dbt_recluster.planner.curves import Boxes, curve_of_bounds, extents_along_curve, loads_as_runs

Bounds = tuple[list[pa.Array], list[pa.Array], list[BoolArray], IntArray]


def bounds_along_curve(key: ClusterKey, curve: Curve | None, blocks: BlockMetadata, run: IntArray) -> Bounds:
    """Return the bounds and runs of n blocks for the planner.

    Blocks of a run follow one another along the curve where they have one value of the leading columns. So do those of
    a load, if their bounds show that it came sorted along the curve.

    Args:
        key: A key with a curve.
        curve: The table's curve; None, or one of other types, is drawn from the bounds.
        blocks: The blocks, with the bounds of all columns of the key.
        run: int64 (n,), positive where known.

    Returns:
        Lower bounds, upper bounds and where the latter are unknown, for each leading column and the place on the curve;
        and the runs, int64 (n,).
    """
    leading = len(key.leading)
    lower, upper, unbounded = blocks.lower[:leading], blocks.upper[:leading], blocks.unbounded[:leading]
    columns = curve_columns(key, blocks)
    curve = curve_over(curve, key, blocks)
    first, last = Boxes.of(curve, *columns)
    group, is_one = _groups(blocks.partition, lower, upper, unbounded)
    is_load = is_one & (run <= 0) & (blocks.added_by > 0)
    if is_load.any():
        place = np.flatnonzero(is_load)
        loads = _numbered(group[place], blocks.added_by[place])
        of_load = loads_as_runs(
            [rank[place] for rank in first], [rank[place] for rank in last], loads, curve.bits
        )
        run = run.copy()
        run[place] = np.where(of_load > 0, blocks.added_by[place], run[place])
    known = np.where(is_one & (run > 0), _numbered(group, run), 0)
    begin, end = extents_along_curve(first, last, known, curve.bits)
    none = np.zeros(len(begin), np.bool_)
    return [*lower, pa.array(begin)], [*upper, pa.array(end)], [*unbounded, none], run


def curve_over(curve: Curve | None, key: ClusterKey, blocks: BlockMetadata) -> Curve:
    """Return a table's curve, or one that is drawn from the blocks' bounds if it is None or of other types."""
    if curve is not None and is_curve_of(curve, key, blocks):
        return curve
    return curve_of_bounds(*curve_columns(key, blocks), blocks.rows)


def is_curve_of(curve: Curve, key: ClusterKey, blocks: BlockMetadata) -> bool:
    """Whether the boundaries of a curve are of the types that the blocks' bounds have."""
    lower, _, _ = curve_columns(key, blocks)
    return [ends.type for ends in curve.boundaries] == [column.type for column in lower]


def curve_columns(
    key: ClusterKey, blocks: BlockMetadata
) -> tuple[list[pa.Array], list[pa.Array], list[BoolArray]]:
    """Return the bounds of the curve's columns, and where upper ones are unknown."""
    leading = len(key.leading)
    return blocks.lower[leading:], blocks.upper[leading:], blocks.unbounded[leading:]


def _groups(
    partition: IntArray, lower: Sequence[pa.Array], upper: Sequence[pa.Array], unbounded: Sequence[BoolArray]
) -> tuple[IntArray, BoolArray]:
    """Number the partitions and values of leading columns, int64 (n,); and where there is one value, bool (n,)."""
    group, is_one = partition, np.ones(len(partition), np.bool_)
    for low, high, unknown in zip(lower, upper, unbounded, strict=True):
        both = pa.concat_arrays([low, high.cast(low.type)]).dictionary_encode(null_encoding="encode")
        codes = np.asarray(both.indices.to_numpy(zero_copy_only=False), np.int64)
        is_one &= (codes[: len(low)] == codes[len(low) :]) & ~unknown
        group = _numbered(group, codes[: len(low)])
    return group, is_one


def _numbered(left: IntArray, right: IntArray) -> IntArray:
    """Number the pairs of two arrays from 1: int64 (n,)."""
    pairs = np.stack([left, right], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64) + 1
