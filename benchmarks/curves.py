"""Keys of equal weight, on tables of real rows that are planned and merged as the product does. No Spark.

    python benchmarks/curves.py                  # all tables
    python benchmarks/curves.py --quick          # the same, shorter and rougher
    python benchmarks/curves.py cuts rest        # some of them

A block is known by the least and greatest value of each column of its rows, as Iceberg stores it. Points are the values
of random rows, boxes take 1 % of the rows of each column around a random row, and both are counted after each load.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from curve_layout import FloatArray, IntArray, Queries, Table, along, arrow, in_boxes, z_order

from dbt_recluster.key.curve import Curve

_BLOCK_ROWS, _BLOCKS_OF_LOAD = 256, 8
_ROWS_OF_LOAD = _BLOCK_ROWS * _BLOCKS_OF_LOAD
_MOST_ROUNDS = 50


DOMAIN = 1 << 20


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


WORKLOADS: dict[str, Callable[[np.random.Generator, int, int, int], list[IntArray]]] = {
    "uniform": uniform,
    "skewed": skewed,
    "correlated": correlated,
    "in order": in_order,
}


def markdown(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    print(f"{title}\n\n| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    print("\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n", flush=True)


def made(name: str, dimensions: int, loads: int) -> list[IntArray]:
    """The columns of a workload."""
    return WORKLOADS[name](np.random.default_rng(1), loads * _ROWS_OF_LOAD, dimensions, loads)


def written(columns: list[IntArray], parts: Sequence[IntArray]) -> Table:
    """A table of these blocks."""
    table = Table(columns, _BLOCK_ROWS, loaded=len(columns[0]))
    table.add(parts)
    return table


def at_once(columns: list[IntArray]) -> Table:
    """A table that one merge has written."""
    return written(columns, in_boxes(Curve.of(arrow(columns)), columns, _BLOCK_ROWS, len(columns[0])))


@dataclass(frozen=True)
class Loads:
    """A series of loads of these columns, with the reads after each of them."""

    columns: list[IntArray]

    @cached_property
    def count(self) -> int:
        """Number of loads."""
        return len(self.columns[0]) // _ROWS_OF_LOAD

    @cached_property
    def queries(self) -> list[Queries]:
        """Reads after each load."""
        return [Queries.of(self._until(number), 256, seed=number) for number in range(self.count)]

    @cached_property
    def ideal(self) -> FloatArray:
        """Mean blocks that they open if the table is written at once after each load."""
        tables = (at_once(self._until(number)) for number in range(self.count))
        opened = [queries.opened(table) for queries, table in zip(self.queries, tables, strict=True)]
        mean: FloatArray = np.mean(opened, axis=0)
        return mean

    def arrive(self, table: Table, number: int) -> None:
        """Load the rows along the curve, once there is one, and draw the curve."""
        rows = [column[number * _ROWS_OF_LOAD : (number + 1) * _ROWS_OF_LOAD] for column in self.columns]
        table.load(_ROWS_OF_LOAD, table.recorded.index_of_load(arrow(rows)) if table.recorded else None)
        table.draw()

    def reclustered(self, depth: float) -> tuple[float, float]:
        """Recluster after each load.

        Returns:
            Blocks that a point of any one column opens, times those of a table sorted at once, and rows rewritten for
            each row loaded: means over the loads.
        """
        table, opened = Table(self.columns, _BLOCK_ROWS), list[FloatArray]()
        for number, queries in enumerate(self.queries):
            self.arrive(table, number)
            table.recluster(depth)
            opened.append(queries.opened(table))
        times = np.mean(opened, axis=0) / self.ideal
        return float(times[:-1].mean()), table.rewritten / table.loaded

    def _until(self, number: int) -> list[IntArray]:
        return [column[: _ROWS_OF_LOAD * (number + 1)] for column in self.columns]


def table_cuts(_: int) -> None:
    """The whole table written at once: boxes, and even cuts along the curve, along a z-order of ranks and Iceberg's."""
    rows = []
    for dimensions in (2, 3, 4):
        for name in WORKLOADS:
            opened: dict[str, list[FloatArray]] = {}
            for blocks in (64, 128, 256, 512):
                columns = made(name, dimensions, blocks // _BLOCKS_OF_LOAD)
                queries, curve = Queries.of(columns, 1_000), Curve.of(arrow(columns))
                ranks = curve.ranks(arrow(columns))
                tables = {
                    "boxes": at_once(columns),
                    **{
                        label: written(columns, along(key, _BLOCK_ROWS))
                        for label, key in (
                            ("curve", curve.index(arrow(columns))),
                            ("ranks", z_order(ranks)),
                            ("values", z_order(columns)),
                        )
                    },
                }
                for label, table in tables.items():
                    figures = queries.opened(table)
                    ideal = blocks ** (1 - 1 / dimensions)
                    opened.setdefault(label, []).append(
                        np.array([figures[:-1].mean() / ideal, figures[-1], len(table) / blocks])
                    )
            means = {label: np.mean(figures, axis=0) for label, figures in opened.items()}
            cells = [f"{point:.2f} / {box:.1f}" for point, box, _ in means.values()]
            rows.append([name, str(dimensions), *cells, f"{means['boxes'][2]:.2f}"])
    headings = ["workload", "columns", "boxes", "along the curve", "z-order of ranks", "Iceberg's z-order"]
    markdown(
        "blocks that a point opens, times B**(1 - 1/columns) / that a box opens", [*headings, "blocks"], rows
    )


def table_late(loads: int) -> None:
    """A load in order of time, some of whose rows are late, cut by itself: its blocks that a point of time opens."""
    rows = []
    for dimensions in (2, 3):
        for late in (0, 0.002, 0.01, 0.05):
            random = np.random.default_rng(1)
            columns = in_order(random, loads * _ROWS_OF_LOAD, dimensions, loads)
            new = slice(len(columns[0]) - 4 * _ROWS_OF_LOAD, None)
            is_late = np.flatnonzero(random.random(4 * _ROWS_OF_LOAD) < late) + new.start
            columns[0][is_late] = columns[0][random.integers(0, new.start, len(is_late))]
            queries, curve = Queries.of(columns, 4_000), Curve.of(arrow(columns))
            load = [column[new] for column in columns]
            layouts = {
                "boxes": in_boxes(curve, load, _BLOCK_ROWS, len(columns[0])),
                "curve": along(curve.index(arrow(load)), _BLOCK_ROWS),
            }
            cells = []
            for parts in layouts.values():
                table = written(load, parts)
                cells.append(f"{queries.opened(table)[0]:.2f} of {len(table)}")
            rows.append([str(dimensions), f"{late:.1%}", *cells])
    markdown(
        "blocks that a point of the first column opens", ["columns", "late rows", "boxes", "curve"], rows
    )


def table_parts(_: int) -> None:
    """Parts of a column against blocks: 1,024 blocks of 64 rows, written at once."""
    rows, sizes = [], (10, 8, 7, 6, 5, 4)
    for dimensions in (2, 3):
        for name in ("uniform", "skewed"):
            columns = WORKLOADS[name](np.random.default_rng(1), 1_024 * 64, dimensions, 50)
            queries, opened = Queries.of(columns, 2_000), []
            for bits in sizes:
                parts = in_boxes(Curve.of(arrow(columns), bits=bits), columns, 64, len(columns[0]))
                opened.append(float(queries.opened(written(columns, parts))[:-1].mean()))
            rows.append([name, str(dimensions), *(f"{count / opened[0]:.2f}" for count in opened)])
    headings = ["workload", "columns", *(f"2^{bits} parts" for bits in sizes)]
    markdown("blocks that a point opens, times those with 2^10 parts", headings, rows)


def table_thresholds(loads: int) -> None:
    """What a threshold means."""
    rows, depths = [], (1.5, 2, 3, 4, 6, 8)
    for dimensions in (2, 3, 4):
        for name in WORKLOADS:
            results = map(Loads(made(name, dimensions, loads)).reclustered, depths)
            rows.append(
                [name, str(dimensions), *(f"{point:.2f} / {rewritten:.2f}" for point, rewritten in results)]
            )
    headings = ["workload", "columns", *(f"depth {depth}" for depth in depths)]
    markdown(
        "blocks that a point opens, times those of a table written at once / rows rewritten", headings, rows
    )


def table_rest(loads: int) -> None:
    """Rounds until nothing is planned after each load."""
    rows, depths = [], (1, 1.5, 2, 4)
    for dimensions in (2, 3):
        for name in WORKLOADS:
            series, cells = Loads(made(name, dimensions, loads)), list[str]()
            for depth in depths:
                table, rounds = Table(series.columns, _BLOCK_ROWS), list[int]()
                for number in range(loads):
                    series.arrive(table, number)
                    rounds.append(table.recluster(depth, _MOST_ROUNDS))
                cells.append(f"{max(rounds)} / {table.rewritten / table.loaded:.2f}")
            rows.append([name, str(dimensions), *cells])
    headings = ["workload", "columns", *(f"depth {depth:g}" for depth in depths)]
    markdown(f"most rounds, of {_MOST_ROUNDS} / rows rewritten", headings, rows)


TABLES: dict[str, Callable[[int], None]] = {
    name.removeprefix("table_"): table for name, table in globals().items() if name.startswith("table_")
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--quick", action="store_true", help="12 loads instead of 30")
    options = parser.parse_args()
    for name in options.tables or TABLES:
        began = time.monotonic()
        print(f"## {name}\n\n{(TABLES[name].__doc__ or '').splitlines()[0]}\n")
        TABLES[name](12 if options.quick else 30)
        print(f"{name}: {time.monotonic() - began:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
