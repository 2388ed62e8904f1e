"""Merges: the block sets of a plan, the blocks that merging them writes, and whether that helps any query.

The blocks that a merge writes are predicted from bounds and row counts alone. Rows are assumed to lie evenly between a
block's bounds, measured in ranks, which exist for every type of key.

Two kinds of sets do not pay, although their blocks overlap. Limits on bytes make sets that remove overlap only where
none of their blocks is deepest, or where other blocks overlap them anyway. And if bounds are wider than the keys in a
block, the bounds of a run's blocks overlap, and only the run says that the blocks do not. A merge moves some of them to
another run, so the others lose that protection: without `reveals_less`, planning would merge two neighbours, then one
of them with the next, and then the first two again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np

from dbt_recluster.planner.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Segments,
    numbers_within,
    range_max,
    ranges_where,
)
from dbt_recluster.planner.blocks import Blocks, Extents
from dbt_recluster.planner.candidates import SetArrays
from dbt_recluster.planner.policy import Policy


@dataclass(frozen=True, eq=False)
class BlockSet:
    """Blocks to merge together: two or more, or one with many deleted rows, or one under a curve to cut into several.

    `payback` selects a set by the least benefit-cost ratio of the age groups that it is merged for.
    """

    blocks: IntArray  # positions in the planned `Blocks`, int64 (k,), ascending
    level: int  # of the blocks that the merge will write
    rows: int  # to rewrite; 0 if unknown
    bytes: int  # to read; 0 if unknown
    depth: int  # greatest depth of its blocks alone; touching does not count, and a compaction has 1
    expected_depth: int  # greatest depth of candidates over its keys after the whole plan; touching does not count
    expected_blocks: int  # that the merge will write, as many as its rows and bytes fill
    run: int  # sets of a plan with the same run write disjoint blocks of one level, which may be committed as one run
    partition: int  # its code in `Blocks.partition`
    is_merge: bool = True  # whether it merges blocks; others drop deleted rows


class Why(Enum):
    """Kinds of reasons to merge, or to merge nothing, and their figures."""

    DEPTH = auto()  # depth, threshold, whether it is the read depth, and of several partitions the code of the deepest
    CURVE_COSTS = auto()  # block sets that save reads of single columns
    SMALL_BLOCKS = auto()  # blocks to compact, small ones of them, blocks to write, whether these are full
    DELETED_ROWS = auto()  # blocks, and the least share of their rows that is deleted
    NO_BLOCKS = auto()
    NO_CANDIDATES = auto()  # the reasons
    SINGLE_KEYS = auto()
    NOT_NARROWED = auto()  # blocks whose bounds a merge did not narrow
    GREATEST_LEVEL = auto()  # the level, and blocks
    LEVELS_WITHIN_THRESHOLD = auto()  # the threshold
    SMALL_TABLE = auto()  # the least full blocks of one that is merged for its depth
    NO_GAIN = auto()  # whether the key is a curve
    NO_SET_FITS = auto()  # bytes: the budget, and the smallest sufficient one


@dataclass(frozen=True)
class Reason:
    """A reason and its figures; `clustering.verdict` turns it into text."""

    kind: Enum
    figures: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The block sets to merge now, if any.

    Its depth, which is compared with the threshold, is the average depth of the worst partition, without what no merge
    could reduce if there were no limits: 1 if no block can be narrowed, 0 without blocks.
    """

    block_sets: tuple[BlockSet, ...] = ()  # best first, and disjoint, so they may be merged at the same time
    rows: int = 0  # to rewrite in all sets; 0 if unknown
    bytes: int = 0  # to read in all sets; 0 if unknown
    reasons: tuple[Reason, ...] = ()  # why there is, or is not, something to do
    limited: bool = False  # whether it is empty only because of `Policy.max_bytes` or `Policy.max_merge_bytes`
    left: int = 0  # if limited, blocks that a plan without these limits would merge
    depth: float = 0.0
    threshold: float = 1.0  # of that partition
    by_reads: bool = False  # whether the depth is the read depth instead
    by_level: bool = False  # whether the depth of each level is at most the threshold, and the strategy goes by level
    is_small: bool = False  # whether the table is too small to be merged for its depth
    partition: int | None = None  # the code of that partition, if there are several
    can_merge: bool = False  # whether a plan without a budget has block sets

    @property
    def members(self) -> SetArrays:
        """Positions in the planned blocks of the members of the sets, of which there is at least one."""
        size = np.array([len(block_set.blocks) for block_set in self.block_sets])
        positions = [block_set.blocks for block_set in self.block_sets]
        return SetArrays(np.concatenate(positions), np.cumsum(size) - size)


