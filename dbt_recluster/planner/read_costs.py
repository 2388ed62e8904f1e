"""The blocks that each read opens, and the share of them that is wasted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray
from dbt_recluster.planner.blocks import ranked_columns
from dbt_recluster.planner.input_arrays import partition_codes, whole_numbers
from dbt_recluster.planner.ranks import Keys
from dbt_recluster.planner.reads import PlacedReads, Reads, place_reads


@dataclass(frozen=True, eq=False)
class ReadCosts:
    """The blocks and bytes that m reads open.

    Attributes:
        opened: Blocks, int64 (m,).
        wasted: Those that the read would not open in a sorted table of as many blocks, float64 (m,).
        bytes: Bytes of the blocks, int64 (m,).
        bytes_wasted: Bytes of the wasted blocks, float64 (m,).
        bytes_per_depth: Wasted bytes for each unit of depth above 1 at the ends, float64 (m,).
    """

    opened: IntArray
    wasted: FloatArray
    bytes: IntArray
    bytes_wasted: FloatArray
    bytes_per_depth: FloatArray


def read_costs(
    lower: Keys,
    upper: Keys,
    bytes: Keys,
    reads: Reads,
    partition: Keys | None = None,
    unbounded: Keys | None = None,
) -> ReadCosts:
    """Count the blocks that reads open, by their bounds.

    Of d blocks over one end of a range, a half lies within it on average, and sorted they would be d blocks one after
    the other: (d - 1) / 2 are wasted. Of d blocks over a single key all but one are.

    Args:
        lower: Least keys of n blocks, as in `Blocks.build`; so are the other arguments.
        upper: Greatest keys.
        bytes: Sizes, int (n,).
        reads: m ranges of the key. Each takes O(n).
        partition: Values of the blocks' partitions; each partition is sorted for itself.
        unbounded: Masks of upper bounds that are not known.

    Raises:
        BoundsError: As `Blocks.build`.
    """
    n, _, columns = ranked_columns(lower, upper, unbounded, reads)
    placed = place_reads(columns, n)
    codes, _ = partition_codes(partition, n)
    sizes = whole_numbers("bytes", bytes, n)
    first, last = placed.blocks[:n], placed.blocks[n:]
    m = len(placed.lower)
    costs = ReadCosts(np.zeros(m, np.int64), np.zeros(m), np.zeros(m, np.int64), np.zeros(m), np.zeros(m))
    for read in range(m):
        touched = (last >= placed.lower[read]) & (first <= placed.upper[read])
        costs.opened[read], costs.bytes[read] = np.count_nonzero(touched), sizes[touched].sum()
        share = 1.0 if placed.single[read] else 0.5
        for blocks in _over_ends(placed, read, touched, first, last):
            count = np.count_nonzero(blocks)
            if count:
                partitions = len(np.unique(codes[blocks]))
                mean_size = float(sizes[blocks].mean())
                costs.wasted[read] += share * (count - partitions)
                costs.bytes_wasted[read] += share * (count - partitions) * mean_size
                costs.bytes_per_depth[read] += share * partitions * mean_size
    return costs


def _over_ends(
    placed: PlacedReads, read: int, touched: BoolArray, first: IntArray, last: IntArray
) -> list[BoolArray]:
    """Return the blocks over each end of a read: masks, bool (n,)."""
    if placed.single[read]:
        return [touched]
    # A block that begins or ends where the range does holds no rows beyond it.
    over = []
    if placed.has_lower[read]:
        over.append(touched & (first < placed.lower[read]))
    if placed.has_upper[read]:
        over.append(touched & (last > placed.upper[read]))
    return over
