"""Tables of benchmarks/curves.py: real rows in blocks, of which the planner sees a box each, as Iceberg stores it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbt_recluster.curve import BITS, Curve

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_SAMPLE = 20_000
# A merge cuts at the border of the largest cell that lies between this share of a full block and a full block.
CUT_FROM = 0.7


def arrow(columns: Sequence[IntArray]) -> list[pa.Array]:
    """Columns as a curve takes them."""
    return [pa.array(column) for column in columns]


def curve_of(columns: Sequence[IntArray], bits: int = BITS) -> Curve:
    """Cut columns into equal shares of these rows, or of a sample where they are many."""
    random = np.random.default_rng(0)
    curve = Curve.of(
        arrow([c if len(c) <= _SAMPLE else random.choice(c, _SAMPLE, replace=False) for c in columns]),
        bits=bits,
    )
    assert curve is not None
    return curve


def z_order(columns: Sequence[IntArray]) -> IntArray:
    """Iceberg's z-order of columns of whole numbers from 0: int64 (n,).

    It interleaves 64 bits of every column from the highest, the first column's first; dates count in days. Bits that
    no value has set make no difference, and beyond the first 63 of those left rows count as equal.
    """
    width = max(int(column.max()).bit_length() for column in columns)
    kept = 63 // len(columns)
    place = np.zeros(len(columns[0]), np.int64)
    for bit in reversed(range(max(0, width - kept), width)):
        for column in columns:
            place = (place << 1) | ((column >> bit) & 1)
    return place


def even_cuts(rows: int, block_rows: int) -> IntArray:
    """Cut rows into the fewest blocks, of equal size: ends of all blocks but the last, int64."""
    count = max(1, -(-rows // block_rows))
    return np.arange(1, count) * rows // count


def cell_cuts(place: IntArray, dimensions: int, block_rows: int, least: float = CUT_FROM) -> IntArray:
    """Cut rows where the curve leaves the largest cell: ends of all blocks but the last, int64.

    Args:
        place: Places of the rows on the curve, int64 (n,), ascending.
        dimensions: Dimensions of the curve.
        block_rows: Most rows in a block.
        least: Least share of a full block, but for the last two blocks, which hold half of it at least.
    """
    # Two neighbours differ at this bit first, so they lie in different cells of this level, and of one cell above it.
    level = (np.frexp((place[1:] ^ place[:-1]).astype(np.float64))[1] + dimensions - 1) // dimensions
    cuts, begin = [], 0
    while (left := len(place) - begin) > block_rows:
        low, high = int(block_rows * least), block_rows
        if left <= 2 * block_rows:
            low, high = max(left - block_rows, block_rows // 2), min(block_rows, left - block_rows // 2)
        window = level[begin + low - 1 : begin + high]
        begin += high - int(window[::-1].argmax())
        cuts.append(begin)
    return np.array(cuts, np.int64)


@dataclass
class Table:
    """A table of real rows in blocks.

    Attributes:
        columns: All rows that are ever loaded: int64 for each column of the key.
        block_rows: Rows in a full block.
        rows: Positions of the rows of every block.
        lower: Least value of each column in every block, int64 (blocks, columns).
        upper: Greatest values, likewise.
        level: Level of every block, int64 (blocks,).
        run: Run of every block, int64 (blocks,); 0 is unknown.
        runs: Number of runs so far.
        loaded: Rows loaded so far.
        rewritten: Rows rewritten so far.
    """

    columns: list[IntArray]
    block_rows: int
    rows: list[IntArray] = field(default_factory=list)
    lower: IntArray = field(init=False)
    upper: IntArray = field(init=False)
    level: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    run: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    runs: int = 0
    loaded: int = 0
    rewritten: int = 0

    def __post_init__(self) -> None:
        self.lower = self.upper = np.zeros((0, len(self.columns)), np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> IntArray:
        """Rows of every block: int64 (blocks,)."""
        return np.array([len(rows) for rows in self.rows])

    @property
    def bounds(self) -> tuple[list[pa.Array], list[pa.Array], list[BoolArray], IntArray]:
        """What the planner is told of all blocks: lower bounds, upper bounds, none of them unknown, and rows."""
        known = [np.zeros(len(self), np.bool_)] * len(self.columns)
        return arrow(list(self.lower.T)), arrow(list(self.upper.T)), known, self.sizes

    def all_rows(self) -> list[IntArray]:
        """The columns of the rows loaded so far."""
        return [column[: self.loaded] for column in self.columns]

    def add(
        self, ordered: IntArray, cuts: IntArray, level: int = 0, known: bool = True, run: int | None = None
    ) -> None:
        """Add rows in this order as a new run, or to a run."""
        run = self.runs + 1 if run is None else run
        self.runs = max(self.runs, run)
        parts = np.split(ordered, cuts)
        starts = np.append(0, cuts).astype(np.int64)
        values = [column[ordered] for column in self.columns]
        self.rows += parts
        self.lower = np.vstack(
            [self.lower, np.stack([np.minimum.reduceat(v, starts) for v in values], axis=1)]
        )
        self.upper = np.vstack(
            [self.upper, np.stack([np.maximum.reduceat(v, starts) for v in values], axis=1)]
        )
        self.level = np.append(self.level, np.full(len(parts), level))
        self.run = np.append(self.run, np.full(len(parts), run if known else 0))

    def load(self, rows: int, key: IntArray | None, known: bool = True) -> None:
        """Load the next rows in the order of a key of all rows, or as they come, cut evenly."""
        arrived = np.arange(self.loaded, self.loaded + rows)
        if key is not None:
            arrived = arrived[np.argsort(key[arrived], kind="stable")]
        self.loaded += rows
        self.add(arrived, even_cuts(rows, self.block_rows), known=known)

    def merge(self, sets: Sequence[tuple[IntArray, int, int]], curve: Curve, cells: bool = True) -> None:
        """Merge block sets along the curve, given as positions of blocks, the level to write and the plan's run."""
        old = self.rows
        kept = np.setdiff1d(np.arange(len(old)), np.concatenate([members for members, *_ in sets]))
        self.rows = [old[place] for place in kept]
        for name in ("lower", "upper", "level", "run"):
            setattr(self, name, getattr(self, name)[kept])
        next_run = self.runs + 1
        for members, level, run in sets:
            rows = np.concatenate([old[place] for place in members])
            place = curve.index(arrow([column[rows] for column in self.columns]))
            order = np.argsort(place, kind="stable")
            cuts = even_cuts(len(rows), self.block_rows)
            if cells:
                cuts = cell_cuts(place[order], len(self.columns), self.block_rows)
            self.add(rows[order], cuts, level, run=next_run + run)
            self.rewritten += len(rows)


