"""Keys of equal weight, on tables of real rows that are planned and merged as the product does. No Spark.

    python benchmarks/curves.py                       # all tables
    python benchmarks/curves.py thresholds --loads 12
    python benchmarks/curves.py events                # daily loads with late rows under hilbert(user, day)

A block is known by the least and greatest value of each column of its rows, as Iceberg stores it. Points are the values
of random rows, boxes take 1 % of the rows of each column around a random row, and both are counted after each load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import cleandoc

import command
import numpy as np
from curve_layout import FloatArray, IntArray, Queries, Table, along, arrow, in_boxes, z_order

from dbt_recluster.key.curve import Curve

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
    parts = in_boxes(Curve.of(arrow(columns)), columns, block_rows, len(columns[0]))
    return written(columns, parts, block_rows)


@dataclass(frozen=True)
class Loads:
    """A series of loads, with reads after each of them.

    Attributes:
        columns: The columns of the key, row by row in the order of arrival.
        rows: Rows of each load.
        block_rows: Rows of a full block.
        reads: Number of points of each column, and of boxes, after each load.
    """

    columns: list[IntArray]
    rows: int = _ROWS_OF_LOAD
    block_rows: int = _BLOCK_ROWS
    reads: int = 256

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
            table.load(self.rows, key)
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
    return Curve.of(arrow(columns)).index(arrow(columns))


def means(after: Sequence[After]) -> After:
    """Means over loads."""
    rewritten, opened = zip(*after, strict=True)
    return float(np.mean(rewritten)), np.mean(opened, axis=0)


def layouts(columns: list[IntArray]) -> dict[str, Table]:
    """The same rows in boxes, and cut evenly along some orders."""
    curve = Curve.of(arrow(columns))
    keys = {
        "along the curve": curve.index(arrow(columns)),
        "z-order of ranks": z_order(curve.ranks(arrow(columns))),
        "Iceberg's z-order": z_order(columns),
    }
    cut = {label: written(columns, along(key, _BLOCK_ROWS)) for label, key in keys.items()}
    return {"boxes": at_once(columns), **cut}


def table_cuts(_: int = 0) -> Result:
    """The whole table written at once: blocks that a point opens, times B**(1 - 1/columns) / that a box opens."""
    rows = []
    for dimensions in (2, 3, 4):
        for name in WORKLOADS:
            opened: dict[str, list[FloatArray]] = {}
            for blocks in (64, 128, 256, 512):
                columns = columns_of(name, dimensions, blocks // _BLOCKS_OF_LOAD)
                queries, ideal = Queries.of(columns, 1_000), blocks ** (1 - 1 / dimensions)
                for label, table in layouts(columns).items():
                    *points, box = queries.opened(table)
                    opened.setdefault(label, []).append(np.array([np.mean(points) / ideal, box]))
            averages = [np.mean(figures, axis=0) for figures in opened.values()]
            rows.append([name, str(dimensions), *(f"{point:.2f} / {box:.1f}" for point, box in averages)])
    return ["workload", "columns", *opened], rows


def table_thresholds(loads: int = 30) -> Result:
    """What a threshold means: blocks that a point opens, times those of a table written at once / rows rewritten."""
    rows, depths = [], (1.5, 2, 3, 4, 6, 8)
    for dimensions in (2, 3, 4):
        for name in WORKLOADS:
            series, cells = Loads(columns_of(name, dimensions, loads)), []
            _, ideal = means(series.at_once)
            for depth in depths:
                rewritten, opened = means(series.reclustered(depth))
                cells.append(f"{(opened / ideal)[:-1].mean():.2f} / {rewritten:.2f}")
            rows.append([name, str(dimensions), *cells])
    return ["workload", "columns", *(f"depth {depth}" for depth in depths)], rows


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
