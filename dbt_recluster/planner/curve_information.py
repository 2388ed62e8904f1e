"""Blocks that reads of a table on a curve open: now, and if the whole table were sorted at once.

The depth of intervals along the curve says how much overlap merges can remove, and not how many blocks a filter on one
column opens. Both figures here are estimates by bounds and rows of blocks (docs/design/curves.md, "Reports and scale").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dbt_recluster.key.box_tree import cut_into_boxes, hulls, points_in_boxes, tile_sides
from dbt_recluster.key.types import value_type
from dbt_recluster.planner.arrays import BoolArray, IntArray
from dbt_recluster.planner.curves import CurveBlocks
from dbt_recluster.planner.metrics import ReadCosts, rounded
from dbt_recluster.planner.reads import Reads, place_reads, ranked_columns

# Points that stand for the rows of a block, and blocks of a sorted table beyond which all boxes count as equal.
_POINTS, _MOST_BLOCKS = 12, 4_096
# Boxes that reads ask for, and how much of each column they take.
_QUERIES, _SIDE = 256, 0.01

# Least and greatest values of n ranges of each column, int64 (columns, n) each.
Ranges = Sequence[IntArray]


@dataclass(frozen=True)
class CurveInformation:
    """Blocks that reads of a table on a curve open, in the mean over places where rows are.

    Attributes:
        total_block_count: Number of blocks.
        point_blocks: Blocks that a read of one value of each column opens.
        box_blocks: Blocks that a read of 1 % of the rows of every column opens.
        sorted_block_count: Number of blocks if the whole table were sorted along the curve at once.
        sorted_point_blocks: What a read of one value of each column would open then.
        sorted_box_blocks: What a read of 1 % of the rows of every column would.
    """

    total_block_count: int
    point_blocks: tuple[float, ...]
    box_blocks: float
    sorted_block_count: int
    sorted_point_blocks: tuple[float, ...]
    sorted_box_blocks: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, with values that JSON can hold."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }


def curve_information(blocks: CurveBlocks, block_rows: int) -> CurveInformation:
    """Estimate the blocks that reads of a table on a curve open; averages are rounded to 4 decimals.

    Args:
        blocks: n blocks.
        block_rows: Rows in a full block. No block of the sorted table would have rows of two partitions.
    """
    columns = len(blocks.curve.boundaries)
    if len(blocks.rows) == 0:
        none = (0.0,) * columns
        return CurveInformation(0, none, 0.0, 0, none, 0.0)
    at_once, _ = _sorted_at_once(blocks, blocks.groups(block_rows), block_rows)
    now, asked = (blocks.boxes.lower, blocks.boxes.upper), _boxes_asked(blocks)
    return CurveInformation(
        len(blocks.rows),
        _point_blocks(now, blocks.curve.parts),
        _mean_opened(now, asked),
        at_once[0].shape[1],
        _point_blocks(at_once, blocks.curve.parts),
        _mean_opened(at_once, asked),
    )


def _point_blocks(boxes: Ranges, parts: int) -> tuple[float, ...]:
    """Mean blocks over a value of each column: parts have equal shares of the rows."""
    lower, upper = boxes
    return tuple(rounded(float(total / parts)) for total in (upper - lower + 1).sum(axis=1))


def _boxes_asked(blocks: CurveBlocks) -> Ranges:
    """Ranks that reads of `_SIDE` of each column around rows ask for."""
    total = np.cumsum(np.maximum(blocks.rows, 1))
    block = np.searchsorted(total, (np.arange(_QUERIES) + 0.5) / _QUERIES * total[-1])
    lower, upper = (ends.T[block] for ends in (blocks.boxes.lower, blocks.boxes.upper))
    centre = points_in_boxes(lower, lower, upper, np.ones(_QUERIES, np.int64), 1).rank.T
    half = int(_SIDE / 2 * blocks.curve.parts)
    return centre - half, centre + half


def _sorted_at_once(blocks: CurveBlocks, group: IntArray, block_rows: float) -> tuple[Ranges, IntArray]:
    """Ranks that each block would have if each group were merged at once, and how many blocks each group has."""
    lower, upper = (np.ascontiguousarray(ends.T) for ends in (blocks.boxes.lower, blocks.boxes.upper))
    parts, order = blocks.curve.parts, np.argsort(group, kind="stable")
    boxes: list[tuple[IntArray, IntArray]] = []
    for member in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        rows = np.maximum(blocks.rows[member], 1)
        count = float(np.ceil(rows.sum() / block_rows - 1e-9))
        (least,), (greatest,) = hulls(np.zeros(len(member), np.int64), lower[member], upper[member])
        width = (greatest - least + 1) / parts
        side = tile_sides(np.array([count]), width[None])[0]
        if count > _MOST_BLOCKS or len(member) > _MOST_BLOCKS:
            boxes.append(_tiles(least, greatest, np.maximum(np.rint(width / side), 1).astype(np.int64)))
            continue
        points = points_in_boxes(lower[member], blocks.rank[member], upper[member], rows, _POINTS)
        tree = cut_into_boxes(points, block_rows, parts, float(np.minimum(width, side).sum()))
        boxes.append((tree.lower, tree.upper))
    least, greatest = (np.ascontiguousarray(np.concatenate(ends).T) for ends in zip(*boxes, strict=True))
    return (least, greatest), np.array([len(low) for low, _ in boxes])


def _tiles(lower: IntArray, upper: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Cut a box, (columns,) each, into so many equal parts of each column: int64 (tiles, columns) each."""
    number: IntArray = np.stack(np.unravel_index(np.arange(counts.prod()), counts), axis=1).astype(np.int64)
    size = upper - lower + 1
    first = lower + np.floor_divide(number * size, counts, dtype=np.int64)
    last = lower + np.floor_divide((number + 1) * size, counts, dtype=np.int64) - 1
    return first, np.maximum(last, first)


