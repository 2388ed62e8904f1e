"""Strategy `width`, the patent's: merge the widest blocks first. It needs no level: width tells as much."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.block_sets import BlockSets, form_sets, no_sets
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.depth import Sweep
from dbt_recluster.planner.policy import Policy


def width(candidates: Candidates, threshold: FloatArray, policy: Policy) -> tuple[BlockSets, float]:
    """Choose block sets as Snowflake's patent on incremental clustering does.

    A block's width is how many blocks of the longest sequence of blocks that do not overlap it covers: the
    number of blocks it would become part of if the table were sorted. Blocks are put in buckets by powers of
    `Policy.fan_out`. In a partition whose blocks have an average depth above the threshold, the overlapping
    blocks of the widest bucket are merged, in the order of the key, up to `Policy.max_blocks` at a time.
    Where the widest bucket has none that overlap, the next narrower one is added to it. Source: US patent
    10,817,540, "Incremental clustering maintenance of a table".

    Args:
        candidates: c candidates.
        threshold: float64 (partitions,), greatest average depth of a well clustered partition.
        policy: fan-out and limits of a set.

    Returns:
        The sets, widest first; and the greatest average depth seen.
    """
    if len(candidates) == 0:
        return no_sets(), 0.0
    sweep = candidates.sweep(np.arange(len(candidates)))
    count = np.bincount(candidates.partition, minlength=len(threshold))
    depth = np.bincount(candidates.partition, sweep.depths(), len(threshold))
    average = np.round(depth / np.maximum(count, 1), 4)
    waiting = average > threshold
    bucket = np.zeros(len(candidates), np.int64)
    power = policy.fan_out
    widths = block_widths(sweep)
    while power <= int(widths.max()):
        bucket += widths >= power
        power *= policy.fan_out
    sets = no_sets()
    for narrowest in range(int(bucket.max()), -1, -1):
        member = np.flatnonzero((bucket >= narrowest) & waiting[candidates.partition])
        found = form_sets(candidates, member, np.zeros(len(member), np.int64), policy)
        sets = sets.then(found)
        waiting[candidates.partition[found.member]] = False
    return sets, float(average.max())


def block_widths(sweep: Sweep) -> IntArray:
    """How many members of the longest sequence of intervals that do not overlap end within each interval.

    Args:
        sweep: over n closed intervals.

    Returns:
        int64 (n,), each at least 1.
    """
    # The longest sequence takes, again and again, what ends first among the intervals that start after the
    # last one taken. `following` leads from the end of one member to the end of the next, or to `points`.
    points = len(sweep.started)
    first_end: IntArray = np.full(points + 1, points)
    np.minimum.at(first_end, sweep.lower, sweep.upper)
    first_end = np.minimum.accumulate(first_end[::-1])[::-1]
    following = np.append(first_end[1:], points)
    # Steps of 1, 2, 4, ... from all members found so far find all of them without a loop over them.
    member = np.zeros(points + 1, np.bool_)
    found = first_end[:1]
    while not member[found].all():
        member[found] = True
        found = following[np.flatnonzero(member)]
        following = following[following]
    passed = np.cumsum(np.append(0, member[:points]))
    widths: IntArray = np.maximum(1, passed[sweep.upper + 1] - passed[sweep.lower])
    return widths