def reveals_less(blocks: Blocks, sets: SetArrays) -> BoolArray:
    """Whether merging each set removes more overlap, in ranks, than it reveals, or reveals none: bool (sets,)."""
    extents = blocks.extents
    hidden = (extents.shown_lower != extents.lower) | (extents.shown_upper != extents.upper)
    if not (hidden | extents.unnarrowed).any():
        return np.ones(len(sets), np.bool_)
    in_runs = np.flatnonzero((blocks.run > 0) & (extents.shown_lower < extents.shown_upper))
    segments = Segments.from_intervals(extents.shown_lower[in_runs], extents.shown_upper[in_runs], blocks.run[in_runs])
    stays = np.ones(len(blocks), np.bool_)
    stays[sets.member] = False
    # Several blocks of the run overlap here now, and only one of them stays.
    shown = (segments.covered.depth() > 1) & (segments.covered.depth(stays[in_runs]) == 1)
    of_block = np.zeros(len(blocks), np.int64)
    of_block[in_runs] = segments.covered.total(np.where(shown, segments.length, 0))
    revealed = sets.total(of_block)
    hull = sets.greatest(extents.upper) - sets.least(extents.lower)
    removed = sets.total(extents.upper - extents.lower) - hull
    less: BoolArray = (revealed == 0) | (revealed < removed)
    return less


@dataclass(frozen=True, eq=False)
class Gain:
    """The changes that merging each set alone would make.

    Bounds, and the gaps between them, are cells as in `candidates`. Here blocks also cover the cells of their bounds,
    as they do for queries.
    """

    blocks: Blocks
    sets: SetArrays  # members are positions in the blocks
    segments: Segments  # the cells of each set, cut where its members begin and end
    surplus: IntArray  # members over each segment less one, at least 0: int32 (segments,)
    depth: IntArray  # blocks over each cell, int32 (cells,)

    @classmethod
    def from_sets(cls, blocks: Blocks, sets: SetArrays) -> Gain:
        """Compute the gain of each set."""
        cells = blocks.cells
        members = cells.take(sets.member)
        segments = Segments.from_intervals(members.begin, members.end, sets.set_of_member)
        return cls(blocks, sets, segments, np.maximum(segments.covered.depth() - 1, 0), cells.depth())

    def lowers_average(self, expected: IntArray, block_rows: int) -> BoolArray:
        """Whether each set lowers the average depth of its partition: bool (sets,); arguments as `written_blocks`."""
        blocks, sets, segments = self.blocks, self.sets, self.segments
        ends = segments.begins + np.maximum(segments.length - 1, 0)
        greatest = range_max(self.depth, segments.begins, ends)
        written = written_blocks(blocks, sets, expected, block_rows)
        first, last = (segments.at(written.block_set, _cells(ends)) for ends in (written.lower, written.upper))
        depth = range_max(greatest - self.surplus, first, last)
        of_block = blocks.cells.greatest(self.depth)
        change = np.bincount(written.block_set, depth, len(sets)).astype(np.int64) - sets.total(of_block)
        more = np.bincount(written.block_set, minlength=len(sets)) - sets.size
        # Compare with the average of the set's partition, so that no partition depends on another.
        count = np.bincount(blocks.partition)
        total = np.bincount(blocks.partition, of_block).astype(np.int64)
        partition = blocks.partition[sets.member[sets.start]]
        lowers: BoolArray = change * count[partition] < total[partition] * more
        return lowers if lowers.all() else lowers | self._lowers_others()

    def lowers_reads(self) -> BoolArray:
        """Whether reads end where members overlap: bool (sets,)."""
        if self.blocks.reads is None:
            return np.zeros(len(self.sets), np.bool_)
        before = np.append(0.0, np.cumsum(self.blocks.reads.in_cells))
        begin, end, of_set = self._overlaps()
        return np.bincount(of_set, before[end] - before[begin], len(self.sets)) > 0

    def _lowers_others(self) -> BoolArray:
        """Whether the depth of a block in no set falls: bool (sets,)."""
        other = np.ones(len(self.blocks), np.bool_)
        other[self.sets.member] = False
        others, cells = self.blocks.cells.take(other), len(self.depth)
        # The first and the last cell where each block is deepest.
        place = np.arange(cells)
        rank = self.depth.astype(np.int64) * cells
        first = cells - 1 - others.greatest(rank + place[::-1]) % cells
        last = others.greatest(rank + place) % cells
        least_last = np.full(cells + 1, cells)
        np.minimum.at(least_last, first, last)
        least_last = np.minimum.accumulate(least_last[::-1])[::-1]
        begin, end, of_set = self._overlaps()
        return np.bincount(of_set, least_last[begin] < end, len(self.sets)) > 0

    def _overlaps(self) -> tuple[IntArray, IntArray, IntArray]:
        """Ranges of cells where members of a set overlap: first cells, cells behind, and sets, int64 (k,) each."""
        segments = self.segments
        first, last = ranges_where(self.surplus > 0, segments.group)
        return segments.begins[first], segments.begins[last] + segments.length[last], segments.group[first]