def _opened(blocks: Ranges, asked: Ranges, read: int) -> BoolArray:
    """Blocks whose box intersects the read in every column: bool (n,)."""
    (lower, upper), (least, greatest) = blocks, asked
    opened: BoolArray = np.logical_and.reduce((lower <= greatest[:, [read]]) & (upper >= least[:, [read]]))
    return opened


def _mean_opened(blocks: Ranges, asked: Ranges) -> float:
    """Mean number of blocks opened by a read."""
    reads = asked[0].shape[1]
    return rounded(sum(np.count_nonzero(_opened(blocks, asked, read)) for read in range(reads)) / reads)


def curve_read_costs(blocks: CurveBlocks, bytes: IntArray, reads: Reads) -> ReadCosts:
    """Count the blocks opened by reads that each have a range in every column.

    A read wastes the blocks beyond those that it would open in a table of as many blocks, sorted at once. That table is
    estimated from the boxes of the blocks.

    Args:
        blocks: n blocks, at least one.
        bytes: Their sizes, int64 (n,).
        reads: Ranges of all columns of the key; None is an open end. A read takes O(n).

    Returns:
        The costs. `bytes_per_depth` has the bytes that each read opens in the sorted table.

    Raises:
        BoundsError: As `Blocks.build`.
    """
    n, _, columns = ranked_columns(blocks.lower, blocks.upper, blocks.unbounded, reads)
    placed = [place_reads([column], n) for column in columns]
    now = [np.stack([column.blocks[ends] for column in placed]) for ends in (slice(n), slice(n, None))]
    asked = np.stack([column.lower for column in placed]), np.stack([column.upper for column in placed])
    group, leading = blocks.groups(blocks.rows.mean()), blocks.leading
    block_rows = -(-int(np.maximum(blocks.rows, 1).sum()) // n)
    sorted_blocks, count = _sorted_at_once(blocks, group, block_rows)
    # A block of a group may have any of its values of the leading columns.
    of_groups = zip(hulls(group, *(ends[:leading].T for ends in now)), sorted_blocks, strict=True)
    at_once = [np.concatenate([np.repeat(hull.T, count, axis=1), ends]) for hull, ends in of_groups]
    parts_asked = zip(asked, _parts_asked(blocks, reads), strict=True)
    asked_at_once = [np.concatenate([ends[:leading], parts]) for ends, parts in parts_asked]
    costs = [
        (np.flatnonzero(_opened(now, asked, read)), np.count_nonzero(_opened(at_once, asked_at_once, read)))
        for read in range(len(placed[0].lower))
    ]
    opened = np.array([len(of_read) for of_read, _ in costs], np.int64)
    least = np.minimum(np.array([count for _, count in costs], np.float64), opened)
    size = np.array([bytes[of_read].sum() for of_read, _ in costs], np.int64)
    mean_size = size / np.maximum(opened, 1)
    wasted = (opened - least).astype(np.float64)
    return ReadCosts(opened, wasted, size, wasted * mean_size, least * mean_size)


def _parts_asked(blocks: CurveBlocks, reads: Reads) -> Ranges:
    """The first and the last part of each column of the curve that reads ask for."""
    curve, leading = blocks.curve, blocks.leading
    lower, upper = (
        [
            pa.array(side[leading + place], value_type(ends.type).wide or ends.type)
            for place, ends in enumerate(curve.boundaries)
        ]
        for side in (reads.lower, reads.upper)
    )
    is_open = np.stack([np.asarray(ends.is_null()) for ends in upper])
    last = np.where(is_open, curve.parts - 1, curve.ranks(upper))
    return curve.ranks(lower, first=True), last
