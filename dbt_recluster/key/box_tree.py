"""Box trees: rows under a curve's key, cut into a box of ranks for each block that a merge writes.

A read of one value of a column opens the blocks whose bounds hold it. So a layout costs, summed over all blocks and
columns, the share of the rows within a block's bounds. Rows are cut into slabs along one column, and each slab along
the next (Leutenegger, Lopez and Edgington, "STR: a simple and efficient algorithm for R-tree packing", 1997). A single
cut comes first if both parts, each tiled by itself, cost clearly less (Garcia, Lopez and Leutenegger, "A greedy
algorithm for bulk loading R-trees", 1998). So a few late rows get their own block instead of widening many.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dbt_recluster.key.curve import Curve
from dbt_recluster.key.types import FloatArray, IntArray

# Not tuned: no figures of other values are kept. `python benchmarks/curves.py cuts` measures them.

# Blocks are planned to be this full, since cuts move to borders of values.
_FILL = 0.92
# Numbers of slabs to try, as multiples of those of cubes.
_SLABS = np.array([0.7, 1.0, 1.4])
# Single cuts to try: between whole blocks, and of a few rows at either end.
_MOST_CUTS = 32
_TAILS = np.array([0.01, 0.02, 0.04, 0.08, 0.16])
# A single cut must cost less than this share of the slabs, since its cost is an estimate.
_WORTH = 0.95
# Single cuts on the way to a box. Each is a step of the SQL that finds a row's box, and a recursion here.
_MOST_ON_WAY = 32
# Steps, by the number of columns, of a sequence that fills a hypercube evenly (Roberts, "The unreasonable
# effectiveness of quasirandom sequences", 2018).
_STEPS = {2: 1 / 1.32471795724474602596, 3: 1 / 1.22074408460575947536, 4: 1 / 1.16730397826141868426}
# The start of a single part.
_FIRST = np.array([0])
# The column of a cut between rows of equal ranks, by shares of `SHARES` parts.
SHARE = -1
SHARES = 1 << 20


class Points(NamedTuple):
    """Weighted points that stand for rows: ranks of each column, int64 (m, columns), and rows, float64 (m,).

    A value that fills several parts of a column has the rank of the last one, and covers all.
    """

    rank: IntArray
    lower: IntArray
    rows: FloatArray

    @classmethod
    def from_columns(cls, curve: Curve, columns: Sequence[pa.Array], rows: IntArray | float) -> Points:
        """Return the points of values of each column, (m,), that stand for ``rows`` each, (m,) or one number."""
        rank, lower = (np.ascontiguousarray(curve.ranks(columns, first=f).T) for f in (False, True))
        return cls(rank, lower, np.full(len(rank), rows, np.float64))

    def take(self, places: slice | IntArray) -> Points:
        """Return some of the points."""
        return Points(self.rank[places], self.lower[places], self.rows[places])

    def standing_for(self, rows: float) -> Points:
        """Return the same points for this number of rows in all."""
        return self._replace(rows=self.rows * (rows / max(1.0, self.rows.sum())))


def rows_of_one_value(limit: float) -> float:
    """Return how many rows of a split value to put into a block of at most ``limit``.

    The split is effectively random, so a block stays below the limit by four standard deviations: square roots of rows.
    """
    return max(min(1.0, limit), (math.sqrt(limit + 4) - 2) ** 2)


def points_in_boxes(lower: IntArray, rank: IntArray, upper: IntArray, rows: IntArray, count: int) -> Points:
    """Return ``count`` points in each of n boxes, which lie evenly and stand for its rows, int64 (n,).

    The boxes have these least ranks that they cover, those of their rows, and the greatest: int64 (n, columns) each.
    """
    step = _STEPS[lower.shape[1]]
    number = np.arange(len(lower) * count)[:, None]
    share = (0.5 + number * step ** np.arange(1, lower.shape[1] + 1)) % 1
    below, first, last = (np.repeat(ends, count, axis=0) for ends in (lower, rank, upper))
    at = first + (share * (last - first + 1)).astype(np.int64)
    # A box of one value covers all its parts.
    return Points(at, np.where(first == last, below, at), np.repeat(rows / count, count))


@dataclass(frozen=True, eq=False)
class BoxTree:
    """Cuts of a column at a rank, from a root down to boxes."""

    root: int  # a node, or -1 - n for box n
    column: IntArray  # the column that each node cuts, or `SHARE`: int64 (nodes,)
    cut: IntArray  # the least rank, or share, above each cut: int64 (nodes,)
    child: IntArray  # the trees below and above each cut, as `root`: int64 (nodes, 2)
    lower: IntArray  # least ranks of each box, int64 (boxes, columns)
    upper: IntArray  # greatest ranks, likewise

    def __len__(self) -> int:
        return len(self.lower)

    def box_of(self, rank: IntArray, share: IntArray) -> IntArray:
        """The box of each row, int64 (m,), given its ranks, (m, columns), and its share, (m,)."""
        node = np.full(len(rank), self.root)
        values = np.column_stack([rank, share])  # `SHARE` is the last column
        while len(row := np.flatnonzero(node >= 0)):
            at = node[row]
            is_above = values[row, self.column[at]] >= self.cut[at]
            node[row] = self.child[at, is_above.astype(np.int64)]
        return -1 - node

    @property
    def height(self) -> int:
        """Greatest number of cuts to a box."""
        height: list[int] = []
        # Nodes follow their children.
        for child in self.child.tolist():
            height.append(1 + max((height[one] for one in child if one >= 0), default=0))
        return height[self.root] if height else 0

    def regions(self, parts: int) -> tuple[IntArray, IntArray]:
        """Least and greatest ranks that lead to each box, int64 (boxes, columns), of columns with this many parts."""
        lower, upper = np.zeros_like(self.lower), np.full_like(self.upper, parts - 1)
        stack = [(self.root, lower[0].copy(), upper[0].copy())]
        while stack:
            node, least, greatest = stack.pop()
            if node < 0:
                lower[-1 - node], upper[-1 - node] = least, greatest
                continue
            column, cut = self.column[node], self.cut[node]
            beyond, before = least.copy(), greatest.copy()
            if column != SHARE:
                beyond[column], before[column] = cut, cut - 1
            stack += [(self.child[node, 0], least, before), (self.child[node, 1], beyond, greatest)]
        return lower, upper


def box_costs(lower: IntArray, upper: IntArray, parts: int) -> FloatArray:
    """The share of the rows that each of n boxes covers, summed over the columns: float64 (n,)."""
    costs: FloatArray = (upper - lower + 1).sum(axis=1) / parts
    return costs


def hulls(code: IntArray, lower: IntArray, upper: IntArray) -> tuple[IntArray, IntArray]:
    """Least and greatest ranks of the boxes of each code: int64 (codes, columns) each."""
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    return np.minimum.reduceat(lower[order], starts), np.maximum.reduceat(upper[order], starts)


def tile_sides(blocks: FloatArray, widths: FloatArray) -> FloatArray:
    """Side of the cubes by which blocks, (m,), tile boxes of these widths, (m, columns): float64 (m,).

    A column narrower than the side is not cut.
    """
    ascending, columns = np.sort(widths, axis=1), widths.shape[1]
    result = np.full(len(widths), np.inf)
    for uncut in reversed(range(columns)):
        side = (np.prod(ascending[:, uncut:], axis=1) / blocks) ** (1 / (columns - uncut))
        result = np.where(side <= ascending[:, uncut], side, result)
    return result


def one_box(columns: int, parts: int) -> BoxTree:
    """Return a tree without cuts."""
    none, lower = np.zeros(0, np.int64), np.zeros((1, columns), np.int64)
    return BoxTree(-1, none, none, none.reshape(-1, 2), lower, lower + parts - 1)


def cut_into_boxes(points: Points, block_rows: float, parts: int, per_block: float) -> BoxTree:
    """Cut the rows of at least one point into boxes of at most ``block_rows`` rows.

    Each column has ``parts`` ranks; ``per_block`` is the cost of another box.
    """
    cutter = _Cutter(points, block_rows, parts, per_block)
    root = cutter.node(np.arange(len(points.rows)), cutter.columns)
    nodes, boxes = np.array(cutter.nodes, np.int64).reshape(-1, 4), np.array(cutter.boxes)
    return BoxTree(root, nodes[:, 0], nodes[:, 1], nodes[:, 2:], boxes[:, 0], boxes[:, 1])


class _Cuts(NamedTuple):
    """A way to cut points, in the order of a column, before these places, int64 (k,)."""

    cost: float
    column: int
    member: IntArray
    places: IntArray


class _Cutter:
    """Cuts points, given by their positions, int64 (k,), and collects the nodes and boxes of the tree."""

    def __init__(self, points: Points, block_rows: float, parts: int, per_block: float) -> None:
        self._points, self._block_rows, self._parts, self._per_block = points, block_rows, parts, per_block
        self.columns = tuple(range(points.rank.shape[1]))
        values = (points.rank - points.lower + 1) / parts
        self._value_widths = np.average(values, axis=0, weights=points.rows)
        self.nodes: list[tuple[int, int, int, int]] = []  # column, cut, the trees below and above
        self.boxes: list[tuple[IntArray, IntArray]] = []

    def node(self, member: IntArray, columns: tuple[int, ...], cuts_left: int = _MOST_ON_WAY) -> int:
        """Cut points along the given columns, at first all of them; return the root of their tree."""
        rows, is_slab = float(self._points.rows[member].sum()), columns != self.columns
        fits = rows <= self._block_rows
        if fits and is_slab:
            return self._boxes(member, 1)
        slabs, cuts = list[_Cuts](), list[_Cuts]()
        for column in columns:
            order = member[np.argsort(self._points.rank[member, column].astype(np.int16), kind="stable")]
            before = np.append(0.0, np.cumsum(self._points.rows[order]))
            if not fits:
                slabs += self._slabs(column, columns, order, before)
            if cuts_left and not is_slab:
                cuts += self._single_cuts(column, order, before)
        best = min(slabs, default=None, key=lambda way: way.cost)
        cut = min(cuts, default=None, key=lambda way: way.cost)
        uncut = float(self._costs(*self._hulls(member, _FIRST), np.array([rows]), ())[0]) if fits else np.inf
        if cut is not None and cut.cost < _WORTH * (uncut if best is None else best.cost):
            return self._fan(cut, columns, cuts_left - 1)
        if fits:
            return self._boxes(member, 1)
        if best is not None:
            others = tuple(column for column in columns if column != best.column)
            return self._fan(best, others, cuts_left)
        if is_slab:
            return self.node(member, self.columns, cuts_left)
        return self._boxes(member, int(np.ceil(rows / rows_of_one_value(self._block_rows))))

    def _slabs(self, column: int, columns: tuple[int, ...], order: IntArray, before: FloatArray) -> Iterator[_Cuts]:
        """Yield ways to cut points into slabs of about equal rows, given the rows before each point."""
        others, total = tuple(other for other in columns if other != column), before[-1:]
        counts = np.ceil(self._blocks(total))
        if others:
            lower, upper = self._hulls(order, _FIRST)
            widths = (upper - lower + 1) / self._parts
            cubes = widths[0, column] / tile_sides(self._blocks(total), widths[:, columns]) * _SLABS
            counts = np.unique(np.maximum(np.concatenate([np.floor(cubes), np.ceil(cubes)]), 2))
        rank = self._points.rank[order, column]
        for count in counts.tolist():
            wanted = np.arange(1, count) / count * total
            value = rank[np.searchsorted(before, wanted, side="right") - 1]
            first, last = np.searchsorted(rank, value), np.searchsorted(rank, value, side="right")
            places = np.unique(np.where(wanted - before[first] <= before[last] - wanted, first, last))
            places = places[(places > 0) & (places < len(rank))]
            if len(places):
                starts = np.append(0, places)
                rows = np.diff(before[np.append(starts, -1)])
                cost = self._costs(*self._hulls(order, starts), rows, others).sum()
                yield _Cuts(float(cost), column, order, places)

    def _single_cuts(self, column: int, order: IntArray, before: FloatArray) -> Iterator[_Cuts]:
        """Yield the best way to cut points in two, at a border of values."""
        blocks = int(np.ceil(self._blocks(before[-1:])[0]))
        inner = np.unique(np.linspace(1, max(blocks - 1, 1), _MOST_CUTS).astype(np.int64)) / blocks
        shares = np.concatenate([inner if blocks > 1 else inner[:0], _TAILS, 1 - _TAILS])
        rank = self._points.rank[order, column]
        value = rank[np.searchsorted(before, shares * before[-1], side="right") - 1]
        borders = np.concatenate([np.searchsorted(rank, value), np.searchsorted(rank, value, side="right")])
        places = np.unique(borders[(borders > 0) & (borders < len(rank))])
        if not len(places):
            return
        least, greatest = self._hulls(order, np.append(0, places))
        cost = np.zeros(len(places))
        for side in (slice(None), slice(None, None, -1)):
            lower = np.minimum.accumulate(least[side])[:-1][side]
            upper = np.maximum.accumulate(greatest[side])[:-1][side]
            rows = before[places] if side.step is None else before[-1] - before[places]
            cost += self._costs(lower, upper, rows, self.columns)
        best = int(cost.argmin())
        yield _Cuts(float(cost[best]), column, order, places[best : best + 1])

    def _blocks(self, rows: FloatArray) -> FloatArray:
        """The expected number of blocks of rows, (k,): float64 (k,)."""
        full: FloatArray = rows / self._block_rows
        return np.where(full <= 1, 1.0, np.maximum(full / _FILL, np.ceil(full - 1e-9)))

    def _hulls(self, order: IntArray, starts: IntArray) -> tuple[IntArray, IntArray]:
        """Ranks of the hulls of the points from each start to the next: int64 (k, columns) each."""
        lower = np.minimum.reduceat(self._points.lower[order], starts)
        return lower, np.maximum.reduceat(self._points.rank[order], starts)

    def _costs(self, lower: IntArray, upper: IntArray, rows: FloatArray, columns: tuple[int, ...]) -> FloatArray:
        """Costs of parts with these hulls, (k, columns), and rows, (k,), tiled along some columns: float64 (k,)."""
        widths, blocks = (upper - lower + 1) / self._parts, self._blocks(rows)
        if columns:
            cut, value = widths[:, columns], self._value_widths[list(columns)]
            side = tile_sides(blocks, cut)[:, None]
            values, is_cut = side / value, side < cut
            # A tile has whole values of a column, or a value whole tiles.
            whole = np.maximum(np.floor(values + 1e-9), 1)
            more = np.where(values >= 1, values / whole, np.ceil(1 / values - 1e-9) * values)
            blocks = blocks * np.prod(np.where(is_cut, more, 1), axis=1)
            widths[:, columns] = np.where(is_cut, np.minimum(cut, whole * value), cut)
        costs: FloatArray = blocks * (widths.sum(axis=1) + self._per_block)
        return costs

    def _fan(self, cuts: _Cuts, columns: tuple[int, ...], cuts_left: int) -> int:
        """Make nodes of ascending cuts and of the parts between them; return the root."""
        ranks = self._points.rank[cuts.member[cuts.places], cuts.column]
        roots = [self.node(part, columns, cuts_left) for part in np.split(cuts.member, cuts.places)]
        return self._joined(cuts.column, ranks.tolist(), roots)

    def _boxes(self, member: IntArray, count: int) -> int:
        """Make a box of points, or several that share the rows; return the root."""
        (lower,), (upper,) = self._hulls(member, _FIRST)
        first = len(self.boxes)
        self.boxes += [(lower, upper)] * count
        shares = [SHARES * number // count for number in range(1, count)]
        return self._joined(SHARE, shares, [-1 - first - number for number in range(count)])

    def _joined(self, column: int, cuts: list[int], roots: list[int]) -> int:
        """Join trees by the cuts between them into a balanced tree."""
        if not cuts:
            return roots[0]
        middle = len(cuts) // 2
        below = self._joined(column, cuts[:middle], roots[: middle + 1])
        above = self._joined(column, cuts[middle + 1 :], roots[middle + 1 :])
        self.nodes.append((column, cuts[middle], below, above))
        return len(self.nodes) - 1
