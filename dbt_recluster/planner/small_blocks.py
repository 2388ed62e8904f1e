"""Small blocks: which blocks are small, how full a block is, and how fragmented a table is."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, Int32Array, IntArray
from dbt_recluster.planner.blocks import Blocks


def small_blocks(
    rows: IntArray | Int32Array, size: IntArray | Int32Array, block_rows: int, block_bytes: int | None
) -> BoolArray:
    """Blocks that hold less than half of what a full block may, in rows and in bytes: bool (n,).

    Args:
        rows: Rows of each block, (n,).
        size: Bytes of each block, (n,).
        block_rows: Rows in a full block.
        block_bytes: Bytes in a full block, or None if unknown; then rows alone count.
    """
    small: BoolArray = rows < block_rows / 2
    if block_bytes is not None:
        small &= size < block_bytes / 2
    return small


def small_in(blocks: Blocks, block_rows: int, block_bytes: int | None) -> BoolArray:
    """Small blocks of a table: bool (n,). Blocks whose rows are unknown count as full."""
    if blocks.rows is None:
        return np.zeros(len(blocks), np.bool_)
    size = np.zeros_like(blocks.rows) if blocks.bytes is None else blocks.bytes
    return small_blocks(blocks.rows, size, block_rows, block_bytes)


def equivalent_rows(
    rows: IntArray | Int32Array, size: IntArray | Int32Array, block_rows: int, block_bytes: int | None
) -> IntArray:
    """Size of each block in rows, where a block full in bytes counts as full in rows: int64 (n,), at least 1.

    Whole numbers, so that ten blocks of a tenth are exactly one. Arguments are those of `small_blocks`.
    """
    equivalent = np.maximum(rows.astype(np.int64), 1)
    if block_bytes is not None:
        by_bytes = np.ceil(size.astype(np.float64) * block_rows / block_bytes)
        np.maximum(equivalent, by_bytes.astype(np.int64), out=equivalent)
    return equivalent


def full_blocks(
    rows: IntArray, size: IntArray | Int32Array, block_rows: int, block_bytes: int | None
) -> IntArray:
    """The fewest full blocks that hold these rows and bytes, (n,): int64 (n,), at least 1."""
    count = np.maximum(-(-rows // block_rows), 1)
    return count if block_bytes is None else np.maximum(count, -(-size // block_bytes))


def fragmentation(blocks: Blocks, block_rows: int, block_bytes: int | None) -> tuple[IntArray, IntArray]:
    """Count the blocks of each partition, and the full blocks that its rows and bytes would make.

    Blocks whose rows are unknown count as full.

    Returns:
        int64 (partitions,) each; the second at least 1.
    """
    count = np.bincount(blocks.partition)
    if blocks.rows is None:
        return count, np.maximum(count, 1)
    rows = _sums(blocks.partition, blocks.rows, len(count))
    size = np.zeros_like(rows) if blocks.bytes is None else _sums(blocks.partition, blocks.bytes, len(count))
    return count, full_blocks(rows, size, block_rows, block_bytes)


def _sums(group: IntArray, values: IntArray, groups: int) -> IntArray:
    """Sum of the values of each group: int64 (groups,)."""
    # Sums of bytes stay below 2**53, so floats hold them exactly.
    return np.bincount(group, values.astype(np.float64), groups).astype(np.int64)
