"""Daily loads of events with late rows under hilbert(user, day), in the simulator of curve_layout.py.

Each load brings a day, and 3 % of its rows are of days before; users are skewed. One recluster follows each load.
Prints means over the second half of the loads: rows rewritten for each row loaded; blocks that a day, a user, and a box
of 1 % of the users and one day open; the first two multiplied; and the most rows rewritten after one load. Beside it:
the table cut at once after each load, into boxes or evenly along a curve of ranks, and Iceberg's z-order after every
fifth load.

Usage: events.py [--loads 20] [--depths 8,4,3,2] [--sorted] [--seeds 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from curve_layout import FloatArray, IntArray, Queries, Table, along, arrow, in_boxes, z_order

from dbt_recluster.key.curve import Curve

ROWS, BLOCK_ROWS = 30_000, 6_000
QUERIES = 300
# Loads between two z-orders.
EVERY = 5

# Rows rewritten for each row loaded, and what users, days and boxes open, after each load.
After = tuple[float, FloatArray]


def events(loads: int, seed: int) -> list[IntArray]:
    """Users and days, row by row in the order of their arrival."""
    random = np.random.default_rng(seed)
    count = ROWS * loads
    user = (200_000 * random.random(count) ** 2).astype(np.int64)
    load = np.repeat(np.arange(loads), ROWS)
    is_late = (random.random(count) < 0.03) & (load > 0)
    return [user, np.where(is_late, (random.random(count) * load).astype(np.int64), load)]


def reclustered(columns: list[IntArray], loads: int, depth: float, is_sorted: bool) -> Iterator[After]:
    """Recluster after each load; loads arrive sorted along the curve as by dbt, or as they come."""
    table = Table(columns, BLOCK_ROWS)
    for load in range(loads):
        new = [column[load * ROWS : (load + 1) * ROWS] for column in columns]
        key = table.recorded.index_of_load(arrow(new)) if is_sorted and table.recorded else None
        table.load(ROWS, key)
        before = table.rewritten
        table.draw()
        table.recluster(depth)
        yield (table.rewritten - before) / ROWS, opened(table, load)


def at_once(columns: list[IntArray], loads: int, way: str) -> Iterator[After]:
    """Write the whole table after each load, or after every fifth one."""
    parts: list[IntArray] = []
    for load in range(loads):
        table = Table(columns, BLOCK_ROWS, loaded=(load + 1) * ROWS)
        rows = table.all_rows()
        is_written = way != "z-order" or load % EVERY == EVERY - 1
        if not is_written:
            parts = [*parts, *(load * ROWS + part for part in along(np.arange(ROWS), BLOCK_ROWS))]
        elif way == "boxes":
            parts = in_boxes(Curve.of(arrow(rows)), rows, BLOCK_ROWS, table.loaded)
        else:
            parts = along(
                z_order(rows) if way == "z-order" else Curve.of(arrow(rows)).index(arrow(rows)), BLOCK_ROWS
            )
        table.add(parts)
        yield is_written * table.loaded / ROWS, opened(table, load)


def opened(table: Table, load: int) -> FloatArray:
    """Blocks that a user, a day and a box open."""
    return Queries.of(table.all_rows(), QUERIES, seed=load).opened(table)


def report(label: str, runs: list[list[After]]) -> None:
    """Print a line: means of runs of several seeds."""
    late = [after for run in runs for after in run[len(run) // 2 :]]
    rewritten = [float(rows) for rows, _ in late]
    user, day, box = np.mean([reads for _, reads in late], axis=0)
    figures = f"{np.mean(rewritten):9.2f} {day:6.1f} {user:6.1f} {box:6.2f} {day * user:10.0f} {max(rewritten):6.1f}"
    print(f"{label:<24} {figures}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--depths", default="8,4,3,2")
    parser.add_argument("--sorted", action="store_true", help="loads arrive sorted along the curve")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    tables = [events(options.loads, seed) for seed in range(options.seeds)]
    print(f"{'':<24} {'rewritten':>9} {'day':>6} {'user':>6} {'box':>6} {'day x user':>10} {'most':>6}")
    for depth in map(float, options.depths.split(",")):
        runs = [list(reclustered(columns, options.loads, depth, options.sorted)) for columns in tables]
        report(f"depth {depth:g}", runs)
    for way, label in (
        ("boxes", "boxes at once"),
        ("curve", "curve at once"),
        ("z-order", "z-order, every 5 loads"),
    ):
        report(label, [list(at_once(columns, options.loads, way)) for columns in tables])


if __name__ == "__main__":
    main()
