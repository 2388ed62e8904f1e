"""Keys of equal weight, on tables of real rows that are planned and merged as the product does. No Spark.

    python benchmarks/curves.py                       # all tables
    python benchmarks/curves.py thresholds --loads 12
    python benchmarks/curves.py events                # daily loads with late rows under hilbert(user, day)

A block is known by the least and greatest value of each column of its rows, as Iceberg stores it. Points are the values
of random rows, boxes take 1 % of the rows of each column around a random row, and both are counted after each load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import cleandoc
from types import SimpleNamespace
from typing import Any

import command
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbt_recluster.clustering.checkpoint import SettledBlocks
from dbt_recluster.clustering.table_curve import BEYOND
from dbt_recluster.key.box_tree import SHARES, Points, cut_into_boxes
from dbt_recluster.key.curve import Curve
from dbt_recluster.planner import Blocks, Plan, Policy, plan
from dbt_recluster.planner.curves import CURVE_TOLERANCE, CurveBlocks

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# Sampled rows of each block of a load, and of each load at least, as in clustering/table_curve.py.
_ROWS_OF_BLOCK, _LEAST_ROWS = 250, 1_000
# Share of each column's rows that the box of a query takes.
BOX_SIDE = 0.01


def arrow(columns: Sequence[IntArray]) -> list[pa.Array]:
    """Columns as a curve takes them."""
    return [pa.array(column) for column in columns]


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


def along(key: IntArray, block_rows: int) -> list[IntArray]:
    """Rows of each block of a table that is sorted by a key and cut evenly."""
    return np.array_split(np.argsort(key, kind="stable"), max(1, -(-len(key) // block_rows)))


def in_boxes(curve: Curve, columns: Sequence[IntArray], block_rows: int, of_table: int) -> list[IntArray]:
    """Rows of each block that a merge writes, of a table of so many rows."""
    rows, dimensions = Points.from_columns(curve, arrow(columns), 1), len(columns)
    tree = cut_into_boxes(rows, block_rows, curve.parts, dimensions * (of_table / block_rows) ** (-1 / dimensions))
    box = tree.box_of(rows.rank, np.random.default_rng(0).integers(0, SHARES, len(rows.rank)))
    order = np.argsort(box, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(box[order])) + 1)


@dataclass(frozen=True)
class Block:
    """A block: the positions of its rows, and what is known of it."""

    number: int
    rows: IntArray
    lower: IntArray  # least value of each column
    upper: IntArray
    level: int = 0
    run: int = 0
    added_by: int = 0


@dataclass
class Table:
    """A table of real rows in blocks.

    Attributes:
        columns: All rows that are ever loaded: int64 for each column of the key.
        block_rows: Rows in a full block.
        curve: The curve that plans go by; drawn by `draw`.
        recorded: The curve that loads are sorted along, as of the last merge.
        loaded, rewritten: Rows so far.
    """

    columns: list[IntArray]
    block_rows: int
    curve: Curve | None = None
    recorded: Curve | None = None
    blocks: list[Block] = field(default_factory=list)
    loaded: int = 0
    rewritten: int = 0
    _blocks_so_far: int = 0
    _commits: int = 0
    _rest: str | None = None
    _samples: dict[int, IntArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def lower(self) -> IntArray:
        """Least value of each column in every block, int64 (blocks, columns)."""
        return np.stack([block.lower for block in self.blocks])

    @property
    def upper(self) -> IntArray:
        """Greatest values, likewise."""
        return np.stack([block.upper for block in self.blocks])

    def add(self, parts: Sequence[IntArray], **known: int) -> list[Block]:
        """Add blocks of these rows."""
        added = []
        for rows in parts:
            self._blocks_so_far += 1
            values = np.stack([column[rows] for column in self.columns])
            added.append(Block(self._blocks_so_far, rows, values.min(axis=1), values.max(axis=1), **known))
        self.blocks += added
        return added

    def load(self, rows: int, key: IntArray | None, file_rows: int | None = None) -> None:
        """Load the next rows in the order of a key of these rows, or as they come, cut evenly into files."""
        key = np.arange(rows) if key is None else key
        self._commits += 1
        self.add([self.loaded + part for part in along(key, file_rows or self.block_rows)], added_by=self._commits)
        self.loaded += rows

    def draw(self) -> None:
        """Draw the boundaries of the curve from those so far and samples of loads that they do not know."""
        unmerged: dict[int, list[IntArray]] = {}
        for block in self.blocks:
            if not block.run:
                unmerged.setdefault(block.added_by, []).append(block.rows)
        columns: list[list[IntArray]] = [[] for _ in self.columns]
        weights, beyond, others = [], [], sum(len(block.rows) for block in self.blocks)
        for load, parts in unmerged.items():
            rows, wanted = np.concatenate(parts), max(_LEAST_ROWS, _ROWS_OF_BLOCK * len(parts))
            if load not in self._samples:
                self._samples[load] = np.random.default_rng(load).permutation(rows)[:wanted]
            if self.recorded is not None and load <= self.recorded.newest:
                continue
            others -= len(rows)
            sample = self._samples[load]
            weights.append(np.full(len(sample), len(rows) / len(sample)))
            for values, column in zip(columns, self.columns, strict=True):
                values.append(column[sample])
            if self.recorded is not None:
                above = self.recorded.beyond(arrow([column[sample] for column in self.columns]))
                beyond.append([part.mean() for part in above])
        self._samples = {load: self._samples[load] for load in unmerged}
        if not weights:
            return
        if self.recorded is not None and others:
            for values, ends in zip(columns, self.recorded.boundaries, strict=True):
                values.append(ends.to_numpy())
            weights.append(np.full(self.recorded.parts - 1, others / (self.recorded.parts - 1)))
        weight = np.concatenate(weights)
        drawn = arrow([np.concatenate(values) for values in columns])
        ascending = tuple(share > BEYOND for share in np.max(beyond, axis=0)) if beyond else ()
        self.curve = replace(Curve.from_columns(drawn, weight), ascending=ascending, newest=max(self._samples))
        self.recorded = self.recorded or self.curve

    def planned(self, settled: BoolArray | None = None) -> Blocks:
        """The blocks for the planner."""
        assert self.curve is not None
        known, rows = [np.zeros(len(self), np.bool_)] * len(self.columns), self._of_blocks("rows")
        bounds = arrow(list(self.lower.T)), arrow(list(self.upper.T))
        curve_blocks = CurveBlocks(self.curve, *bounds, known, rows)
        level, run, added_by = map(self._of_blocks, ("level", "run", "added_by"))
        samples = {
            load: Points.from_columns(self.curve, arrow([column[sample] for column in self.columns]), 1)
            for load, sample in self._samples.items()
        }
        layout = curve_blocks.layout(run, added_by, level, settled, samples)
        lower, upper, _ = curve_blocks.along_curve(layout.chain)
        run = np.where(layout.chain > 0, layout.chain, layout.run)
        return Blocks.build(lower, upper, rows=curve_blocks.rows, level=level, run=run, layout=layout)

    def recluster(self, depth: float) -> None:
        """Plan and merge once."""
        policy = Policy(depth=depth, block_rows=self.block_rows, tolerance=CURVE_TOLERANCE)
        blocks = self.planned()
        names = pa.array([str(block.number) for block in self.blocks])
        metadata: Any = SimpleNamespace(path=names, added_by=self._of_blocks("added_by"))
        rest = SettledBlocks(blocks, metadata, policy, self._rest, "")
        if rest.mask.any():
            blocks = self.planned(rest.mask)
        planned = plan(blocks, policy)
        if planned.block_sets:
            self._merge(planned, rest)

    def _merge(self, planned: Plan, rest: SettledBlocks) -> None:
        """Merge the sets of a plan."""
        assert self.curve is not None
        self.recorded = self.curve
        gone: set[int] = set()
        paths, commits, old = [], set(), self.blocks
        for block_set in planned.block_sets:
            members = [old[place] for place in block_set.blocks]
            rows = np.concatenate([block.rows for block in members])
            run = self._commits + 1 + block_set.run
            commits.add(run)
            parts = in_boxes(self.curve, [column[rows] for column in self.columns], self.block_rows, self.loaded)
            added = self.add([rows[part] for part in parts], level=block_set.level, run=run, added_by=run)
            paths.append(([str(b.number) for b in added], [str(b.number) for b in members]))
            gone |= {block.number for block in members}
            self.rewritten += len(rows)
        self.blocks = [block for block in self.blocks if block.number not in gone]
        self._commits = max(commits)
        self._rest = next(iter(rest.after(planned, paths, sorted(commits)).values()))

    def _of_blocks(self, name: str) -> IntArray:
        values = (getattr(block, name) for block in self.blocks)
        return np.array([len(value) if name == "rows" else value for value in values], np.int64)


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
    def of(cls, columns: Sequence[IntArray], count: int, seed: int = 0) -> Queries:
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
            middle, half = (low + high) // 2, max(1, int(BOX_SIDE * rows / 2))
            lower.append(ordered[np.maximum(middle - half, 0)])
            upper.append(ordered[np.minimum(middle + half, rows - 1)])
        return cls(points, np.stack(lower), np.stack(upper))

    def opened(self, table: Table) -> FloatArray:
        """Mean blocks that a point of each column opens, and that a box opens: float64 (columns + 1,)."""
        blocks, least, greatest = [], table.lower, table.upper
        inside = np.ones((len(table), self.points.shape[1]), np.bool_)
        for column, values in enumerate(self.points):
            low, high = least[:, column], greatest[:, column]
            started = np.searchsorted(np.sort(low), values, side="right")
            blocks.append(float((started - np.searchsorted(np.sort(high), values)).mean()))
            inside &= (low[:, None] <= self.upper[column]) & (high[:, None] >= self.lower[column])
        return np.array([*blocks, float(inside.sum(axis=0).mean())])


_BLOCK_ROWS, _BLOCKS_OF_LOAD = 256, 8
_ROWS_OF_LOAD = _BLOCK_ROWS * _BLOCKS_OF_LOAD
DOMAIN = 1 << 20
# Of a load of events.
EVENTS = 30_000
# Rows rewritten for each row of a load, and mean blocks that a point of each column, and a box, open after it.
After = tuple[float, FloatArray]
# The headings and rows of a table.
Result = tuple[list[str], list[list[str]]]


def uniform(random: np.random.Generator, rows: int, dimensions: int, _: int) -> list[IntArray]:
    """Independent columns, evenly spread."""
    return [random.integers(0, DOMAIN, rows) for _ in range(dimensions)]


def skewed(random: np.random.Generator, rows: int, dimensions: int, _: int) -> list[IntArray]:
    """Independent columns by Zipf's law: the first value has a quarter of the rows, in the next column a third."""
    return [np.minimum(random.zipf(1.3 + 0.1 * place, rows), DOMAIN) for place in range(dimensions)]


