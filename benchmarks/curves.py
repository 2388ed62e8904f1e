"""Keys of equal weight, on tables of real rows that are planned and merged as the product does. No Spark.

    python benchmarks/curves.py                  # all tables
    python benchmarks/curves.py --quick          # the same, shorter and rougher
    python benchmarks/curves.py cuts loads       # some of them

A block is known by the least and greatest value of each column of its rows, as Iceberg stores it. Points are the values
of random rows, boxes take 1 % of the rows of each column around a random row, and both are counted after each load.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from curve_layout import FloatArray, IntArray, Queries, Table, along, arrow, in_boxes, z_order
from curve_workloads import WORKLOADS, in_order, samples

from dbt_recluster.clustering.curve_boundaries import as_properties
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.key.curve import Curve
from dbt_recluster.planner import Blocks, Policy, curve_information, plan
from dbt_recluster.planner.curves import CurveBlocks

_BLOCK_ROWS, _BLOCKS_OF_LOAD = 256, 8
_ROWS_OF_LOAD = _BLOCK_ROWS * _BLOCKS_OF_LOAD
_MOST_ROUNDS = 50


@dataclass(frozen=True)
class Scale:
    """How long a run takes: loads of a workload, and blocks of the greatest table that is planned."""

    loads: int = 30
    blocks: int = 1_000_000


@dataclass(frozen=True)
class Result:
    """Figures of a series of loads: means over them.

    Attributes:
        opened: Blocks that a point of each column and a box open, times those of a table sorted at once.
        rewritten: Rows rewritten for each row loaded.
    """

    opened: FloatArray
    rewritten: float

    @property
    def point(self) -> float:
        """Blocks that a point of any one column opens, times those of a table sorted at once."""
        return float(self.opened[:-1].mean())


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

    def arrive(self, table: Table, number: int, arrival: str) -> None:
        """Load the rows in an order: along the curve, once there is one, by a column, or none; draw the curve."""
        rows = [column[number * _ROWS_OF_LOAD : (number + 1) * _ROWS_OF_LOAD] for column in self.columns]
        key = rows[int(arrival[-1])] if arrival.startswith("column") else None
        if arrival == "curve" and table.recorded is not None:
            key = table.recorded.index_of_load(arrow(rows))
        table.load(_ROWS_OF_LOAD, key)
        table.draw()

    def reclustered(self, depth: float, arrival: str = "curve", known: Curve | None = None) -> Result:
        """Recluster after each load; with ``known`` boundaries from the beginning."""
        table, opened = Table(self.columns, _BLOCK_ROWS, known, known), list[FloatArray]()
        for number, queries in enumerate(self.queries):
            self.arrive(table, number, arrival)
            table.curve = known or table.curve
            table.recluster(depth)
            opened.append(queries.opened(table))
        return Result(np.mean(opened, axis=0) / self.ideal, table.rewritten / table.loaded)

    def _until(self, number: int) -> list[IntArray]:
        return [column[: _ROWS_OF_LOAD * (number + 1)] for column in self.columns]


def table_cuts(_: Scale) -> None:
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


def table_late(scale: Scale) -> None:
    """A load in order of time, some of whose rows are late, cut by itself: its blocks that a point of time opens."""
    rows = []
    for dimensions in (2, 3):
        for late in (0, 0.002, 0.01, 0.05):
            random = np.random.default_rng(1)
            columns = in_order(random, scale.loads * _ROWS_OF_LOAD, dimensions, scale.loads)
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


def table_parts(_: Scale) -> None:
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


def table_thresholds(scale: Scale) -> None:
    """What a threshold means."""
    rows, depths = [], (1.5, 2, 3, 4, 6, 8)
    for dimensions in (2, 3, 4):
        for name in WORKLOADS:
            loads = Loads(made(name, dimensions, scale.loads))
            results = map(loads.reclustered, depths)
            rows.append([name, str(dimensions), *(f"{r.point:.2f} / {r.rewritten:.2f}" for r in results)])
    headings = ["workload", "columns", *(f"depth {depth}" for depth in depths)]
    markdown(
        "blocks that a point opens, times those of a table written at once / rows rewritten", headings, rows
    )


def table_loads(scale: Scale) -> None:
    """Loads that come sorted along the curve, unsorted or sorted by a column; depth 4."""
    rows = []
    arrivals = ("curve", "unsorted", "column 0", "column 1")
    for dimensions in (2, 3):
        for name in WORKLOADS:
            loads = Loads(made(name, dimensions, scale.loads))
            results = [loads.reclustered(4, arrival) for arrival in arrivals]
            cells = [f"{r.point:.2f} / {r.opened[-1]:.2f} / {r.rewritten:.2f}" for r in results]
            rows.append([name, str(dimensions), *cells])
    markdown(
        "a point / a box, times those of a table written at once / rows rewritten",
        ["workload", "columns", *arrivals],
        rows,
    )


def table_drift(scale: Scale) -> None:
    """In order of time: boundaries drawn after each load, and known from the beginning; depth 4."""
    rows = []
    for dimensions in (2, 3):
        loads = Loads(made("in order", dimensions, scale.loads))
        for label, known in (("drawn", None), ("known", Curve.of(arrow(loads.columns)))):
            result = loads.reclustered(4, known=known)
            opened = " / ".join(f"{count:.2f}" for count in result.opened[:-1])
            rows.append([str(dimensions), label, opened, f"{result.point:.2f}", f"{result.rewritten:.2f}"])
    headings = ["columns", "boundaries", "a point of each column", "mean", "rewritten"]
    markdown("blocks opened, times those of a table written at once", headings, rows)


def table_rest(scale: Scale) -> None:
    """Rounds until nothing is planned after each load."""
    rows, depths = [], (1, 1.5, 2, 4)
    for dimensions in (2, 3):
        for name in WORKLOADS:
            loads, cells = Loads(made(name, dimensions, scale.loads)), list[str]()
            for depth in depths:
                table, rounds = Table(loads.columns, _BLOCK_ROWS), list[int]()
                for number in range(scale.loads):
                    loads.arrive(table, number, "curve")
                    rounds.append(table.recluster(depth, _MOST_ROUNDS))
                cells.append(f"{max(rounds)} / {table.rewritten / table.loaded:.2f}")
            rows.append([name, str(dimensions), *cells])
    headings = ["workload", "columns", *(f"depth {depth:g}" for depth in depths)]
    markdown(f"most rounds, of {_MOST_ROUNDS} / rows rewritten", headings, rows)


def table_boundaries(_: Scale) -> None:
    """Characters of the property that records a column's boundaries."""
    rows, key = [], parse_cluster_key("hilbert(a, b)")
    for name, sample in samples(np.random.default_rng(0), 32_768).items():
        properties = as_properties(key, Curve.of([sample, sample]), {"a": 1, "b": 2})
        rows.append([name, f"{max(map(len, properties.values())):,}"])
    markdown("boundaries", ["type", "characters"], rows)


