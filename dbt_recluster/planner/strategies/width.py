"""The strategy `width` of Snowflake's patent, which needs no level: overlapping blocks of like width."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.candidates import (
    Candidates,
    Selected,
    SetArrays,
    SetLimits,
    WorstDepth,
    average_depths,
    form_sets,
    no_sets,
)
from dbt_recluster.planner.strategies.payback import surplus_overlap

# Base of the buckets of widths, unless merges have a limit of blocks. Not tuned; `python benchmarks/frontier.py --only
# 'width of whole buckets'` measures it.
_FAN_OUT = 4


def width(candidates: Candidates, threshold: FloatArray, limits: SetLimits) -> Selected:
    """Select overlapping blocks of like width, widest first, until their merges meet the threshold of each partition.

    Buckets of widths end at powers of the most blocks in a merge. Narrower buckets take their turn in the same round
    only where wider ones remove too little overlap. The blocks of wider buckets join them, except those of full sets.

    Source: US patent 10,817,540, "Incremental clustering maintenance of a table", paragraph 82.
    """
    average = average_depths(candidates.cells().depths(), candidates.partition, len(threshold))
    units, partition = candidates.units(), candidates.partition

    def removed(sets: SetArrays) -> FloatArray:
        """Overlap that merging sets removes from each partition, in units: float64 (partitions,)."""
        overlap = sets.total(units.length) - (sets.greatest(units.end) - sets.least(units.begin))
        return np.bincount(partition[sets.member[sets.start]], overlap, len(threshold)).astype(np.float64)

    all_overlaps = SetArrays(np.arange(len(units)), np.flatnonzero(np.diff(units.components(), prepend=-1)))
    wanted = np.maximum(surplus_overlap(average, threshold) * removed(all_overlaps), average > threshold)
    widths, ends = block_widths(candidates), [1]
    while ends[-1] < int(widths.max()):
        ends.append(ends[-1] * (limits.blocks or _FAN_OUT))
    bucket = np.searchsorted(ends, widths).astype(np.int8)

    def select(limits: SetLimits) -> SetArrays:
        sets = no_sets()
        for narrowest in reversed(range(1 + int(bucket.max()))):
            deep = removed(sets) < wanted
            sets = sets.only(~deep[partition[sets.member[sets.start]]] | limits.reached(sets, candidates.bytes))
            waiting = deep[partition] & (bucket >= narrowest)
            waiting[sets.member] = False
            member = np.flatnonzero(waiting)
            sets = sets.then(form_sets(candidates, member, np.zeros(len(member), np.int64), limits))
        return sets

    sets = limits.paying(select(limits._replace(pays=None)))
    if (removed(sets)[average > threshold] == 0).any():
        # Measuring the gain of every bucket lets the next one have its turn, but takes time.
        sets = select(limits)
    return sets, WorstDepth.of(average, threshold)


def block_widths(candidates: Candidates) -> IntArray:
    """Blocks of the longest sequence of disjoint blocks that each block overlaps: int64 (c,), 1 for those within it.

    Blocks that touch may follow each other in the sequence, although a touch is an overlap with it.

    Source: US patent 10,817,540, paragraph 100.
    """
    # The longest sequence always takes next the block that ends first among those that start after its last one.
    # `following` leads from the end of one member to the end of the next, or beyond the axis.
    cells = candidates.cells()
    beyond = cells.size + 1
    following: IntArray = np.full(beyond, beyond)
    np.minimum.at(following, cells.begin, cells.end)
    following = np.minimum.accumulate(following[::-1])[::-1]
    members, end = list[int](), int(following[0])
    while end < beyond:
        members.append(end)
        end = following.item(end)
    ends = np.array(members)
    # Of several blocks with one end, the shortest is the member. Candidates are in the order of their begins.
    last_with_end = np.zeros(beyond, np.int64)
    last_with_end[cells.end] = np.arange(len(cells))
    sequence = last_with_end[ends]
    lower, upper = candidates.first // 2, (candidates.last + 1) // 2
    widths: IntArray = np.searchsorted(lower[sequence], upper, side="right")
    widths -= np.searchsorted(upper[sequence], lower)
    widths[np.isin(cells.end, ends) & (cells.begin == cells.begin[last_with_end[cells.end]])] = 1
    return widths