def correlated(random: np.random.Generator, rows: int, dimensions: int, _: int) -> list[IntArray]:
    """All columns follow the first, up to a deviation of a twentieth of the domain."""
    first = random.random(rows)
    return [
        (np.clip(first + (place > 0) * random.normal(0, 0.05, rows), 0, 1) * (DOMAIN - 1)).astype(np.int64)
        for place in range(dimensions)
    ]


def in_order(random: np.random.Generator, rows: int, dimensions: int, loads: int) -> list[IntArray]:
    """The first column is time, and each load brings its own; the others are evenly spread."""
    time = np.floor(np.arange(rows) * loads / rows) + random.random(rows)
    return [(time * 1_000).astype(np.int64), *uniform(random, rows, dimensions - 1, loads)]


WORKLOADS = {made.__name__.replace("_", " "): made for made in (uniform, skewed, correlated, in_order)}


def text(random: np.random.Generator, rows: int, dimensions: int, loads: int) -> list[IntArray]:
    """Columns of words by Zipf's law, as their places in the order of letters."""
    words = (random.permutation(DOMAIN + 1) for _ in range(dimensions))
    return [place[column] for place, column in zip(words, skewed(random, rows, dimensions, loads), strict=True)]


def events(loads: int) -> list[IntArray]:
    """Skewed users, and days: each load brings a day, and 3 % of its rows are of days before."""
    random = np.random.default_rng(0)
    count = EVENTS * loads
    user = (200_000 * random.random(count) ** 2).astype(np.int64)
    load = np.repeat(np.arange(loads), EVENTS)
    is_late = (random.random(count) < 0.03) & (load > 0)
    return [user, np.where(is_late, (random.random(count) * load).astype(np.int64), load)]


