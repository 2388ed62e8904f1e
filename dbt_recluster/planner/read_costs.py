"""What each read opens, and how much of it in vain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.input_arrays import key_columns, partition_codes, unbounded_masks
from dbt_recluster.planner.ranks import Keys, length, rank_column
from dbt_recluster.planner.reads import Reads, end_columns, place_reads


@dataclass(frozen=True, eq=False)
class ReadCosts:
    """What m reads open.

    Attributes:
        opened: Blocks, int64 (m,).
        in_vain: Those of them that it would not open in a sorted table of as many blocks, float64 (m,).
        bytes: Bytes of the blocks, int64 (m,), or None if no sizes are known.
        bytes_in_vain: As ``in_vain``, float64 (m,), or None.
    """

    opened: IntArray
    in_vain: FloatArray
    bytes: IntArray | None = None
    bytes_in_vain: FloatArray | None = None


def read_costs(
    lower: Keys,
    upper: Keys,
    reads: Reads,
    bytes: IntArray | None = None,
    partition: Keys | None = None,
    unbounded: Keys | None = None,
) -> ReadCosts:
    """Count the blocks that reads open, by their bounds.

    Of d blocks over one end of a range, a half lies within it on average, and sorted they would be d blocks one after
    the other: (d - 1) / 2 are opened in vain. Of d blocks over a single key all but one are.

    Args:
        lower: Least keys of n blocks, as in `Blocks.build`; so are the other arguments.
        upper: Greatest keys.
        reads: m ranges of the key. Each takes O(n).
        bytes: Sizes, int64 (n,).
        partition: Values of the blocks' partitions; each partition is sorted for itself.
        unbounded: Masks of upper bounds that are not known.

    Raises:
        BoundsError: As `Blocks.build`.
    """
    lowers, uppers = key_columns(lower, upper)
    n = length(lowers[0])
    masks = unbounded_masks(unbounded, n, len(lowers))
    ends = end_columns(reads, len(lowers))
    placed = place_reads(
        [rank_column(*column) for column in zip(lowers, uppers, masks, ends, strict=True)], n
    )
    codes, _ = partition_codes(partition, n)
    first, last = placed.blocks[:n], placed.blocks[n:]
    m = len(placed.lower)
    opened, in_vain = np.zeros(m, np.int64), np.zeros(m)
    size, size_in_vain = np.zeros(m, np.int64), np.zeros(m)
    sizes = np.zeros(n, np.int64) if bytes is None else bytes
    for read in range(m):
        low, high = placed.lower[read], placed.upper[read]
        touched = (last >= low) & (first <= high)
        opened[read], size[read] = np.count_nonzero(touched), sizes[touched].sum()
        if placed.single[read]:
            over, share = [touched], 1.0
        else:
            # A block that begins or ends where the range does holds no rows beyond it.
            over, share = [], 0.5
            if placed.has_lower[read]:
                over.append(touched & (first < low))
            if placed.has_upper[read]:
                over.append(touched & (last > high))
        for blocks in over:
            surplus = _surplus(codes[blocks])
            in_vain[read] += share * surplus
            if surplus:
                size_in_vain[read] += share * surplus * float(sizes[blocks].mean())
    if bytes is None:
        return ReadCosts(opened, in_vain)
    return ReadCosts(opened, in_vain, size, size_in_vain)


def _surplus(partition: IntArray) -> int:
    """Blocks beyond one in each partition."""
    return len(partition) - len(np.unique(partition))
