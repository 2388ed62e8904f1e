"""Stacks: which blocks lie over which, from young to old, and what the young cost those that read the old.

The axis is cut into units, one for each block in the order of their lower bounds. A block begins at its own
unit and ends before that of the first block that starts beyond it, so lengths follow the data whatever the
type of the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import FloatArray, IntArray, group_starts
from dbt_recluster.planner.candidates import Candidates

# Up to this level every level is one more load; from there on each stands for a quarter more loads.
_EXACT_LEVEL = 4
_GROWTH = 1.25
# Blocks of one level and component are one group while their widths ascend by less than this.
_WIDTH_GAP = 1.25
# The oldest groups beyond this many are taken together.
_MOST_LAYERS = 48
_MOST_LEVELS = 128


def loads_of_level(level: IntArray) -> FloatArray:
    """How many loads a level stands for: 1, 2, 3, 4, 5, and from there on a quarter more each."""
    above = np.maximum(level - _EXACT_LEVEL, 0)
    exact = np.minimum(level, _EXACT_LEVEL) - _EXACT_LEVEL
    loads: FloatArray = exact + (_EXACT_LEVEL + 1) * _GROWTH**above
    return loads


def level_of_loads(loads: FloatArray) -> IntArray:
    """The level that stands for about that many loads, int64: the inverse of `loads_of_level`."""
    exact = np.rint(np.minimum(loads, _EXACT_LEVEL + 1)) - 1
    above = np.rint(np.log(np.maximum(loads / (_EXACT_LEVEL + 1), 1.0)) / np.log(_GROWTH))
    level: IntArray = np.maximum(exact + above, 0).astype(np.int64)
    return level


def extent_on_axis(first: IntArray, last: IntArray) -> tuple[IntArray, IntArray]:
    """Where each block begins and ends on the axis of units.

    Args:
        first: first cells, int64 (n,), ascending.
        last: last cells, int64 (n,).

    Returns:
        Begin and end (exclusive), int64 (n,) each, end greater than begin.
    """
    starts = group_starts(first)
    begin = np.repeat(starts, np.diff(np.append(starts, len(first))))
    return begin, np.searchsorted(first, last, side="right")


@dataclass(frozen=True, eq=False)
class Stacks:
    """Blocks in layers: within a component, groups of like level and width, widest first.

    A wide block holds few of the rows in its range, so it is young; merges make blocks narrow. This is the
    patent's measure of a block's progress (US patent 10,817,540).

    Attributes:
        begin: int64 (n,), first unit of each block.
        end: int64 (n,), first unit behind it.
        rows: float64 (n,).
        group: int64 (n,), codes from 0, by component.
        layer: int64 (n,), place of a block's group in its component, 0 for the youngest.
        members: the blocks of each layer, from the youngest to the oldest.
        loads: float64 (n,), loads that went into each block.
        score: float64 (n,), what the younger blocks over a block cost for each of its rows; 0 without any.
    """

    begin: IntArray
    end: IntArray
    rows: FloatArray
    group: IntArray
    layer: IntArray
    members: list[IntArray]
    loads: FloatArray
    score: FloatArray

    @classmethod
    def over(cls, candidates: Candidates, member: IntArray) -> Stacks:
        """Stack some candidates.

        Args:
            candidates: c candidates.
            member: places in them, int64 (n,), ascending, n at least 1.

        Returns:
            The stacks of these n blocks.
        """
        begin, end = extent_on_axis(candidates.first[member], candidates.last[member])
        length = end - begin
        # A block without rows would be infinitely cheap to rewrite, and infinitely young.
        rows = np.maximum(candidates.rows[member], 1).astype(np.float64)
        level = candidates.level[member]
        total = mean_over(spread(begin, end, rows / length), begin, end) * length
        width = np.maximum(total / rows, 1.0)

        reach = np.maximum.accumulate(end)
        component = np.zeros(len(member), np.int64)
        np.cumsum(begin[1:] >= reach[:-1], out=component[1:])
        group, starts, order = _groups(component, level, width)
        group_width = np.add.reduceat(total[order], starts) / np.add.reduceat(rows[order], starts)
        layer = _layers(component[order[starts]], group_width)[group]
        by_layer = np.argsort(layer.astype(np.int16), kind="stable")
        members = np.split(by_layer, np.cumsum(np.bincount(layer))[:-1])

        loads = loads_of_level(level)
        if not level.any():
            loads = _loads_by_width(begin, end, group_width[group], members)
        younger = np.zeros(len(member))
        cover = np.zeros(len(member))
        for blocks in members:
            cover += spread(begin[blocks], end[blocks], loads[blocks], len(member))
            younger[blocks] = mean_over(cover, begin[blocks], end[blocks]) - loads[blocks]
        score = np.where(younger > 1e-9, younger * width, 0.0)
        return cls(begin, end, rows, group, layer, members, loads, score)

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.begin)

    def from_old_to_young(self) -> Iterator[IntArray]:
        """The blocks of each layer, oldest layer first."""
        return reversed(self.members)


def spread(begin: IntArray, end: IntArray, value: FloatArray, units: int | None = None) -> FloatArray:
    """Sum over blocks of a value that each has in all of its units: float64 (units,)."""
    units = len(begin) if units is None else units
    steps = np.bincount(begin, value, units) - np.bincount(end, value, units + 1)[:units]
    return np.cumsum(steps)


def mean_over(of_unit: FloatArray, begin: IntArray, end: IntArray) -> FloatArray:
    """Mean of a value of units over each block's units: float64 (n,)."""
    before = np.concatenate([[0.0], np.cumsum(of_unit)])
    mean: FloatArray = (before[end] - before[begin]) / (end - begin)
    return mean


def _groups(component: IntArray, level: IntArray, width: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Each block's group; where groups start in the order of groups; and that order."""
    kind = component * _MOST_LEVELS + np.minimum(level, _MOST_LEVELS - 1)
    # Bits of positive floats stand in the order of the floats, so one sort sees kind and then width.
    key = (kind << 32) | width.astype(np.float32).view(np.int32)
    order = np.argsort(key, kind="stable")
    kind, width = kind[order], width[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (kind[1:] != kind[:-1]) | (width[1:] > _WIDTH_GAP * width[:-1])
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(new) - 1
    return group, np.flatnonzero(new), order


def _layers(component: IntArray, width: FloatArray) -> IntArray:
    """Each group's place in its component, the widest first."""
    order = np.lexsort((-width, component))
    starts = group_starts(component[order])
    layer = np.empty(len(order), np.int64)
    layer[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return np.minimum(layer, _MOST_LAYERS - 1)


def _loads_by_width(begin: IntArray, end: IntArray, width: FloatArray, members: list[IntArray]) -> FloatArray:
    """Loads in each block where no level is known: how often the youngest block over its keys would fit in.

    Args:
        begin: int64 (n,).
        end: int64 (n,).
        width: width of each block's group, float64 (n,).
        members: the blocks of each layer, from the youngest to the oldest.

    Returns:
        float64 (n,), at least 1.
    """
    youngest = np.zeros(len(begin))
    for blocks in members:
        cover = spread(begin[blocks], end[blocks], np.ones(len(blocks)), len(begin))
        widths = spread(begin[blocks], end[blocks], width[blocks], len(begin))
        first = (youngest == 0) & (cover > 0.5)
        youngest[first] = widths[first] / cover[first]
    loads: FloatArray = np.maximum(mean_over(youngest, begin, end) / width, 1.0)
    return loads