def columns_of(name: str, dimensions: int, loads: int) -> list[IntArray]:
    """The columns of a workload."""
    return WORKLOADS[name](np.random.default_rng(1), loads * _ROWS_OF_LOAD, dimensions, loads)


def written(columns: list[IntArray], parts: Sequence[IntArray], block_rows: int = _BLOCK_ROWS) -> Table:
    """A table of these blocks."""
    table = Table(columns, block_rows, loaded=len(columns[0]))
    table.add(parts)
    return table


def at_once(columns: list[IntArray], block_rows: int = _BLOCK_ROWS) -> Table:
    """A table that one merge has written."""
    parts = in_boxes(Curve.from_columns(arrow(columns)), columns, block_rows, len(columns[0]))
    return written(columns, parts, block_rows)


@dataclass(frozen=True)
class Loads:
    """A series of loads, with reads after each of them.

    Attributes:
        columns: The columns of the key, row by row in the order of arrival.
        rows: Rows of each load.
        block_rows: Rows of a full block.
        reads: Number of points of each column, and of boxes, after each load.
        file_rows: Rows of a file of a load, instead of those of a full block.
    """

    columns: list[IntArray]
    rows: int = _ROWS_OF_LOAD
    block_rows: int = _BLOCK_ROWS
    reads: int = 256
    file_rows: int | None = None

    @cached_property
    def queries(self) -> list[Queries]:
        """Reads after each load."""
        loads = len(self.columns[0]) // self.rows
        return [Queries.of(self._until(number), self.reads, seed=number) for number in range(loads)]

    @cached_property
    def at_once(self) -> list[After]:
        """What the reads open if the whole table is written after each load."""
        tables = (at_once(self._until(number), self.block_rows) for number in range(len(self.queries)))
        opened = [queries.opened(table) for queries, table in zip(self.queries, tables, strict=True)]
        return [(number + 1.0, blocks) for number, blocks in enumerate(opened)]

    def reclustered(self, depth: float, is_sorted: bool = True) -> list[After]:
        """Recluster after each load, which arrives sorted along the curve, once there is one, or as it is."""
        table, after = Table(self.columns, self.block_rows), list[After]()
        for number, queries in enumerate(self.queries):
            new = arrow([column[number * self.rows : (number + 1) * self.rows] for column in self.columns])
            key = table.recorded.index_of_load(new) if is_sorted and table.recorded else None
            table.load(self.rows, key, self.file_rows)
            before = table.rewritten
            table.draw()
            table.recluster(depth)
            after.append(((table.rewritten - before) / self.rows, queries.opened(table)))
        return after

    def rewritten(self, every: int, key: Callable[[list[IntArray]], IntArray], all_rows: bool) -> list[After]:
        """Put all rows, or the new ones, in the order of a key every few loads, which arrive sorted by it."""
        settled, new, after = list[IntArray](), list[IntArray](), list[After]()

        def cut(rows: IntArray) -> list[IntArray]:
            return [rows[part] for part in along(key([each[rows] for each in self.columns]), self.block_rows)]

        for number, queries in enumerate(self.queries):
            rows, work = np.arange(self.rows * number, self.rows * (number + 1)), 0
            new += cut(rows)
            if (number + 1) % every == 0:
                merged = np.concatenate([*settled, *new] if all_rows else new)
                settled, new, work = cut(merged) if all_rows else settled + cut(merged), [], len(merged)
            table = written(self.columns, [*settled, *new], self.block_rows)
            after.append((work / self.rows, queries.opened(table)))
        return after

    def _until(self, number: int) -> list[IntArray]:
        return [column[: self.rows * (number + 1)] for column in self.columns]


