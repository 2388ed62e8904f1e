"""Stacks: which blocks lie over which, from young to old, and what the young cost those that read the old.

The axis is cut into units, one for each lower and one for each upper bound, in the order of the bounds. A
block covers the units of all bounds that lie within its own, so lengths follow the data whatever the type of
the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dbt_recluster.planner.arrays import (
    BoolArray,
    FigureArray,
    FloatArray,
    IntArray,
    PlaceArray,
    group_starts,
    narrow,
)
from dbt_recluster.planner.candidates import Candidates

# Up to this level every level is one more load; from there on each stands for a quarter more loads.
_EXACT_LEVEL = 4
LEVEL_GROWTH = 1.25
# Blocks of one level and component are one group while their widths ascend by less than this, and more where a
# block covers few units, for there chance makes widths differ.
_WIDTH_GAP = 1.25
_FEW_UNITS = 8.0
# The oldest groups beyond this many are taken together.
_MOST_LAYERS = 48
_MOST_LEVELS = 128
_PIECE = 1 << 20


def loads_of_level(level: IntArray | PlaceArray) -> FloatArray:
    """How many loads a level stands for: 1, 2, 3, 4, 5, and from there on a quarter more each."""
    above = np.maximum(level - _EXACT_LEVEL, 0)
    exact = np.minimum(level, _EXACT_LEVEL) - _EXACT_LEVEL
    loads: FloatArray = exact + (_EXACT_LEVEL + 1) * LEVEL_GROWTH**above
    return loads


def level_of_loads(loads: FloatArray, chance: FloatArray | float = 0.5) -> IntArray:
    """The level that stands for so many loads: the inverse of `loads_of_level`.

    Between two levels chance decides, so that levels are right on the average. Always to take the nearer one
    would never count a single load that joins many. This is Morris's counter ("Counting large numbers of
    events in small registers", 1978).

    Args:
        loads: float64 (n,).
        chance: float64 (n,), from 0 to below 1, spread evenly.

    Returns:
        int64 (n,), at least 0.
    """
    above = np.log(np.maximum(loads / (_EXACT_LEVEL + 1), 1.0)) / np.log(LEVEL_GROWTH)
    exact = np.clip(loads - 1, 0, _EXACT_LEVEL)
    # Rounding must not take a level's own number of loads for a little less.
    lower = np.floor(exact + above + 1e-6).astype(np.int64)
    least, next_one = loads_of_level(lower), loads_of_level(lower + 1)
    level: IntArray = lower + ((loads - least) / (next_one - least) > chance)
    return level


def extent_on_axis(first: PlaceArray, last: PlaceArray) -> tuple[PlaceArray, PlaceArray]:
    """Where each block begins and ends on the axis of units.

    Args:
        first: first cells, int32 (n,), ascending.
        last: last cells, int32 (n,).

    Returns:
        Begin and end (exclusive), int32 (n,) each, end greater than begin.
    """
    lasts = np.sort(last)
    begin = np.searchsorted(first, first).astype(np.int32)
    begin += np.searchsorted(lasts, first).astype(np.int32)
    end = np.searchsorted(first, last, side="right").astype(np.int32)
    end += np.searchsorted(lasts, last, side="right").astype(np.int32)
    return begin, end


@dataclass(frozen=True, eq=False)
class Stacks:
    """Blocks in layers: within a component, groups of like level and width, widest first.

    A wide block holds few of the rows in its range, so it is young; merges make blocks narrow. This is the
    patent's measure of a block's progress (US patent 10,817,540).

    Attributes:
        begin: int32 (n,), first unit of each block.
        end: int32 (n,), first unit behind it.
        rows: float32 (n,).
        group: int32 (n,), codes from 0, by component.
        layer: int8 (n,), place of a block's group in its component, 0 for the youngest.
        members: the blocks of each layer, int32, from the youngest to the oldest.
        loads: float32 (n,), loads that went into each block.
        under: bool (n,), whether a block has any as young or younger over it.
        score: float64 (groups,), what these cost for each row of a group's blocks that have any; 0 without.
    """

    begin: PlaceArray
    end: PlaceArray
    rows: FigureArray
    group: PlaceArray
    layer: npt.NDArray[np.int8]
    members: list[PlaceArray]
    loads: FigureArray
    under: BoolArray
    score: FloatArray

    @classmethod
    def over(cls, candidates: Candidates, member: PlaceArray, part: PlaceArray) -> Stacks:
        """Stack some candidates.

        Args:
            candidates: c candidates.
            member: places in them, int32 (n,), ascending, n at least 1.
            part: of each candidate, int32 (c,): its partition; or twice that, and 1 more in the partition's
                second part. No group is in two of them.

        Returns:
            The stacks of these n blocks.
        """
        begin, end = extent_on_axis(candidates.first[member], candidates.last[member])
        # A block without rows would be infinitely cheap to rewrite, and infinitely young.
        rows = np.maximum(candidates.rows[member], 1).astype(np.float32)
        level = candidates.level[member]
        units = 2 * len(member)
        steps = np.zeros(units + 1)
        add_steps(steps, begin, end, rows / (end - begin))
        total = mean_over(sum_before(steps), begin, end)
        total *= end - begin
        width = np.maximum(total / rows, 1.0)

        group, starts, order = _groups(
            # A component is in one partition: the last bit tells the two parts of one apart.
            2 * _components(begin, end) + (part[member] & 1),
            level,
            width,
            end - begin,
        )
        group_width = np.add.reduceat(total[order], starts, dtype=np.float64)
        group_width /= np.add.reduceat(rows[order], starts, dtype=np.float64)
        layer = _layers(_components(begin, end)[order[starts]], group_width)[group]
        del total, order
        by_layer = np.argsort(layer, kind="stable").astype(np.int32)
        members = np.split(by_layer, np.cumsum(np.bincount(layer))[:-1])

        loads = loads_of_level(level).astype(np.float32)
        if not level.any():
            loads = _loads_by_width(begin, end, group_width[group], members)
        del level
        under = np.zeros(len(member), np.bool_)
        cost, paid = np.zeros(len(starts)), np.zeros(len(starts))
        steps[:] = 0.0
        for blocks in members:
            for some in _pieces(blocks):
                add_steps(steps, begin[some], end[some], loads[some])
            before = sum_before(steps)
            for some in _pieces(blocks):
                younger = mean_over(before, begin[some], end[some])
                younger -= loads[some]
                # What is left of a difference of sums is not a load.
                has = younger > 1e-4
                some, younger = some[has], younger[has]
                under[some] = True
                weight = rows[some].astype(np.float64)
                np.add.at(paid, group[some], weight)
                np.add.at(cost, group[some], weight * younger * width[some])
            del before
        return cls(begin, end, rows, group, layer, members, loads, under, cost / np.maximum(paid, 1.0))

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.begin)

    def from_old_to_young(self) -> Iterator[PlaceArray]:
        """The blocks of each layer, oldest layer first."""
        return reversed(self.members)


def add_steps(steps: FloatArray, begin: PlaceArray, end: PlaceArray, value: FloatArray | FigureArray) -> None:
    """Add blocks to a sum over blocks of a value that each has in all of its units.

    Args:
        steps: by how much the sum changes with each unit, float64 (units + 1,); changed in place.
        begin: int32 (n,).
        end: int32 (n,).
        value: of each block, (n,).
    """
    # Of one type, for `at` is several times slower where it has to convert.
    value = value.astype(np.float64, copy=False)
    np.add.at(steps, begin, value)
    np.subtract.at(steps, end, value)


def sum_before(steps: FloatArray) -> FloatArray:
    """Of what has these steps, float64 (units + 1,), the sum over all units before each: float64 (units + 1,)."""
    before = np.zeros_like(steps)
    np.cumsum(steps[:-1], out=before[1:])
    return np.cumsum(before, out=before)


def mean_over(before: FloatArray, begin: PlaceArray, end: PlaceArray) -> FigureArray:
    """Mean over each block's units, given the sums over the units before each: float32 (n,)."""
    total = before[end]
    total -= before[begin]
    total /= end - begin
    return total.astype(np.float32)