def _cells(places: FloatArray) -> IntArray:
    """Cells of places on the axis of ranks."""
    rank = np.floor(places)
    return (2 * rank + (places > rank)).astype(np.int64)


class WrittenBlocks(NamedTuple):
    """Blocks that merges will write, in the order of their sets and of the key."""

    lower: FloatArray  # lower bounds on the axis of ranks, float64 (w,); whole numbers are bounds of merged blocks
    upper: FloatArray  # upper bounds
    rows: IntArray  # int64 (w,)
    block_set: IntArray  # index of the set that each comes from, int64 (w,)


def written_blocks(blocks: Blocks, sets: SetArrays, expected: IntArray, block_rows: int) -> WrittenBlocks:
    """Predict the blocks that merging sets of positions of some blocks will write.

    Each set is cut into as many blocks as ``expected``, int64 (sets,); ``block_rows`` are those of a full block.
    """
    # Offsets separate the sets on the axis.
    member, set_of_member = sets.member, sets.set_of_member
    offset = set_of_member * float(blocks.points + 1)
    lower, upper = blocks.extents.lower[member] + offset, blocks.extents.upper[member] + offset
    rows = np.full(len(member), block_rows) if blocks.rows is None else blocks.rows[member]
    if blocks.deleted is not None:
        rows = rows - blocks.deleted[member]
    distribution = _Distribution.from_blocks(lower, upper, rows.astype(np.float64), set_of_member)

    # A set is cut into k blocks at k + 1 places, its ends included.
    set_of_cut, number = np.repeat(np.arange(len(sets)), expected + 1), numbers_within(expected + 1)
    share = distribution.total[set_of_cut] / expected[set_of_cut]
    before, after, filled = distribution.cut(set_of_cut, share * number, block_rows)
    begins, ends = number == 0, number == expected[set_of_cut]
    after[begins], before[ends] = distribution.at[distribution.first], distribution.at[distribution.last]
    filled[begins], filled[ends] = 0, np.bincount(set_of_member, rows)
    whole, set_of_part = np.rint(filled).astype(np.int64), set_of_cut[~ends]
    new_lower, new_upper, new_rows = after[~ends], before[~begins], whole[~begins] - whole[~ends]
    # A cut that rounding has put at the end of its set leaves rows there, and not beyond.
    new_lower = np.where(new_rows > 0, np.minimum(new_lower, new_upper), new_lower)
    some = new_lower <= new_upper
    if blocks.deleted is not None:
        some &= new_rows > 0
    offset = set_of_part * float(blocks.points + 1)
    return WrittenBlocks((new_lower - offset)[some], (new_upper - offset)[some], new_rows[some], set_of_part[some])