def hilbert(columns: list[IntArray]) -> IntArray:
    """Places along a Hilbert curve through the ranks of the values."""
    return Curve.from_columns(arrow(columns)).index(arrow(columns))


def means(after: Sequence[After]) -> After:
    """Means over loads."""
    rewritten, opened = zip(*after, strict=True)
    return float(np.mean(rewritten)), np.mean(opened, axis=0)


DEPTHS = (1, 1.5, 2, 3, 4, 6, 8)


def points_of(series: Loads, is_sorted: bool) -> list[str]:
    """For each depth, blocks that a point opens, times those of a table written at once / rows rewritten."""
    cells, (_, ideal) = [], means(series.at_once)
    for depth in DEPTHS:
        rewritten, opened = means(series.reclustered(depth, is_sorted))
        cells.append(f"{(opened / ideal)[:-1].mean():.2f} / {rewritten:.2f}")
    return cells


def table_thresholds(loads: int = 30) -> Result:
    """What a threshold means: blocks that a point opens, times those of a table written at once / rows rewritten."""
    rows = [
        [name, str(dimensions), *points_of(Loads(columns_of(name, dimensions, loads)), is_sorted=True)]
        for dimensions in (2, 3, 4)
        for name in WORKLOADS
    ]
    return ["workload", "columns", *(f"depth {depth}" for depth in DEPTHS)], rows


