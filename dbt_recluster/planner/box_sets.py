"""Box sets: block sets under a curve's key that pay by the boxes of their blocks, not by their depth along the curve.

See `box_tree` for layout cost. A merge pays if it lowers layout cost per rewritten row at least as much as
merging `Policy.depth` sorted copies of the whole table would. Each load is tried alone; in groups that are deep
without their loads, the sparsest chains; and neighbouring runs whose boxes are far from cubes. Sets that were selected
by depth must pass the same test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dbt_recluster.key.box_tree import Points, box_costs, cut_into_boxes, hulls, points_in_boxes, tile_sides
from dbt_recluster.planner.arrays import BoolArray, FloatArray, IntArray
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.curves import Layout
from dbt_recluster.planner.policy import Policy

# Not tuned, except `_CLEARLY`. `python benchmarks/curves.py` measures what other values of these constants cost.

# No merge pays that takes less than this share off what its blocks cost.
_LEAST_SAVING = 0.05
# Points that stand for the rows of a block, at most and at least; and at most for those of a set.
_BLOCK_POINTS, _LEAST_BLOCK_POINTS, _SET_POINTS = 32, 8, 1 << 15
# Most blocks whose box tree is computed.
MOST_BLOCKS_OF_BOXES = 4_096
# Numbers of neighbouring runs that are tried, and sets of them in a group that are weighed.
_WINDOWS, _MOST_TRIED = 8, 8
# Numbers of chains that are tried. More chains must gain this many times as much, since gains are estimates: otherwise
# a marginally larger estimate merges the whole table instead of a tenth.
_CHAINS, _CLEARLY = 6, 1.5


@dataclass(frozen=True, eq=False)
class BoxSets:
    """The box sets of a plan's candidates. A set is positions in all blocks, int64 (k,), of one group."""

    candidates: Candidates
    layout: Layout  # of all blocks
    policy: Policy
    _costs_at_once: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    def select(self) -> list[IntArray]:
        """Select loads that pay to be merged alone, and chains, with or without these loads."""
        layout, sets = self.layout, list[IntArray]()
        rest, loads_of = np.zeros(len(layout.run), np.bool_), list[tuple[list[IntArray], float]]()
        for member in self._groups:
            load = layout.load[member]
            numbers = [number for number in np.unique(load).tolist() if number in layout.samples]
            weighed = [(part, *self._weigh(part)) for part in (member[load == number] for number in numbers)]
            paying = [(part, saving - needed) for part, saving, needed in weighed if saving >= needed]
            loads_of.append(([part for part, _ in paying], sum(saving for _, saving in paying)))
            rest[member] = True
            for part, _ in paying:
                rest[part] = False
        depth = self._depth_of_groups(rest)
        for member, (loads, saved) in zip(self._groups, loads_of, strict=True):
            group, best, least = int(layout.group[member[0]]), loads, 0.0
            if max(depth.get(group, 0.0), len(loads)) > self._threshold[group]:
                for sparsest in self._sparsest(member[rest[member]]):
                    ways = []
                    for added_loads in ([], loads) if loads else ([],):
                        merged = np.sort(np.concatenate([sparsest, *added_loads]))
                        # What loads save alone pays for no other block.
                        saving, needed = self._weigh(merged)
                        gain = saving - needed - (saved if added_loads else 0.0)
                        ways += [(gain, [merged] if added_loads else [*loads, sparsest])] if len(merged) > 1 else []
                    gain, way = max(ways, key=lambda way: way[0], default=(-1.0, best))
                    if gain >= least:
                        best, least = way, _CLEARLY * gain
            sets += best
        return sets

    def _depth_of_groups(self, rest: BoolArray) -> dict[int, float]:
        """Mean reducible depth in each group of the blocks in ``rest``, bool (n,)."""
        candidates = self.candidates.take(rest[self.candidates.position])
        if not len(candidates):
            return {}
        group, code = np.unique(self.layout.group[candidates.position], return_inverse=True)
        depth = np.bincount(code, candidates.reducible_depths()) / np.bincount(code)
        return dict(zip(group.tolist(), depth.tolist(), strict=True))

    def _sparsest(self, member: IntArray) -> Iterator[IntArray]:
        """Yield the blocks of the chains with the fewest rows for their hull, of more and more of them."""
        layout = self.layout.take(member)
        yield member[:0]
        if not len(member):
            return
        chain, code = np.unique(layout.chain, return_inverse=True)
        least, greatest = hulls(code, layout.lower, layout.upper)
        density = np.bincount(code, self._rows[member]) / np.prod((greatest - least + 1.0), axis=1)
        rank = np.argsort(np.argsort(density, kind="stable"))[code]
        for count in np.unique(np.geomspace(1, len(chain), _CHAINS).astype(np.int64)).tolist():
            some = rank < count
            is_one_run = layout.run[some].min() > 0 and not np.ptp(layout.run[some])
            if np.count_nonzero(some) <= MOST_BLOCKS_OF_BOXES and not is_one_run:
                yield member[some]

    def neighbours(self, taken: IntArray) -> list[IntArray]:
        """Select neighbouring runs that pay to be merged; ``taken`` are the blocks of other sets, int64 (m,)."""
        layout, sets = self.layout, list[IntArray]()
        free = layout.run > 0
        free &= ~layout.thin
        free[taken] = False
        for of_group in self._groups:
            ways = sorted(self._windows(of_group[free[of_group]]), key=lambda way: -way[0])
            for _, member in ways[:_MOST_TRIED]:
                if free[member].all() and self.pays(member):
                    sets.append(member)
                    free[member] = False
        return sets

    def pays(self, member: IntArray) -> bool:
        """Whether merging a set pays. Sets of several groups, and those too large to be weighed, do."""
        group = self.layout.group[member]
        if group[0] < 0 or (group != group[0]).any() or len(member) > MOST_BLOCKS_OF_BOXES:
            return True
        saving, needed = self._weigh(member)
        return saving >= needed

    def _weigh(self, member: IntArray) -> tuple[float, float]:
        """Savings of merging a set of one group, and those that justify it."""
        layout, limits = self.layout, self.policy.set_limits
        size = int(self.candidates.blocks.bytes_or_0[member].sum())
        is_too_large = size > (limits.bytes or size) or len(member) > (limits.blocks or len(member))
        if is_too_large or not self._can_merge(member) or layout.settled[member].all():
            return 0.0, np.inf
        group = int(layout.group[member[0]])
        points = self._points(member)
        tree = cut_into_boxes(points, self._block_rows, layout.parts, self._cube_costs[group])
        cost = float(self._costs(member).sum())
        saving = cost - float(box_costs(tree.lower, tree.upper, layout.parts).sum())
        return saving, self._needed_saving(group, points.rows.sum() / self._block_rows, cost)

    def _can_merge(self, member: IntArray) -> bool:
        """Whether blocks are several, or one that is cut into several."""
        return len(member) > 1 or bool((self._rows[member] >= 2 * self._block_rows).any())

    def _costs(self, member: IntArray) -> FloatArray:
        """Cost of each block, float64 (k,); a block larger than a full one costs as much as several."""
        layout = self.layout
        costs = box_costs(layout.lower[member], layout.upper[member], layout.parts)
        return costs * np.maximum(self._rows[member] / self._block_rows, 1)

    def _needed_saving(self, group: int, blocks: float, cost: float) -> float:
        """Least savings that justify a merge into this many full ``blocks``, which now cost ``cost``."""
        of_copies = self._threshold[group] ** (1 / self.layout.lower.shape[1]) - 1
        return float(max(of_copies * self._cost_at_once(group) * blocks, _LEAST_SAVING * cost))

    def _cost_at_once(self, group: int) -> float:
        """Cost of a block if the whole group were merged: more than a cube's where few values have many rows.

        Without loads of large files it is a cube's: any other cost made sorted daily loads worse (`curves.py events`).
        """
        if group not in self._costs_at_once:
            member, cube = np.flatnonzero(self.layout.group == group), self._cube_costs[group]
            is_large = (self.layout.load[member] > 0) & (self._rows[member] >= 2 * self._block_rows)
            if is_large.any() and len(member) <= MOST_BLOCKS_OF_BOXES:
                points = self._points(member)
                tree = cut_into_boxes(points, self._block_rows, self.layout.parts, cube)
                cost = float(box_costs(tree.lower, tree.upper, self.layout.parts).sum())
                cube = max(cube, cost * self._block_rows / float(points.rows.sum()))
            self._costs_at_once[group] = cube
        return self._costs_at_once[group]

    def _points(self, member: IntArray) -> Points:
        """Points that represent the rows of a set: samples of its loads, evenly spread points in other boxes."""
        layout, load = self.layout, self.layout.load[member]
        parts, sampled = [], np.zeros(len(member), np.bool_)
        for number in np.unique(load).tolist():
            if number in layout.samples:
                of_load = load == number
                parts.append(layout.samples[number].standing_for(self._rows[member[of_load]].sum()))
                sampled |= of_load
        if len(unsampled := member[~sampled]):
            # Points must not depend on the order of the blocks.
            values = (layout.lower, layout.rank, layout.upper, self._rows)
            unsampled = unsampled[np.lexsort(np.column_stack([of_blocks[unsampled] for of_blocks in values]).T)]
            boxes, rows = layout.take(unsampled), self._rows[unsampled]
            count = int(np.clip(_SET_POINTS // len(unsampled), _LEAST_BLOCK_POINTS, _BLOCK_POINTS))
            parts.append(points_in_boxes(boxes.lower, boxes.rank, boxes.upper, rows, count))
        return Points(*map(np.concatenate, zip(*parts, strict=True)))

    def _windows(self, member: IntArray) -> Iterator[tuple[float, IntArray]]:
        """Yield neighbouring runs of one group that may pay to be merged, and by how much."""
        layout = self.layout.take(member)
        run, of_block = np.unique(layout.run, return_inverse=True)
        if len(run) < 2:
            return
        least, greatest = hulls(of_block, layout.lower, layout.upper)
        group = int(layout.group[0])
        cost = np.bincount(of_block, self._costs(member))
        rows = np.bincount(of_block, self._rows[member])
        chain = np.zeros(len(run), np.int64)
        chain[of_block] = layout.chain
        # Along the column of which each run has the least.
        column = int((greatest - least).sum(axis=0).argmin())
        order = np.lexsort((least[:, column], chain))
        for count in np.unique(np.geomspace(2, len(run), _WINDOWS).astype(np.int64)).tolist():
            for start in range(0, len(run) - count + 1, max(1, count // 2)):
                window = order[start : start + count]
                if (chain[window] != chain[window[0]]).any():
                    continue
                widths = (greatest[window].max(axis=0) - least[window].min(axis=0) + 1) / layout.parts
                blocks = np.array([max(1.0, rows[window].sum() / self._block_rows)])
                tiled = blocks[0] * np.minimum(widths, tile_sides(blocks, widths[None])).sum()
                gain = cost[window].sum() - tiled - self._needed_saving(group, blocks[0], cost[window].sum())
                if gain > 0:
                    yield float(gain), member[np.isin(of_block, window)]

    @cached_property
    def _rows(self) -> IntArray:
        rows, deleted = self.candidates.blocks.rows, self.candidates.blocks.deleted
        if rows is None:
            return np.full(len(self.candidates.blocks), self.policy.block_rows)
        return np.maximum(rows if deleted is None else rows - deleted, 1)

    @cached_property
    def _groups(self) -> list[IntArray]:
        """Candidates of each group that may hold a set: positions, ascending, int64 (k,) each."""
        position = np.sort(self.candidates.position).astype(np.int64)
        group = self.layout.group[position]
        order = np.argsort(group, kind="stable")
        parts = np.split(position[order], np.flatnonzero(np.diff(group[order])) + 1)
        return [part for part in parts if self._can_merge(part) and self.layout.group[part[0]] >= 0]

    @cached_property
    def _block_rows(self) -> float:
        """Rows in a full block."""
        block_rows, size = float(self.policy.block_rows), self.candidates.blocks.bytes_or_0.sum()
        if self.policy.block_bytes is None or not size:
            return block_rows
        return max(1.0, min(block_rows, float(self._rows.sum()) * self.policy.block_bytes / float(size)))

    @cached_property
    def _cube_costs(self) -> dict[int, float]:
        """By group: what a block costs in a table sorted at once."""
        layout, block_rows = self.layout, self._block_rows
        group, code = np.unique(layout.group, return_inverse=True)
        least, greatest = hulls(code, layout.lower, layout.upper)
        widths = (greatest - least + 1) / layout.parts
        blocks = np.maximum(np.bincount(code, self._rows) / block_rows, 1.0)
        cost = np.minimum(widths, tile_sides(blocks, widths)[:, None]).sum(axis=1)
        return dict(zip(group.tolist(), cost.tolist(), strict=True))

    @cached_property
    def _threshold(self) -> dict[int, float]:
        """By group: the threshold of its partition."""
        partition = self.candidates.blocks.partition
        of_blocks = self.policy.thresholds(np.bincount(partition))[partition]
        return dict(zip(self.layout.group.tolist(), of_blocks.tolist(), strict=True))