class _Distribution(NamedTuple):
    """Rows of a set below each key: linear between bounds, with a step at every constant block."""

    at: FloatArray  # distinct bounds of all sets, float64 (p,), ascending
    below: FloatArray  # rows of the same set below each bound, (p,)
    step: FloatArray  # rows with exactly this key, (p,)
    slope: FloatArray  # rows per unit of the axis up to the next bound, (p,)
    first: IntArray  # position of each set's first bound, int64 (sets,)
    last: IntArray  # position of its last bound
    total: FloatArray  # rows of each set, float64 (sets,)

    @classmethod
    def from_blocks(cls, lower: FloatArray, upper: FloatArray, rows: FloatArray, block_set: IntArray) -> _Distribution:
        at = np.unique(np.concatenate([lower, upper]))
        low, high = np.searchsorted(at, lower), np.searchsorted(at, upper)
        wide = low < high
        density = np.where(wide, rows / np.where(wide, upper - lower, 1.0), 0.0)
        slope = np.cumsum(np.bincount(low, density, len(at)) - np.bincount(high, density, len(at)))
        step = np.bincount(low[~wide], rows[~wide], len(at)).astype(np.float64)
        first = np.full(int(block_set[-1]) + 1, len(at))
        np.minimum.at(first, block_set, low)
        # No rows lie between two sets; rounding errors of the sum may say otherwise.
        last = np.append(first[1:], len(at)) - 1
        slope[last] = 0.0
        between = np.maximum(slope[:-1], 0.0) * np.diff(at) + step[:-1]
        below = np.append(0.0, np.cumsum(between))
        total = below[last] + step[last] - below[first]
        below -= np.repeat(below[first], last - first + 1)
        return cls(at, below, step, slope, first, last, total)

    def cut(self, block_set: IntArray, rows: FloatArray, block_rows: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cut sets, given by index, int64 (cuts,), where these numbers of rows, float64 (cuts,), lie below.

        A cut within a step moves to the nearer side of the step, unless the step alone fills more than a block.

        Returns:
            Greatest key below each cut, least key above it, and rows below it, float64 (cuts,) each.
        """
        # Rows below restart at 0 with every set, so cuts are looked up on a sum over all sets.
        before_set = np.cumsum(np.append(0.0, self.total))
        sum_below = self.below + np.repeat(before_set[:-1], self.last - self.first + 1)
        place = np.searchsorted(sum_below, before_set[block_set] + rows, side="right") - 1
        last = self.last[block_set]
        place = np.clip(place, self.first[block_set], last)
        inside = rows - self.below[place]
        step, at, slope = self.step[place], self.at[place], self.slope[place]
        following = self.at[np.minimum(place + 1, last)]
        beyond = np.where(slope > 0, np.maximum(inside - step, 0.0) / np.where(slope > 0, slope, 1.0), 0.0)
        before = np.minimum(at + beyond, following)
        in_step = (inside < step) & (step > 0)
        split = in_step & (step > block_rows)
        left = in_step & ~split & (inside < step / 2)
        filled = np.where(in_step & ~split, self.below[place] + np.where(left, 0, step), rows)
        after = np.where(split | left, at, np.nextafter(before, np.inf))
        return np.where(left, np.nextafter(at, -np.inf), before), after, filled


def simulate(blocks: Blocks, plan: Plan, policy: Policy) -> Blocks:
    """Predict the blocks after a plan's merges, from bounds and row counts alone (see `written_blocks`).

    Each set's rows are cut into its `expected_blocks` of nearly equal size. The rows of one key stay in one block
    unless they fill more than one, of `Policy.block_rows`.

    Returns:
        The blocks in no set, in their order, then the new blocks of each set, in the order of the key.
    """
    if not plan.block_sets:
        return blocks
    sets = plan.members
    expected = np.array([block_set.expected_blocks for block_set in plan.block_sets])
    written = written_blocks(blocks, sets, expected, policy.block_rows)
    left = blocks.take(np.delete(np.arange(len(blocks)), sets.member))
    points = np.unique(np.concatenate([left.lower, left.upper, written.lower, written.upper]))
    # An end may lie at a bound that no longer exists; it moves outwards, at most to the block's own bound.
    lowers = (np.append(ends, written.lower) for ends in (left.lower, left.extents.lower, left.extents.shown_lower))
    uppers = (np.append(ends, written.upper) for ends in (left.upper, left.extents.upper, left.extents.shown_upper))
    lower, low, shown_low = (np.searchsorted(points, ends, side="right") - 1 for ends in lowers)
    upper, high, shown_high = (np.searchsorted(points, ends) for ends in uppers)
    unnarrowed = np.append(left.extents.unnarrowed, np.zeros(len(written.rows), np.bool_))
    return replace(
        left,
        lower=lower,
        upper=upper,
        points=len(points),
        extents=Extents(low, high, shown_low, shown_high, unnarrowed),
        reads=None if left.reads is None else left.reads.moved(points),
        layout=None,
        **_figures_after(left, written, plan, first_run=max(0, int(blocks.run.max())) + 1),
    )


def _figures_after(left: Blocks, written: WrittenBlocks, plan: Plan, first_run: int) -> dict[str, Any]:
    """All known arrays except bounds, of the remaining blocks followed by the written ones."""
    count = np.bincount(written.block_set, minlength=len(plan.block_sets))
    names = ("bytes", "level", "run", "partition")
    of_sets = {name: np.array([getattr(block_set, name) for block_set in plan.block_sets]) for name in names}
    of_sets["bytes"] //= np.maximum(count, 1)
    of_sets["run"] += first_run
    of_sets |= dict.fromkeys(("unbounded", "fixed", "deleted"), np.zeros_like(count))
    values = {name: of_set[written.block_set] for name, of_set in of_sets.items()} | {"rows": written.rows}
    return {
        name: np.append(before, after.astype(before.dtype))
        for name, after in values.items()
        if (before := getattr(left, name)) is not None
    }