def table_files(loads: int = 16) -> Result:
    """The same for loads of one unsorted file of ten blocks."""
    rows, of_load = [], 10 * 4_000
    for name, made in {**WORKLOADS, "text": text}.items():
        columns = made(np.random.default_rng(1), loads * of_load, 2, loads)
        rows.append([name, *points_of(Loads(columns, of_load, 4_000, file_rows=of_load), is_sorted=False)])
    return ["workload", *(f"depth {depth}" for depth in DEPTHS)], rows


def table_events(loads: int = 20) -> Result:
    """Daily loads with late rows: rows rewritten, and blocks that a day, a user and a box open; second half only."""
    series = Loads(events(loads), EVENTS, EVENTS // 5, reads=300)
    runs = {
        f"{label}, depth {depth}": series.reclustered(depth, label == "sorted")
        for label in ("sorted", "unsorted")
        for depth in (8, 4, 1.6)
    }
    runs["Delta's cubes of 5 loads"] = series.rewritten(5, hilbert, all_rows=False)
    runs["Iceberg's z-order of all, every 5 loads"] = series.rewritten(5, z_order, all_rows=True)
    rows = []
    for label, run in {**runs, "at once, in boxes": series.at_once}.items():
        rewritten, (user, day, box) = means(run[len(run) // 2 :])
        cells = [f"{rewritten:.2f}", f"{day:.1f}", f"{user:.1f}", f"{box:.2f}", f"{day * user:.0f}"]
        rows.append([label, *cells])
    return ["", "rows rewritten", "day", "user", "box", "day x user"], rows


TABLES: dict[str, Callable[..., Result]] = {
    name.removeprefix("table_"): table for name, table in globals().items() if name.startswith("table_")
}


def main() -> None:
    """Print the tables."""
    parser = command.parser(__doc__)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--loads", type=int, help="instead of 30 for thresholds, and 20 for events")
    options = parser.parse_args()
    figures = {}
    for name in options.tables or TABLES:
        print(f"## {name}\n\n{cleandoc(TABLES[name].__doc__ or '')}\n", flush=True)
        figures[name] = TABLES[name](*filter(None, [options.loads]))
        command.markdown(*figures[name])
    command.save(options, figures)


if __name__ == "__main__":
    main()