def sorted_table(
    columns: list[IntArray], block_rows: int, key: IntArray, cuts: IntArray | None = None
) -> Table:
    """A table of all rows, sorted by a key at once and cut evenly or as told."""
    table = Table(columns, block_rows, loaded=len(key))
    table.add(np.argsort(key, kind="stable"), even_cuts(len(key), block_rows) if cuts is None else cuts)
    return table


@dataclass(frozen=True)
class Queries:
    """Reads at places where rows are: a value of each column, and boxes of a share of each column's rows.

    Attributes:
        points: Values of each column, int64 (columns, q).
        lower: Lower corners of the boxes, int64 (columns, q).
        upper: Upper corners, likewise.
    """

    points: IntArray
    lower: IntArray
    upper: IntArray

    @classmethod
    def of(cls, columns: Sequence[IntArray], count: int, side: float = 0.01, seed: int = 0) -> Queries:
        """Draw reads from these rows."""
        random = np.random.default_rng(seed)
        rows = len(columns[0])
        points = np.stack([column[random.integers(0, rows, count)] for column in columns])
        centre = random.integers(0, rows, count)
        lower, upper = [], []
        for column in columns:
            ordered = np.sort(column)
            low = np.searchsorted(ordered, column[centre])
            high = np.searchsorted(ordered, column[centre], side="right")
            middle, half = (low + high) // 2, max(1, int(side * rows / 2))
            lower.append(ordered[np.maximum(middle - half, 0)])
            upper.append(ordered[np.minimum(middle + half, rows - 1)])
        return cls(points, np.stack(lower), np.stack(upper))

    def opened(self, table: Table) -> FloatArray:
        """Mean blocks that a point of each column opens, and that a box opens: float64 (columns + 1,)."""
        blocks = []
        inside = np.ones((len(table), self.points.shape[1]), np.bool_)
        for column, points in enumerate(self.points):
            low, high = table.lower[:, column], table.upper[:, column]
            started = np.searchsorted(np.sort(low), points, side="right")
            blocks.append(float((started - np.searchsorted(np.sort(high), points)).mean()))
            inside &= (low[:, None] <= self.upper[column]) & (high[:, None] >= self.lower[column])
        return np.array([*blocks, float(inside.sum(axis=0).mean())])
