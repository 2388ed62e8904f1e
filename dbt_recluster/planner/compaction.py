"""Compaction: small blocks side by side along the key, merged into fuller ones.

Depth does not show them: a table loaded in order has depth 1 and a block for each load. A compaction takes neighbours
of one partition and crosses only gaps that no block covers, so it makes no key deeper than it was, nor deeper than 1.
"""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, IntArray, places_within
from dbt_recluster.planner.candidates import Candidates, SetArrays, cells_of, cut_by_bytes, no_sets
from dbt_recluster.planner.policy import Policy

# These figures come from trials on sizes alone; `python benchmarks/small_blocks.py` measures whole tables.

# A compaction that leaves a small block must be this many times its largest member. So a row passes through one tier
# for each power of 4 between its load and half a block. Ordered loads of a tenth of a block: 1.46 blocks for each full
# one at most and 1.5 rows rewritten with 4; 1.40 and 1.75 with 3; 1.66 and 1.0 with 5, which leaves four small blocks
# in every partition that gets no more loads.
_TIER = 4
# Any other compaction must fill its blocks to 3/4 at least. They are not compacted again, so what they lack stays.
# Ordered loads of 1 to 60 % of a block end at 1.30 blocks for each full one with 3/4, at 1.37 with 13/20 and at 1.36
# with 17/20, where more wait.
_FILL = (3, 4)
# A block filled to less than 2/3 is taken along where that fills it. It is rewritten so only once, because 2/3 is below
# `_FILL`. Loads of 1 to 60 % of a block have one of more than half among six, and with small blocks alone they end
# at 1.79 instead of 1.30 blocks for each full one; even compacting everything between would leave 1.50.
_NEARLY_FULL = (2, 3)


def select_compactions(candidates: Candidates, taken: IntArray, policy: Policy) -> SetArrays:
    """Select sets of neighbours to merge, along the key. Each leaves fewer blocks, so repeating plan and merge ends.

    ``taken`` are the positions in the candidates of blocks that other sets merge, int64 (m,).
    """
    small = policy.full_block.is_small(candidates.rows, candidates.bytes)
    small[taken] = False
    if not small.any():
        return no_sets()
    weight = policy.full_block.equivalent_rows(candidates.rows, candidates.bytes)
    eligible = weight * _NEARLY_FULL[1] < policy.block_rows * _NEARLY_FULL[0]
    eligible[taken] = False
    # Only a merge by depth may give such a block a bound, and only once.
    eligible &= ~candidates.blocks.unbounded[candidates.position]
    member = np.flatnonzero(eligible)
    if len(member) < 2:
        return no_sets()
    stretches, anchor = _stretches(candidates, member)
    if (most := policy.set_limits.bytes) is not None:
        label = cut_by_bytes(SetArrays(member, stretches), candidates.bytes, most)
        stretches = np.flatnonzero(np.diff(label, prepend=-1))
    neighbours = _Neighbours(weight[member], small[member], anchor, policy.block_rows)
    start, end = neighbours.compactions(stretches, np.append(stretches[1:], len(member)))
    return SetArrays.from_ranges(start, end, member)


def _stretches(candidates: Candidates, member: IntArray) -> tuple[IntArray, IntArray]:
    """Split candidates, given by position, int64 (m,), ascending, m at least 2, where a set across would deepen a key.

    Returns:
        The position in ``member`` at which each stretch begins, int64 (stretches,). And for each block but the last the
        latest block with which a set may begin that goes on to the next block, int64 (m - 1,).
    """
    first, last = candidates.first[member], candidates.last[member]
    all_first, all_last = cells_of(candidates.blocks, slice(None))
    reach_before = np.full(2 * candidates.blocks.points, -1)
    np.maximum.at(reach_before, all_first + 1, all_last)
    # A set may go on to the next block if no block that begins before that one reaches further than the set.
    needed = np.minimum(np.maximum.accumulate(reach_before)[first[1:]], first[1:] - 1)
    reach = np.maximum.accumulate(last)
    partition = candidates.partition[member]
    linked = (reach[:-1] >= needed) & (partition[1:] == partition[:-1])
    place = np.arange(len(member))
    furthest = np.maximum.accumulate(np.where(last == reach, place, 0))
    anchor = np.where(last[:-1] >= needed, place[:-1], furthest[:-1])
    return np.append(0, np.flatnonzero(~linked) + 1), anchor


