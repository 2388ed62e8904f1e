"""Where to split a sorted block set into new blocks. NumPy only.

A new block has at most its limit of rows and, unless it is the last of its set, at least half of that. The rows of one
key value stay together unless they do not fit into one block.
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
        share: Share of the value's rows in earlier blocks; 0 unless the value fills several blocks.
    """

    value: int
    share: float = 0.0


def choose_split_points(counts: IntArray, rows: float, limit: float) -> list[SplitPoint]:
    """Choose the starts of all blocks but the first.

    Args:
        counts: How often each distinct value was sampled, in the order of the key: (n,).
        rows: The rows that the sample represents.
        limit: The most rows in a block.

    Returns:
        Split points, ascending.
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
    """Return the end of a block that begins at ``done``, or None to split the value at this position."""
    left = float(ends[-1]) - done
    # Equal blocks, which take equal time, instead of full ones and a rest.
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
    """Split a value of ``rows`` rows that does not fit into the current block of ``before`` rows."""
    most = rows_of_one_value(limit)
    blocks = math.ceil((before + rows) / most)
    size = (before + rows) / blocks
    if size > before:
        return [SplitPoint(value, (size * block - before) / rows) for block in range(1, blocks)]
    # The current block takes just enough of the value's rows to be half full and to leave what the others can hold.
    room = rows_of_one_value(limit - before)
    blocks = math.ceil((rows - room) / most)
    first = min(room, max(limit / 2 - before, rows - blocks * most))
    return [SplitPoint(value, (first + (rows - first) * block / blocks) / rows) for block in range(blocks)]
