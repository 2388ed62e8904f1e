"""What reads of a key with a curve open, now and if the whole table were sorted at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dbt_recluster.curve import Curve
from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray
from dbt_recluster.planner.curve_information import PLACES, Points
from dbt_recluster.planner.curves import Boxes
from dbt_recluster.planner.ranks import rank_column
from dbt_recluster.planner.reads import ReadCosts, Reads, place_reads, ranked_columns

# Least and greatest values, (n,) each.
Intervals = tuple[IntArray | FloatArray, IntArray | FloatArray]


class Bounds(NamedTuple):
    """The bounds of n blocks: for each column Arrow arrays (n,), and where the upper ones are unknown, bool (n,)."""

    lower: Sequence[pa.Array]
    upper: Sequence[pa.Array]
    unbounded: Sequence[BoolArray]


def curve_read_costs(
    curve: Curve, bounds: Bounds, rows: IntArray, bytes: IntArray, reads: Reads, group: IntArray
) -> ReadCosts:
    """Count the blocks that reads open if each asks for a range of every column by itself.

    Those beyond what it would open in a table of as many blocks that is sorted at once are wasted. That table is
    estimated from the boxes of the blocks.

    Args:
        curve: The curve.
        bounds: Of n blocks, the leading columns of the key before those of the curve.
        rows: Rows of the blocks, int64 (n,).
        bytes: Their sizes, likewise.
        reads: Ranges of these columns; None is an open end. A read takes O(n).
        group: Codes from 0 of blocks that the curve sorts together, int64 (n,) (`curve_groups`).

    Returns:
        The costs. `bytes_per_depth` has the bytes that each read opens in the sorted table.

    Raises:
        BoundsError: As `Blocks.build`.
    """
    n, _, columns = ranked_columns(*bounds, reads)
    placed = [place_reads([column], n) for column in columns]
    now = [(column.blocks[:n], column.blocks[n:]) for column in placed]
    asked: list[Intervals] = [(column.lower, column.upper) for column in placed]
    leading = len(placed) - len(curve.boundaries)
    boxes = Boxes.of(curve, *(part[leading:] for part in bounds))
    at_once = _sorted_at_once(now[:leading], boxes, np.maximum(rows, 1), group, curve)
    asked_at_once = [*asked[:leading], *_places_asked(curve, reads, leading)]
    costs = [
        (np.flatnonzero(_meeting(now, asked, read)), np.count_nonzero(_meeting(at_once, asked_at_once, read)))
        for read in range(len(placed[0].lower))
    ]
    opened = np.array([len(blocks) for blocks, _ in costs], np.int64)
    least = np.minimum(np.array([count for _, count in costs], np.float64), opened)
    size = np.array([bytes[blocks].sum() for blocks, _ in costs], np.int64)
    mean_size = size / np.maximum(opened, 1)
    wasted = (opened - least).astype(np.float64)
    return ReadCosts(opened, wasted, size, wasted * mean_size, least * mean_size)


def curve_groups(
    partition: IntArray, leading: Sequence[pa.Array], rows: IntArray, block_rows: float
) -> IntArray:
    """Number the blocks that a curve sorts together, by partition and leading columns: int64 (n,), from 0.

    Values of leading columns that share full blocks are one group.

    Args:
        partition: Partitions of n blocks, int64 (n,).
        leading: Lower bounds of the leading columns, (n,) each.
        rows: Rows of the blocks, int64 (n,).
        block_rows: Rows in a full block.
    """
    known = np.zeros(len(rows), np.bool_)
    keys = [partition, *(rank_column(column, column, known)[0][: len(rows)] for column in leading)]
    order = np.lexsort(keys[::-1])
    is_new = np.logical_or.reduce([np.diff(key[order], prepend=-1) != 0 for key in keys])
    is_first = np.diff(partition[order], prepend=-1) != 0
    before = np.cumsum(rows[order]) - rows[order]
    # Where its partition and its value begin, in full blocks.
    starts = np.maximum.accumulate(np.where(is_new, before, 0))
    share = (starts - np.maximum.accumulate(np.where(is_first, before, 0))) // block_rows
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(is_first | (np.diff(share, prepend=-1) != 0)) - 1
    return group


def _sorted_at_once(
    leading: Sequence[Intervals], boxes: Boxes, rows: IntArray, group: IntArray, curve: Curve
) -> list[Intervals]:
    """Intervals of the leading columns, and of places of the curve's columns, of as many blocks as there are."""
    block_rows = -(-int(rows.sum()) // len(rows))
    lower, upper = Points.of(boxes, rows, group, curve).sorted_at_once(block_rows)
    blocks = np.ceil(np.bincount(group, rows) / block_rows - 1e-9).astype(np.int64)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    ends: list[Intervals] = []
    for low, high in leading:
        least, greatest = (
            np.minimum.reduceat(low[order], starts),
            np.maximum.reduceat(high[order], starts),
        )
        ends.append((np.repeat(least, blocks), np.repeat(greatest, blocks)))
    return [*ends, *zip(lower, upper, strict=True)]


def _meeting(blocks: Sequence[Intervals], asked: Sequence[Intervals], read: int) -> BoolArray:
    """The blocks that meet what a read asks for in every column: bool (n,)."""
    meeting: BoolArray = np.logical_and.reduce(
        [
            (low <= greatest[read]) & (high >= least[read])
            for (low, high), (least, greatest) in zip(blocks, asked, strict=True)
        ]
    )
    return meeting


def _places_asked(curve: Curve, reads: Reads, leading: int) -> list[Intervals]:
    """The first and the last place of each column of the curve that reads ask for, int64 (m,) each."""
    lower, upper = (
        [pa.array(side[leading + place], _wide(ends.type)) for place, ends in enumerate(curve.boundaries)]
        for side in (reads.lower, reads.upper)
    )
    last = (1 << curve.bits) - 1
    return [
        (PLACES * low, PLACES * (np.where(np.asarray(end.is_valid()), high, last) + 1) - 1)
        for low, high, end in zip(curve.ranks(lower), curve.ranks(upper), upper, strict=True)
    ]


def _wide(kind: pa.DataType) -> pa.DataType:
    """A type that holds what a read compares a column of this type with."""
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else kind