class _Neighbours:
    """m blocks in the order of the key. A segment is a range of them, from ``start`` up to ``end``."""

    def __init__(self, weight: IntArray, small: BoolArray, anchor: IntArray, full: int) -> None:
        """Line up blocks by `FullBlock.equivalent_rows`, int64 (m,), and `_stretches`; ``full`` is a full block's."""
        self.weight, self.full = np.append(weight, 0), full
        self.weight_before = np.append(0, np.cumsum(weight))
        self.small_before = np.append(0, np.cumsum(small))
        self.anchor = np.append(anchor, [0, 0])

    def compactions(self, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
        """Find segments that pay within these ones: int64 (compactions,) each, in the order of the key.

        A segment is merged as a whole if that pays. Otherwise it is parted, and the same is tried for its parts.
        """
        starts, ends = [start[:0]], [end[:0]]
        while len(start):
            start, end = self._apart(start, end)
            pays = self._pays(start, end)
            starts.append(start[pays])
            ends.append(end[pays])
            start, end = self._parts(start[~pays], end[~pays])
        start, end = np.concatenate(starts), np.concatenate(ends)
        order = np.argsort(start)
        return start[order], end[order]

    def _apart(self, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
        """Split segments where they cannot go on without a block before their start, and drop single blocks."""
        while True:
            several = end - start > 1
            start, end = start[several], end[several]
            place, segment = places_within(start, end - 1)
            last = place[self.anchor[place] < start[segment]] + 1
            if len(last) == 0:
                return start, end
            start, end = np.sort(np.append(start, last)), np.sort(np.append(end, last))

    def _pays(self, start: IntArray, end: IntArray) -> BoolArray:
        """Whether each segment may be merged, and pays: bool (segments,). Segments ascend."""
        total = self._total(start, end)
        blocks = -(-total // self.full)
        fills = total * _FILL[1] >= blocks * self.full * _FILL[0]
        grows = (2 * total < self.full) & (total >= _TIER * self._greatest(start, end))
        useful = (end - start > blocks) & (self.small_before[end] > self.small_before[start])
        last = np.maximum(end - 1, start)
        anchor = np.minimum.reduceat(self.anchor, np.column_stack([start, last]).ravel())[::2]
        return (fills | grows) & useful & (start <= anchor)

    def _parts(self, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
        """Part segments that do not pay as a whole.

        Whole blocks at one end are parted from the rest, or what stays less than half a block, where that pays. Other
        segments are split at their largest blocks, which are left out: passes are logarithmic in a full block's rows.
        """
        total = self._total(start, end)
        grows = total >= _TIER * self._greatest(start, end)
        wanted = np.where(total > self.full, total // self.full * self.full, np.where(grows, (self.full - 1) // 2, 0))
        before = self.weight_before
        head = np.searchsorted(before, before[start] + wanted, side="right") - 1
        tail = np.searchsorted(before, before[end] - wanted)
        cut = np.where(self._pays(start, head), head, np.where(self._pays(tail, end), tail, -1))
        whole = cut < 0
        place, segment = places_within(start[whole], end[whole])
        weight = self.weight[place]
        largest = place[weight == self._greatest(start[whole], end[whole])[segment]]
        starts = [start, cut[~whole], largest + 1]
        ends = [end, cut[~whole], largest]
        return np.sort(np.concatenate(starts)), np.sort(np.concatenate(ends))

    def _total(self, start: IntArray, end: IntArray) -> IntArray:
        """Weight of each segment: int64 (segments,)."""
        total: IntArray = self.weight_before[end] - self.weight_before[start]
        return total

    def _greatest(self, start: IntArray, end: IntArray) -> IntArray:
        """Greatest weight in each segment: int64 (segments,). Segments ascend and have a block each."""
        greatest: IntArray = np.maximum.reduceat(self.weight, np.column_stack([start, end]).ravel())[::2]
        return greatest