def table_report(scale: Scale) -> None:
    """What a report can say by boxes and rows of blocks alone, times what reads of real rows see."""
    rows = []
    for dimensions in (2, 3):
        for name in WORKLOADS:
            loads = Loads(made(name, dimensions, scale.loads))
            queries = Queries.of(loads.columns, 2_000)
            then = queries.opened(at_once(loads.columns))
            for label, depth in (("depth 4", 4.0), ("depth 2", 2.0), ("unsorted", None)):
                table = Table(loads.columns, _BLOCK_ROWS)
                for number in range(scale.loads):
                    loads.arrive(table, number, "unsorted" if depth is None else "curve")
                    if depth is not None:
                        table.recluster(depth)
                seen, now = curve_information(table.on_curve(), _BLOCK_ROWS), queries.opened(table)
                ratios = (
                    np.array([*seen.point_blocks, seen.box_blocks]) / now,
                    np.array([*seen.sorted_point_blocks, seen.sorted_box_blocks]) / then,
                )
                cells = [
                    " / ".join(f"{value:.2f}" for value in part)
                    for ratio in ratios
                    for part in np.split(ratio, [-1])
                ]
                rows.append([name, str(dimensions), label, *cells])
    headings = ["workload", "columns", "table", "a point", "a box", "a point, sorted at once", "a box"]
    markdown("estimated, times real", headings, rows)


