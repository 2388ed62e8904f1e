"""Tables of real rows under a curve: blocks hold rows, and a merge cuts them as the product does."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dbt_recluster.clustering.checkpoint import SettledBlocks
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.key.box_tree import SHARES, Points, box_costs, cut_into_boxes
from dbt_recluster.key.curve import BITS, Curve
from dbt_recluster.planner import Blocks, plan
from dbt_recluster.planner.curves import CurveBlocks

# Bytes of a row.
WIDTH = 10
# A budget of a few blocks takes many.
MOST_ROUNDS = 1_000


def rows_of(kind, dimensions, rows=64 * 64, seed=0):
    """The columns of rows."""
    random = np.random.default_rng(seed)
    if kind == "skewed":
        return [np.minimum(random.zipf(1.3, rows), 1 << 20) for _ in range(dimensions)]
    first = random.random(rows)
    if kind == "correlated":
        return [first + (place > 0) * random.normal(0, 0.05, rows) for place in range(dimensions)]
    others = [random.random(rows) for _ in range(dimensions - 1)]
    if kind == "in order":
        return [np.arange(rows) + first, *others]
    if kind == "late":
        late = random.random(rows) < 0.05
        return [np.where(late, np.arange(rows) * first, np.arange(rows) + first), *others]
    if kind == "few values":
        return [random.integers(0, 5, rows) for _ in range(dimensions)]
    assert kind == "uniform"
    return [first, *others]


def arrow(columns):
    return [pa.array(column) for column in columns]


def curve_over(columns, bits=BITS):
    return Curve.from_columns(arrow(columns), bits=bits)


def along(curve, columns, group=None):
    """The order of rows sorted along a curve, each group by itself."""
    place = curve.index(arrow(columns))
    return np.lexsort((place, np.zeros(len(place), int) if group is None else group))


def bounds_of(columns, parts):
    """Bounds of blocks that hold these rows, their unknown upper bounds, and how many rows."""
    lower, upper = (
        [pa.array(np.array([end(column[rows]) for rows in parts])) for column in columns] for end in (np.min, np.max)
    )
    unbounded = [np.zeros(len(parts), bool)] * len(columns)
    return lower, upper, unbounded, np.array([len(rows) for rows in parts])


def table_of(columns, order, block_rows=64):
    """The same of blocks of rows in this order."""
    return bounds_of(columns, np.split(order, range(block_rows, len(order), block_rows)))


def points_of(curve, columns):
    """Rows as ranks."""
    return Points.from_columns(curve, arrow(columns), 1)


def cut(curve, columns, rows, block_rows, per_block, random):
    """Cut rows into boxes: the rows of each."""
    points = points_of(curve, [column[rows] for column in columns])
    tree = cut_into_boxes(points, block_rows, curve.parts, per_block)
    box = tree.box_of(points.rank, random.integers(0, SHARES, len(rows)))
    return [rows[box == number] for number in range(len(tree)) if (box == number).any()]


def block_price(dimensions, rows, block_rows):
    """What one block more must save."""
    return dimensions * max(1.0, rows / block_rows) ** (-1 / dimensions)


def cut_at_once(curve, columns, block_rows, group=None):
    """Cut all rows of each group as a merge of them all does."""
    group = np.zeros(len(columns[0]), int) if group is None else group
    price = block_price(len(columns), len(group), block_rows)
    random = np.random.default_rng(0)
    groups = [np.flatnonzero(group == number) for number in np.unique(group)]
    return [part for rows in groups for part in cut(curve, columns, rows, block_rows, price, random)]


@dataclass(frozen=True)
class Block:
    """Rows, as positions in the table's columns, and the commit that wrote them."""

    rows: np.ndarray
    level: int
    run: int
    commit: int
    partition: int = 0

    @property
    def path(self):
        return f"{self.commit}/{'-'.join(map(str, self.rows))}"


