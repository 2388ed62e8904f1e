"""Where to cut a sorted block set into new blocks. NumPy only.

A block may not be too large, nor, except the last one of its set, too small; and a value of the key stays
together unless it has more rows than fit into a block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dbt_recluster.iceberg.blocks import IntArray

# Rows of one value are told apart by where they are read: where that is anywhere among others, shares vary by
# the square root of their size. Four standard deviations keep them within the limit.
_DEVIATIONS = 4


@dataclass(frozen=True)
class Cut:
    """Where a block starts: at a value of the key, or within the rows of one value.

    Attributes:
        value: Position among the distinct values of the set's sample, ascending.
        share: The block starts behind this share of the value's rows: 0 but for a value of several blocks.
    """

    value: int
    share: float = 0.0


def choose_cuts(counts: IntArray, rows: float, limit: float) -> list[Cut]:
    """Return the starts of the blocks behind the first.

    Args:
        counts: How often each distinct value was sampled, shape (n,), in the order of the key.
        rows: The rows that the sample stands for.
        limit: The most rows in a block.

    Returns:
        Cuts, ascending. Blocks hold at most ``limit`` rows and, except the last, at least half of that, as far
        as the sample can tell.
    """
    if not len(counts):
        return []
    ends = np.cumsum(counts, dtype=np.float64)
    ends *= rows / ends[-1]
    cuts: list[Cut] = []
    done, total = 0.0, float(ends[-1])
    slack = 1e-9 * total
    while total - done > limit + slack:
        # Blocks of equal size, rather than full ones and a rest: they take equal time.
        aim = done + (total - done) / math.ceil((total - done - slack) / limit)
        following = int(np.searchsorted(ends, aim + slack, side="right"))
        below = float(ends[following - 1]) if following else 0.0
        above = float(ends[following])
        fits_above = above - done <= limit + slack
        fits_below = below - done >= limit / 2 - slack
        if fits_above and (not fits_below or above - aim < aim - below):
            done = above
        elif fits_below:
            done = below
        else:
            cuts += _split_value(following, below, above, done, limit)
            done = above
        if total - done > slack:
            cuts.append(Cut(int(np.searchsorted(ends, done + slack, side="right"))))
    return cuts


def _split_value(value: int, start: float, end: float, done: float, limit: float) -> list[Cut]:
    """Cut a value whose rows, ``start`` to ``end``, do not fit into the block that begins at ``done``."""
    most = share_limit(limit)
    before, rows = start - done, end - start
    blocks = math.ceil((before + rows) / most)
    size = (before + rows) / blocks
    if size > before:
        return [Cut(value, (size * block - before) / rows) for block in range(1, blocks)]
    # What lies before the value fills an equal block by itself. It takes as few of the value's rows as make it half
    # full and leave what the other blocks can hold.
    room = share_limit(limit - before)
    blocks = math.ceil((rows - room) / most)
    first = min(room, max(limit / 2 - before, rows - blocks * most))
    return [Cut(value, (first + (rows - first) * block / blocks) / rows) for block in range(blocks)]


def share_limit(limit: float) -> float:
    """Return how many rows of one value to expect in a block that may hold ``limit``."""
    half = _DEVIATIONS / 2
    return max(min(1.0, limit), (math.sqrt(limit + half**2) - half) ** 2)