def _pieces(blocks: PlaceArray) -> list[PlaceArray]:
    """Some blocks, a million at a time: what is worked out for each piece takes little memory."""
    return np.array_split(blocks, -(-len(blocks) // _PIECE))


def _components(begin: PlaceArray, end: PlaceArray) -> PlaceArray:
    """Number the stretches of the axis that blocks cover without a gap: int32 (n,), for each block."""
    component = np.zeros(len(begin), np.int32)
    np.cumsum(begin[1:] >= np.maximum.accumulate(end)[:-1], out=component[1:])
    return component


def _groups(
    apart: PlaceArray, level: PlaceArray, width: FigureArray, length: PlaceArray
) -> tuple[PlaceArray, IntArray, PlaceArray]:
    """Each block's group, all of one code ``apart``; where groups start in the order of groups; and that order."""
    key = apart.astype(np.int64) * _MOST_LEVELS + np.minimum(level, _MOST_LEVELS - 1)
    # Bits of positive floats stand in the order of the floats, so one sort sees the width last.
    key <<= 32
    key |= width.view(np.int32)
    order = narrow(np.argsort(key, kind="stable"))
    key = key[order]
    key >>= 32
    new = np.ones(len(order), np.bool_)
    new[1:] = key[1:] != key[:-1]
    del key
    width = width[order]
    gap: FigureArray = np.float32(_FEW_UNITS) / length[order[1:]].astype(np.float32)
    gap += np.float32(_WIDTH_GAP)
    gap *= width[:-1]
    new[1:] |= width[1:] > gap
    group = np.empty(len(order), np.int32)
    group[order] = np.cumsum(new, dtype=np.int32) - 1
    return group, np.flatnonzero(new), order


def _layers(component: PlaceArray, width: FloatArray) -> npt.NDArray[np.int8]:
    """Each group's place in its component, the widest first."""
    order = np.lexsort((-width, component))
    starts = group_starts(component[order].astype(np.int64))
    layer = np.empty(len(order), np.int64)
    layer[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return np.minimum(layer, _MOST_LAYERS - 1).astype(np.int8)


def _loads_by_width(
    begin: PlaceArray, end: PlaceArray, width: FloatArray, members: list[PlaceArray]
) -> FigureArray:
    """Loads in each block where no level is known: how often the youngest block over its keys would fit in.

    Args:
        begin: int32 (n,).
        end: int32 (n,).
        width: width of each block's group, float64 (n,).
        members: the blocks of each layer, int32, from the youngest to the oldest.

    Returns:
        float32 (n,), at least 1.
    """
    units = 2 * len(begin)
    youngest = np.zeros(units)
    for blocks in members:
        steps, widths = np.zeros(units + 1), np.zeros(units + 1)
        add_steps(steps, begin[blocks], end[blocks], np.ones(len(blocks)))
        add_steps(widths, begin[blocks], end[blocks], width[blocks])
        cover = np.cumsum(steps)[:-1]
        first = (youngest == 0) & (cover > 0.5)
        youngest[first] = np.cumsum(widths)[:-1][first] / cover[first]
    steps = np.diff(youngest, prepend=0.0, append=0.0)
    return np.maximum(mean_over(sum_before(steps), begin, end) / width, 1.0).astype(np.float32)