def table_scale(scale: Scale) -> None:
    """Processor seconds of a plan: six runs of descending size over each other, depth 4."""
    rows = []
    texts = [f"https://www.example.com/{rank:04}" for rank in range(1 << 10)]
    for dimensions in (2, 3, 4):
        for blocks in (scale.blocks // 10, scale.blocks):
            lower, upper, rows_of, level, run = _runs(dimensions, blocks)
            for name, values in (("numbers", pa.array(range(1 << 10))), ("text", pa.array(texts))):
                low, high = (
                    [values.take(pa.array(column)) for column in columns] for columns in (lower, upper)
                )
                known = [np.zeros(len(rows_of), np.bool_)] * dimensions
                curve_blocks = CurveBlocks(Curve((values[1:],) * dimensions), low, high, known, rows_of)
                took: list[float] = []
                planned = _timed(took, partial(_planned_blocks, curve_blocks, level, run))
                _timed(took, partial(plan, planned, Policy(depth=4, block_rows=8)))
                fresh = CurveBlocks(curve_blocks.curve, low, high, known, rows_of)
                _timed(took, partial(curve_information, fresh, 8))
                rows.append([str(dimensions), f"{blocks:,}", name, *(f"{seconds:.2f}" for seconds in took)])
    markdown("seconds", ["columns", "blocks", "of", "blocks to intervals", "plan", "report"], rows)


def _planned_blocks(blocks: CurveBlocks, level: IntArray, run: IntArray) -> Blocks:
    layout = blocks.layout(run, run, level)
    lower, upper, _ = blocks.along_curve(layout.chain)
    return Blocks.build(lower, upper, rows=blocks.rows, level=level, run=layout.chain, layout=layout)


def _timed(took: list[float], step: Callable[[], Any]) -> Any:
    began = time.process_time()
    result = step()
    took.append(time.process_time() - began)
    return result


def _runs(
    dimensions: int, blocks: int
) -> tuple[list[IntArray], list[IntArray], IntArray, IntArray, IntArray]:
    """Boxes of runs of eight rows a block, as ranks: lower, upper, rows, level, run."""
    random = np.random.default_rng(blocks)
    domain = 1 << 10
    curve = Curve((pa.array(np.arange(1, domain)),) * dimensions)
    lower: list[list[IntArray]] = [[] for _ in range(dimensions)]
    upper: list[list[IntArray]] = [[] for _ in range(dimensions)]
    levels, sizes = [12, 6, 3, 1, 0, 0], [0.7, 0.2, 0.05, 0.025, 0.0125, 0.0125]
    counts = [int(share * blocks) for share in sizes]
    for count in counts:
        columns = [random.integers(0, domain, count * 8) for _ in range(dimensions)]
        order = np.argsort(curve.index(arrow(columns)), kind="stable")
        for place, column in enumerate(columns):
            parts = column[order].reshape(count, 8)
            lower[place].append(parts.min(axis=1))
            upper[place].append(parts.max(axis=1))
    return (
        [np.concatenate(parts) for parts in lower],
        [np.concatenate(parts) for parts in upper],
        np.full(sum(counts), 8),
        np.repeat(levels, counts),
        np.repeat(np.arange(1, 7), counts),
    )


TABLES: dict[str, Callable[[Scale], None]] = {
    name.removeprefix("table_"): table for name, table in globals().items() if name.startswith("table_")
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--quick", action="store_true", help="12 loads, smaller tables")
    options = parser.parse_args()
    scale = Scale(12, 20_000) if options.quick else Scale()
    for name in options.tables or TABLES:
        began = time.monotonic()
        print(f"## {name}\n\n{(TABLES[name].__doc__ or '').splitlines()[0]}\n")
        TABLES[name](scale)
        print(f"{name}: {time.monotonic() - began:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
