"""Strategy `width`: merge the widest blocks that overlap. It needs no level."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.block_sets import Measured, Selection, form_sets, no_sets
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.depth import Sweep
from dbt_recluster.planner.policy import Policy

# Base of the buckets of widths.
_FAN_OUT = 4


def width(candidates: Candidates, threshold: FloatArray, policy: Policy) -> Selection:
    """Select the overlapping blocks of the widest bucket, in partitions above the threshold.

    A block's width is the number of blocks that it would become part of if the table were sorted: the number of
    members that it covers of the longest sequence of disjoint blocks. Buckets are powers of the fan-out. Where the
    widest bucket has no overlap, the next narrower one is added to it.

    Source: US patent 10,817,540, "Incremental clustering maintenance of a table".

    Args:
        candidates: c candidates.
        threshold: Greatest average depth of a well clustered partition, float64 (partitions,).
        policy: Its limits on a set.

    Returns:
        The sets, widest first.
    """
    if len(candidates) == 0:
        return Selection(no_sets(), Measured())
    sweep = candidates.sweep()
    count = np.bincount(candidates.partition, minlength=len(threshold))
    depth = np.bincount(candidates.partition, sweep.depths(), len(threshold))
    average = np.round(depth / np.maximum(count, 1), 4)
    waiting = average > threshold
    bucket = np.zeros(len(candidates), np.int64)
    power = _FAN_OUT
    widths = block_widths(sweep)
    while power <= int(widths.max()):
        bucket += widths >= power
        power *= _FAN_OUT
    sets = no_sets()
    for narrowest in range(int(bucket.max()), -1, -1):
        member = np.flatnonzero((bucket >= narrowest) & waiting[candidates.partition])
        formed = form_sets(candidates, member, np.zeros(len(member), np.int64), policy)
        sets = sets.then(formed)
        waiting[candidates.partition[formed.member]] = False
    return Selection(sets, Measured.worst(average, threshold))


def block_widths(sweep: Sweep) -> IntArray:
    """Number of members of the longest sequence of disjoint intervals that end within each interval.

    Args:
        sweep: Over n closed intervals.

    Returns:
        int64 (n,), each at least 1.
    """
    # The longest sequence always takes next the interval that ends first among those that start after its last member.
    # `following` leads from the end of one member to the end of the next, or to `points`.
    points = len(sweep.started)
    first_end: IntArray = np.full(points + 1, points)
    np.minimum.at(first_end, sweep.lower, sweep.upper)
    first_end = np.minimum.accumulate(first_end[::-1])[::-1]
    following = np.append(first_end[1:], points)
    # Jumps of 1, 2, 4, ... members reach all of them in O(log n) passes.
    member = np.zeros(points + 1, np.bool_)
    reached = first_end[:1]
    while not member[reached].all():
        member[reached] = True
        reached = following[np.flatnonzero(member)]
        following = following[following]
    passed = np.cumsum(np.append(0, member[:points]))
    widths: IntArray = np.maximum(1, passed[sweep.upper + 1] - passed[sweep.lower])
    return widths
