"""Keys of equal weight: how to plan for a curve, decided on tables of real rows (docs/design/curves.md). No Spark.

    python benchmarks/curves.py                  # all tables, half an hour
    python benchmarks/curves.py --quick          # the same, shorter and rougher, two minutes
    python benchmarks/curves.py ways drift       # some of them

A block is known by the least and greatest value of each column of its rows, as Iceberg stores it. Points are the values
of random rows, boxes take 1 % of the rows of each column around a random row, and both are counted after each load.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import curve_tables
import numpy as np
from curve_layout import FloatArray, IntArray, Queries, Table, arrow, curve_of, sorted_table, z_order
from curve_planning import WAYS, rank_boxes, recluster
from curve_tables import Scale, markdown
from curve_workloads import WORKLOADS, lineitem

from dbt_recluster.planner.curves import MOST_UNEVEN, Boxes, CurveBlocks, renewed

_DIRECTORY = Path(__file__).parent / "out"


@dataclass(frozen=True)
class Result:
    """Figures of a series of loads.

    Attributes:
        opened: Mean blocks that a point of each column and a box open, over all loads: float64 (columns + 1,).
        blocks: Mean blocks of the table.
        rewritten: Rows rewritten for each row loaded.
        rounds: Plans that were not empty.
        renewed: How often the curve was renewed.
    """

    opened: FloatArray
    blocks: float
    rewritten: float
    rounds: float = 0.0
    renewed: float = 0.0

    @property
    def point(self) -> float:
        """Mean blocks that a point of any one column opens."""
        return float(self.opened[:-1].mean())

    @classmethod
    def mean(cls, results: Sequence[Result]) -> Result:
        """Mean of several seeds."""
        return cls(
            *(np.mean([getattr(result, name) for result in results], axis=0) for name in cls.__annotations__)
        )  # type: ignore[arg-type]


@dataclass(frozen=True)
class Loads:
    """A series of loads.

    Attributes:
        columns: The columns of the key, of all rows in the order of arrival.
        count: Number of loads.
        block_rows: Rows in a full block.
        queries: Points of each column, and boxes, after each load.
    """

    columns: list[IntArray]
    count: int
    block_rows: int
    queries: int = 256

    @property
    def rows(self) -> int:
        """Rows of a load."""
        return len(self.columns[0]) // self.count

    def opened(self, table: Table, number: int) -> FloatArray:
        """What reads open after a load."""
        return Queries.of(table.all_rows(), self.queries, seed=number).opened(table)

    def sorted_each_time(self, key_of: Callable[[list[IntArray]], IntArray]) -> Result:
        """Sort the whole table after each load."""
        opened, blocks = [], []
        for number in range(self.count):
            columns = [column[: self.rows * (number + 1)] for column in self.columns]
            table = sorted_table(columns, self.block_rows, key_of(columns))
            opened.append(self.opened(table, number))
            blocks.append(len(table))
        return Result(np.mean(opened, axis=0), float(np.mean(blocks)), (self.count + 1) / 2)

    def reclustered(
        self, way: str, depth: float, arrival: str = "curve", runs: str = "known", most: float | None = None
    ) -> Result:
        """Load, and recluster after each load.

        Args:
            way: One of `WAYS`.
            depth: The threshold.
            arrival: How loads are sorted: along the curve, not at all, or by a column.
            runs: Whether loads are runs: "known", "unknown", or "detected" by their boxes.
            most: The unevenness at which the curve is renewed, which then begins with the first load. Without it, the
                curve is that of all rows.
        """
        table = Table(self.columns, self.block_rows)
        curve = curve_of(self.columns if most is None else [column[: self.rows] for column in self.columns])
        opened, blocks, rounds, renewals = [], [], 0, 0
        key = None if arrival != "curve" or most else curve.index(arrow(self.columns))
        for number in range(self.count):
            if arrival == "curve" and most:
                key = curve.index(arrow(self.columns))
            elif arrival.startswith("column"):
                key = self.columns[int(arrival[-1])]
            before = len(table)
            table.load(self.rows, key, known=runs != "unknown")
            if runs == "detected":
                boxes = rank_boxes(table, curve)
                of_load = [[column[before:] for column in ends] for ends in (boxes.lower, boxes.upper)]
                table.run[before:] *= Boxes(*of_load, curve.bits).is_sorted(table.run[before:])
            if most:
                fresh = renewed(CurveBlocks(curve, *table.bounds), most=most)
                renewals += fresh is not None
                curve = fresh or curve
            rounds += recluster(table, curve, way, depth)
            opened.append(self.opened(table, number))
            blocks.append(len(table))
        mean = np.mean(opened, axis=0)
        return Result(mean, float(np.mean(blocks)), table.rewritten / table.loaded, rounds, renewals)


Measure = Callable[[Loads], Result]


def sorted_by(label: str) -> Measure:
    """Measure a table that is sorted as a whole after each load."""
    return lambda loads: loads.sorted_each_time(SORTS[label])


def reclustered(
    way: str, depth: float, arrival: str = "curve", runs: str = "known", most: float | None = None
) -> Measure:
    """Measure a table that is reclustered after each load; see `Loads.reclustered`."""
    return lambda loads: loads.reclustered(way, depth, arrival, runs, most)


def synthetic(scale: Scale, name: str, dimensions: int, seed: int) -> Loads:
    """Loads of a synthetic workload, of 8 blocks of 256 rows each."""
    rows = scale.loads * 8 * 256
    columns = WORKLOADS[name](np.random.default_rng(seed), rows, dimensions, scale.loads)
    return Loads(columns, scale.loads, 256)


def over_seeds(
    scale: Scale, name: str, dimensions: int, measure: Measure, seeds: int | None = None
) -> Result:
    """Mean of a figure over all seeds of the scale, or over the first ones."""
    return Result.mean([measure(synthetic(scale, name, dimensions, seed)) for seed in scale.seeds[:seeds]])


def plain_key(columns: list[IntArray]) -> IntArray:
    """Places of rows in the order of the columns."""
    order = np.lexsort(columns[::-1])
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


SORTS: dict[str, Callable[[list[IntArray]], IntArray]] = {
    "Iceberg's z-order": z_order,
    "z-order of ranks": lambda columns: z_order(curve_of(columns).ranks(arrow(columns))),
    "Hilbert": lambda columns: curve_of(columns).index(arrow(columns)),
    "plain key": plain_key,
    "plain key, reversed": lambda columns: plain_key(columns[::-1]),
}

HEADINGS = [
    "layout",
    "a point of each column",
    "a point, mean",
    "times z-order",
    "times Hilbert",
    "a box",
    "blocks",
    "rewritten",
    "of z-order's",
    "plans",
]


def row(label: str, result: Result, z: Result, hilbert: Result) -> list[str]:
    """A row of a table: absolute figures, and those relative to sorts after each load."""
    return [
        label,
        " / ".join(f"{count:.1f}" for count in result.opened[:-1]),
        f"{result.point:.1f}",
        f"{result.point / z.point:.2f}",
        f"{result.point / hilbert.point:.2f}",
        f"{result.opened[-1]:.1f}",
        f"{result.blocks:.0f}",
        f"{result.rewritten:.2f}",
        f"{result.rewritten / z.rewritten:.2f}",
        f"{result.rounds:.0f}" if result.rounds else "",
    ]


def table_ways(scale: Scale) -> None:
    """Three ways to plan, beside sorts of the whole table after each load; the curve is known from the beginning."""
    for dimensions in (2, 3):
        for name in WORKLOADS:
            baselines = {label: over_seeds(scale, name, dimensions, sorted_by(label)) for label in SORTS}
            z, hilbert = baselines["Iceberg's z-order"], baselines["Hilbert"]
            rows = [
                row(f"{label}, after each load", result, z, hilbert) for label, result in baselines.items()
            ]
            for depth in (4, 2):
                for way in WAYS:
                    result = over_seeds(scale, name, dimensions, reclustered(way, depth))
                    rows.append(row(f"depth {depth}, {way}", result, z, hilbert))
            markdown(f"{name}, {dimensions} columns", HEADINGS, rows)


def table_thresholds(scale: Scale) -> None:
    """What a threshold means: (a'), beside Hilbert of the whole table after each load."""
    rows = []
    depths = (1, 1.5, 2, 3, 4, 6, 8)
    for dimensions in (2, 3, 4):
        for name in WORKLOADS:
            hilbert = over_seeds(scale, name, dimensions, sorted_by("Hilbert"), 1)
            cells = []
            for depth in depths:
                result = over_seeds(scale, name, dimensions, reclustered("a'", depth), 1)
                cells.append(f"{result.point / hilbert.point:.2f} / {result.rewritten:.2f}")
            rows.append([name, str(dimensions), *cells])
    headings = ["workload", "columns", *(f"depth {depth}" for depth in depths)]
    markdown("blocks that a point opens, times Hilbert / rows rewritten", headings, rows)


def table_loads(scale: Scale) -> None:
    """Loads that come sorted along the curve, unsorted or sorted by a column, and whether they are runs; depth 4."""
    rows = []
    for dimensions in (2, 3):
        for name in WORKLOADS:
            for arrival in ("curve", "unsorted", "column 0", "column 1"):
                cells = []
                for runs in ("known", "unknown", "detected"):
                    result = over_seeds(scale, name, dimensions, reclustered("a'", 4, arrival, runs), 1)
                    cells.append(f"{result.point:.1f} / {result.opened[-1]:.1f} / {result.rewritten:.2f}")
                rows.append([name, str(dimensions), arrival, *cells])
    headings = ["workload", "columns", "sorted by", "runs", "no runs", "detected"]
    markdown("blocks that a point opens / a box / rows rewritten", headings, rows)


def table_drift(scale: Scale) -> None:
    """In order of time: the curve begins with the first load and is renewed."""
    rows = []
    for dimensions in (2, 3):
        hilbert = over_seeds(scale, "in order", dimensions, sorted_by("Hilbert"))
        for way, most in (
            ("a'", None),
            *(("a'", most) for most in (1e9, 1.05, 1.1, 1.15, 1.25, 1.5, 2.5)),
            ("true", 1.15),
        ):
            cells = []
            for depth in (2, 4, 6):
                result = over_seeds(scale, "in order", dimensions, reclustered(way, depth, most=most))
                columns = " / ".join(f"{count:.2f}" for count in result.opened[:-1] / hilbert.opened[:-1])
                cells.append(f"{columns}: {result.point / hilbert.point:.2f}, {result.rewritten:.2f}")
            renewal = "known" if most is None else "never" if most > 100 else f"{most:g}"
            rows.append([str(dimensions), way, renewal, f"{result.renewed:.0f}", *cells])
    headings = ["columns", "way", "renewed at", "renewals", *(f"depth {depth}" for depth in (2, 4, 6))]
    markdown("points of each column, times Hilbert: mean, rows rewritten", headings, rows)


def table_tpch(scale: Scale) -> None:
    """TPC-H lineitem in 20 loads, sorted along a curve that begins with the first load and is renewed."""
    for key in (("l_shipdate", "l_partkey"), ("l_orderkey", "l_suppkey")):
        columns = lineitem(_DIRECTORY, scale.lineitem, *key)
        rows = len(columns[0]) // 20 * 20
        loads = Loads([column[:rows] for column in columns], 20, int(20_000 * scale.lineitem))
        baselines = {label: sorted_by(label)(loads) for label in SORTS}
        z, hilbert = baselines["Iceberg's z-order"], baselines["Hilbert"]
        table = [row(f"{label}, after each load", result, z, hilbert) for label, result in baselines.items()]
        for depth in (4, 2):
            for way in ("a", "a'", "b"):
                result = loads.reclustered(way, depth, runs="detected", most=MOST_UNEVEN)
                table.append(row(f"depth {depth}, {way}", result, z, hilbert))
        markdown(f"lineitem, scale {scale.lineitem:g}, by {', '.join(key)}", HEADINGS, table)


TABLES: dict[str, Callable[[Scale], None]] = {
    "cuts": curve_tables.table_cuts,
    "parts": curve_tables.table_parts,
    "borders": curve_tables.table_borders,
    "ways": table_ways,
    "thresholds": table_thresholds,
    "rest": curve_tables.table_rest,
    "loads": table_loads,
    "stale": curve_tables.table_stale,
    "drift": table_drift,
    "boundaries": curve_tables.table_boundaries,
    "report": curve_tables.table_report,
    "tpch": table_tpch,
    "scale": curve_tables.table_scale,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--quick", action="store_true", help="one seed, fewer loads, smaller tables")
    options = parser.parse_args()
    scale = Scale.quick() if options.quick else Scale()
    for name in options.tables or TABLES:
        began = time.monotonic()
        print(f"## {name}\n\n{(TABLES[name].__doc__ or '').splitlines()[0]}\n")
        TABLES[name](scale)
        print(f"{name}: {time.monotonic() - began:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
