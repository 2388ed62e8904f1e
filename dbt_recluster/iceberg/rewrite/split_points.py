"""Where to split a sorted block set into new blocks. NumPy only.

A new block is neither larger than its limit nor, unless it is the last of its set, smaller than half of it. The rows of
one key value stay together, unless they do not fit into one block.

Along a curve, blocks are cut where the curve leaves the largest cell, so that their boxes are small. They hold at least
0.7 of the limit where values allow, and the last two at least half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dbt_recluster.iceberg.metadata.block_metadata import BoolArray, IntArray

FloatArray = npt.NDArray[np.float64]

# Rows of one value are split by where they are read, which is effectively random. The size of such a part then varies
# by the square root of its rows, and four standard deviations keep it within the limit.
_DEVIATIONS = 4
# Below 0.7 there are a quarter more blocks, for reads that open little less (docs/design/curves.md).
_CELLS_FROM = 0.7


@dataclass(frozen=True)
class SplitPoint:
    """The start of a block: at a value of the key, or within the rows of one value.

    Attributes:
        value: Position among the distinct values of the sample, ascending.
        share: Share of the value's rows that lies before the block: 0 unless the value fills several blocks.
    """

    value: int
    share: float = 0.0


@dataclass(frozen=True)
class CellBorders:
    """The cells of a curve that begin between each of n keys and the one before, int64 (n,) each.

    Attributes:
        level: The level of the largest one: 0 within a cell of the finest grid, 1 for two such cells of one parent and
            so on; above all levels where leading columns change.
        start: The place where it begins.
    """

    level: IntArray
    start: IntArray

    @classmethod
    def of(cls, place: IntArray, is_new: BoolArray, dimensions: int, bits: int) -> CellBorders:
        """Find the borders between keys.

        Args:
            place: Their places on the curve, int64 (n,), ascending but where leading columns change.
            is_new: Where these do, bool (n,).
            dimensions: Dimensions of the curve.
            bits: Bits of each.
        """
        # Two neighbours differ at this bit first, so they lie in different cells of this level, and of one above it.
        bit = np.frexp((place ^ np.roll(place, 1)).astype(np.float64))[1].astype(np.int64)
        level = -(-bit // dimensions)
        start = place & -(1 << (np.maximum(level - 1, 0) * dimensions))
        return cls(np.where(is_new, bits + 1, level), np.where(is_new, 0, start))


def choose_split_points(
    counts: IntArray, rows: float, limit: float, cells: CellBorders | None = None
) -> list[SplitPoint]:
    """Choose the starts of all blocks but the first.

    Args:
        counts: How often each distinct value was sampled, shape (n,), in the order of the key.
        rows: The rows that the sample represents.
        limit: The most rows in a block.
        cells: The cells of a curve that begin with the values, or None if the key ends in no curve.

    Returns:
        Split points, ascending. By the sample, blocks hold at most ``limit`` rows and, except for the
        last one, at least half of that.
    """
    if not len(counts):
        return []
    ends = np.cumsum(counts, dtype=np.float64)
    ends *= rows / ends[-1]
    points: list[SplitPoint] = []
    done, total = 0.0, float(ends[-1])
    slack = 1e-9 * total
    while total - done > limit + slack:
        end = None if cells is None else _end_at_cell(ends, cells.level, done, limit, slack)
        following = 0
        if end is None:
            end, following = _nearest_end(ends, done, limit, slack)
        if end is None:
            below = float(ends[following - 1]) if following else 0.0
            end = float(ends[following])
            points += _split_value(following, below - done, end - below, limit)
        done = end
        if total - done > slack:
            points.append(SplitPoint(int(np.searchsorted(ends, done + slack, side="right"))))
    return points


def _nearest_end(ends: FloatArray, done: float, limit: float, slack: float) -> tuple[float | None, int]:
    """Return where a block that begins at ``done`` ends, or None if the value at this position has to be split."""
    left = float(ends[-1]) - done
    # Blocks of equal size instead of full ones and a rest: they take equal time.
    target = done + left / math.ceil((left - slack) / limit)
    following = int(np.searchsorted(ends, target + slack, side="right"))
    below = float(ends[following - 1]) if following else 0.0
    above = float(ends[following])
    fits_above = above - done <= limit + slack
    fits_below = below - done >= limit / 2 - slack
    if fits_above and (not fits_below or above - target < target - below):
        return above, following
    return (below if fits_below else None), following


def _end_at_cell(ends: FloatArray, level: IntArray, done: float, limit: float, slack: float) -> float | None:
    """Return where the block that begins at ``done`` leaves the largest cell, or None if no value ends in its range."""
    left = float(ends[-1]) - done
    least, most = _CELLS_FROM * limit, limit
    if left <= 2 * limit:
        # The rest fits into the next block, and fills half of it.
        least, most = max(left - limit, limit / 2), min(limit, left - limit / 2)
    first = int(np.searchsorted(ends, done + least - slack))
    last = int(np.searchsorted(ends, done + most + slack, side="right"))
    if first >= last:
        return None
    # Of equal cells the last one, for fewer blocks.
    candidates = level[first + 1 : last + 1][::-1]
    return float(ends[last - 1 - int(candidates.argmax())])


def rows_of_one_value(limit: float) -> float:
    """Return how many rows of a split value to put into a block that may hold ``limit``."""
    half = _DEVIATIONS / 2
    return max(min(1.0, limit), (math.sqrt(limit + half**2) - half) ** 2)


def _split_value(value: int, before: float, rows: float, limit: float) -> list[SplitPoint]:
    """Split a value of ``rows`` rows that does not fit into the current block, which holds ``before`` rows already."""
    most = rows_of_one_value(limit)
    blocks = math.ceil((before + rows) / most)
    size = (before + rows) / blocks
    if size > before:
        return [SplitPoint(value, (size * block - before) / rows) for block in range(1, blocks)]
    # The rows before the value fill an equal block by themselves. That block takes just enough of the value's rows to
    # be half full and to leave no more than the other blocks can hold.
    room = rows_of_one_value(limit - before)
    blocks = math.ceil((rows - room) / most)
    first = min(room, max(limit / 2 - before, rows - blocks * most))
    return [SplitPoint(value, (first + (rows - first) * block / blocks) / rows) for block in range(blocks)]