class CurveTable:
    """A table under a curve, after ``leading`` columns: rows are loaded, and merged until nothing is left to do.

    Where the key is a curve alone, merges cut rows into boxes, and otherwise along the key. Every row is sampled.
    """

    def __init__(self, columns, curve, policy, leading=0, samples=True, seed=0):
        self.columns, self.curve, self.policy, self.leading = columns, curve, policy, leading
        self.samples, self.random = samples, np.random.default_rng(seed)
        self.blocks, self.commits, self.rest = [], 0, None

    def load(self, rows, block_rows, is_sorted=False, partition=0):
        self.commits += 1
        rows = rows[self._order(rows)] if is_sorted else rows
        parts = np.array_split(rows, -(-len(rows) // block_rows))
        self.blocks += [Block(part, 0, 0, self.commits, partition) for part in parts]

    def _order(self, rows):
        place = self.curve.index(arrow([column[rows] for column in self.columns[self.leading :]]))
        return np.lexsort([place, *[column[rows] for column in self.columns[: self.leading]][::-1]])

    def metadata(self):
        lower, upper, unbounded, rows = bounds_of(self.columns, [block.rows for block in self.blocks])
        of_blocks = zip(*((b.partition, b.commit) for b in self.blocks), strict=True)
        partition, commit = map(np.array, of_blocks)
        paths, none = pa.array([block.path for block in self.blocks]), np.zeros(len(rows), int)
        _, partition = np.unique(partition, return_inverse=True)
        return BlockMetadata(
            1, paths, partition, none, rows, WIDTH * rows, commit, commit, none, lower, upper, unbounded
        )

    def curve_blocks(self):
        metadata = self.metadata()
        return CurveBlocks(
            self.curve, metadata.lower, metadata.upper, metadata.unbounded, metadata.rows, metadata.partition
        )

    def layout(self, settled=None):
        level, run, commit = (
            np.array([getattr(block, name) for block in self.blocks]) for name in ("level", "run", "commit")
        )
        samples = {}
        for load in np.unique(commit[(level == 0) & (run == 0)]).tolist() if self.samples else ():
            rows = np.sort(np.concatenate([block.rows for block in self.blocks if block.commit == load]))
            samples[load] = points_of(self.curve, [column[rows] for column in self.columns[self.leading :]])
        return self.curve_blocks().layout(run, commit, level, settled, samples)

    def described(self, settled=None):
        """The blocks as the product describes them to the planner."""
        blocks, layout = self.curve_blocks(), self.layout(settled)
        lower, upper, unbounded = blocks.along_curve(layout.chain)
        return Blocks.build(
            lower,
            upper,
            rows=blocks.rows,
            bytes=WIDTH * blocks.rows,
            level=[block.level for block in self.blocks],
            run=np.where(layout.chain > 0, layout.chain, layout.run),
            partition=[block.partition for block in self.blocks],
            unbounded=unbounded,
            layout=None if self.leading else layout,
        )

    def planned(self):
        """The next plan, and what is at rest."""
        blocks = self.described()
        rest = SettledBlocks(blocks, self.metadata(), self.policy, self.rest, "")
        if rest.mask.any():
            blocks = self.described(rest.mask)
        return blocks, plan(blocks, self.policy), rest

    def merge(self, planned, rest):
        """Replace the blocks of a plan; a commit for each of its runs."""
        total = sum(len(block.rows) for block in self.blocks)
        price = block_price(len(self.curve.boundaries), total, self.policy.block_rows)
        gone, written, paths = set(), [], []
        for block_set in planned.block_sets:
            members = [self.blocks[place] for place in block_set.blocks]
            gone |= {id(member) for member in members}
            rows = np.concatenate([member.rows for member in members])
            if self.leading:
                count = -(-len(rows) // self.policy.block_rows)
                parts = np.array_split(rows[self._order(rows)], count)
            else:
                parts = cut(self.curve, self.columns, rows, self.policy.block_rows, price, self.random)
            commit = self.commits + 1 + block_set.run
            new = [Block(part, block_set.level, commit, commit, members[0].partition) for part in parts]
            written += new
            paths.append(([block.path for block in new], [member.path for member in members]))
        commits = sorted({block.commit for block in written})
        self.rest = rest.after(planned, paths, commits)["recluster.settled"]
        self.commits = max(commits)
        self.blocks = [block for block in self.blocks if id(block) not in gone] + written

    def recluster(self, check=lambda blocks, planned: None):
        """Plan and merge until nothing is left to do; return the number of rounds."""
        for rounds in range(MOST_ROUNDS):
            blocks, planned, rest = self.planned()
            check(blocks, planned)
            if not planned.block_sets:
                return rounds
            self.merge(planned, rest)
        raise AssertionError(f"no end after {MOST_ROUNDS} rounds")

    def cost(self):
        """What the boxes cost: blocks opened by a read of one value of each column, added up."""
        boxes = self.curve_blocks().boxes
        return float(box_costs(np.column_stack(boxes.lower), np.column_stack(boxes.upper), self.curve.parts).sum())
