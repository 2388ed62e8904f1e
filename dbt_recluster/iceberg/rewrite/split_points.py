"""Where to split a sorted block set into new blocks. NumPy only.

A new block is neither larger than its limit nor, unless it is the last of its set, smaller than half of it. The rows of
one key value stay together, unless they do not fit into one block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dbt_recluster.iceberg.metadata.block_metadata import IntArray
from dbt_recluster.key.box_tree import rows_of_one_value

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SplitPoint:
    """The start of a block: at a value of the key, or within the rows of one value.

    Attributes:
        value: Position among the distinct values of the sample, ascending.
        share: Share of the value's rows that lies before the block: 0 unless the value fills several blocks.
    """

    value: int
    share: float = 0.0


def choose_split_points(counts: IntArray, rows: float, limit: float) -> list[SplitPoint]:
    """Choose the starts of all blocks but the first.

    Args:
        counts: How often each distinct value was sampled, shape (n,), in the order of the key.
        rows: The rows that the sample represents.
        limit: The most rows in a block.

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
