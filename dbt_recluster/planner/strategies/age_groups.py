"""Age groups: overlapping blocks grouped by age, and the benefit of merging a group against its cost.

Wide is young: merges make blocks narrow, so a block that holds few of the rows within its bounds has seen few merges.
This is the measure of US patent 10,817,540, "Incremental clustering maintenance of a table".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import (
    BoolArray,
    Float32Array,
    FloatArray,
    Int32Array,
    IntArray,
    group_starts,
    narrow,
)
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.strategies.coverage import Coverage, Extents, total_over
from dbt_recluster.planner.strategies.levels import (
    GREATEST_LEVEL,
    LEVEL_GROWTH,
    loads_of_level,
)

# Two groups of one level are apart where widths, in ascending order, grow by more than `LEVEL_GROWTH`; and by this many
# times more over the number of units that a block covers, because chance makes the widths of short blocks differ.
# Without it, uniform unsorted loads cost 4 % more work (four seeds).
_FEW_UNITS = 8.0
# The oldest groups of a component beyond this many have one age, because every age costs a pass over the axis. One age
# for all groups in one power of `LEVEL_GROWTH` would need no limit, but costs 6 % more work on uniform sorted loads.
_MOST_AGES = 48
# Blocks whose loads are worked out at a time. Without pieces a plan of a million blocks takes 20 % more memory.
_PIECE = 1 << 16


@dataclass(frozen=True, eq=False)
class AgeGroups:
    """n overlapping blocks in groups of one level and like width, each in one connected range of keys.

    Attributes:
        extents: Extents of the blocks.
        rows: float32 (n,), at least 1.
        group: Code of each block's group, int32 (n,).
        by_age: Positions of the blocks of one age, int32, for each age from the youngest to the oldest.
        covered: bool (n,), true for blocks under another block of the same age or younger.
        benefit_cost: Benefit-cost ratio of merging each group, float64 (groups,); 0 if no block of it is covered.
    """

    extents: Extents
    rows: Float32Array
    group: Int32Array
    by_age: list[Int32Array]
    covered: BoolArray
    benefit_cost: FloatArray

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.extents)

    @classmethod
    def of(cls, candidates: Candidates, member: Int32Array, part: Int32Array) -> AgeGroups:
        """Group some candidates by age, and weigh the benefit of merging each group against its cost.

        Args:
            candidates: c candidates.
            member: Positions of the blocks in the candidates, int32 (n,), ascending, n at least 1.
            part: Part of each block, int32 (n,): twice its partition, or one more. No group is in two parts.
        """
        extents = Extents.of(candidates.first[member], candidates.last[member])
        # A block without rows would cost nothing, and be infinitely wide.
        rows = np.maximum(candidates.rows[member], 1).astype(np.float32)
        level = candidates.level[member]
        total = rows_over(extents, rows)
        # A component lies in one partition, so the last bit of the part tells its two parts apart.
        component = 2 * extents.components() + (part & 1)
        group, order, starts = form_groups(component, level, total / rows, extents.length)
        width = np.add.reduceat(total[order], starts, dtype=np.float64)
        width /= np.add.reduceat(rows[order], starts, dtype=np.float64)
        by_age = order_by_age(component[order[starts]] // 2, width, group)
        del order, component
        if level.any():
            loads = loads_of_level(level).astype(np.float32)
        else:
            loads = estimate_loads(extents, width[group], by_age)
        del level
        younger = younger_loads(extents, loads, by_age)
        covered = younger > 0
        benefit = np.bincount(group, younger * total)
        cost = np.bincount(group, rows * covered)
        return cls(extents, rows, group, by_age, covered, benefit / np.maximum(cost, 1.0))

    def with_younger(self, merged: BoolArray) -> BoolArray:
        """Add the blocks of the same age or younger over the merged ones: bool (n,)."""
        result = np.zeros(len(self), np.bool_)
        # For each unit, the last unit reached by the merged blocks that begin there or before, of all ages so far.
        reach = np.zeros(2 * len(self), np.int32)
        for blocks in reversed(self.by_age):
            oldest = blocks[merged[blocks]]
            if len(oldest):
                np.maximum.at(reach, self.extents.begin[oldest], self.extents.end[oldest])
                np.maximum.accumulate(reach, out=reach)
            if reach[-1]:
                result[blocks] = reach[self.extents.end[blocks] - 1] > self.extents.begin[blocks]
        return result


def rows_over(extents: Extents, rows: Float32Array) -> Float32Array:
    """Rows of all blocks within the extent of each block, spread evenly over extents: float32 (n,)."""
    coverage = Coverage(2 * len(extents))
    coverage.add(extents, rows / extents.length)
    return total_over(coverage.integral(), extents).astype(np.float32)


def form_groups(
    component: Int32Array, level: Int32Array, width: Float32Array, length: Int32Array
) -> tuple[Int32Array, Int32Array, IntArray]:
    """Group the blocks of one component and level whose widths follow one another without a gap.

    Args:
        component: Codes of connected ranges of keys, int32 (n,).
        level: int32 (n,).
        width: float32 (n,), positive.
        length: Units that each block covers, int32 (n,).

    Returns:
        Codes of the groups, int32 (n,); the blocks in the order of groups, int32 (n,); and the position in that order
        at which each group starts, int64 (groups,).
    """
    key = component.astype(np.int64) * (GREATEST_LEVEL + 1) + np.minimum(level, GREATEST_LEVEL)
    # The bits of positive floats have the order of the floats, so one sort orders by width last.
    key <<= 32
    key |= width.view(np.int32)
    order = narrow(np.argsort(key, kind="stable"))
    key = key[order]
    key >>= 32
    new = np.ones(len(order), np.bool_)
    new[1:] = key[1:] != key[:-1]
    del key
    width = width[order]
    gap: Float32Array = np.float32(_FEW_UNITS) / length[order[1:]].astype(np.float32)
    gap += np.float32(LEVEL_GROWTH)
    gap *= width[:-1]
    new[1:] |= width[1:] > gap
    group = np.empty(len(order), np.int32)
    group[order] = np.cumsum(new, dtype=np.int32) - 1
    return group, order, np.flatnonzero(new)


def order_by_age(component: Int32Array, width: FloatArray, group: Int32Array) -> list[Int32Array]:
    """Order blocks by the width of their group, the widest group of every component first.

    Args:
        component: Component of each group, int32 (groups,).
        width: Width of each group, float64 (groups,).
        group: Code of each block's group, int32 (n,).

    Returns:
        Positions of the blocks of each age, int32, the youngest age first.
    """
    order = np.lexsort((-width, component))
    start = group_starts(component[order].astype(np.int64))
    age = np.empty(len(order), np.int64)
    age[order] = np.arange(len(order)) - np.repeat(start, np.diff(np.append(start, len(order))))
    age_of_block = np.minimum(age, _MOST_AGES - 1).astype(np.int8)[group]
    blocks = np.argsort(age_of_block, kind="stable").astype(np.int32)
    return np.split(blocks, np.cumsum(np.bincount(age_of_block))[:-1])


def younger_loads(extents: Extents, loads: Float32Array, by_age: list[Int32Array]) -> Float32Array:
    """Mean over each block's units of the loads in other blocks of its age or younger: float32 (n,)."""
    younger = np.zeros(len(extents), np.float32)
    coverage = Coverage(2 * len(extents))
    for blocks in by_age:
        for piece in _pieces(blocks):
            coverage.add(extents.take(piece), loads[piece])
        integral = coverage.integral()
        for piece in _pieces(blocks):
            own = extents.take(piece)
            # Loads are whole numbers, so the difference is exactly 0 where nothing else is.
            younger[piece] = (total_over(integral, own) - loads[piece] * own.length) / own.length
        del integral
    return younger


def _pieces(blocks: Int32Array) -> list[Int32Array]:
    return np.array_split(blocks, -(-len(blocks) // _PIECE))


def estimate_loads(extents: Extents, width: FloatArray, by_age: list[Int32Array]) -> Float32Array:
    """Loads in each block if no level is known: how often it would fit into the youngest blocks over its keys.

    Args:
        extents: Extents of n blocks.
        width: Width of each block's group, float64 (n,).
        by_age: Positions of the blocks of each age, int32, the youngest age first.

    Returns:
        float32 (n,), whole numbers of at least 1.
    """
    youngest = np.zeros(2 * len(extents))
    for blocks in by_age:
        count, widths = Coverage(len(youngest)), Coverage(len(youngest))
        count.add(extents.take(blocks), np.ones(len(blocks)))
        widths.add(extents.take(blocks), width[blocks])
        covers = count.values()
        first = (youngest == 0) & (covers > 0)
        youngest[first] = widths.values()[first] / covers[first]
    integral = np.append(0.0, np.cumsum(youngest))
    loads = total_over(integral, extents) / extents.length / width
    return np.maximum(np.round(loads), 1.0).astype(np.float32)
