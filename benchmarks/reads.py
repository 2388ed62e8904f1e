"""Rewriting against what queries waste, with reads known to the planner and without.

    python benchmarks/reads.py
    python benchmarks/reads.py --seeds 5 --shapes months even

A query opens blocks; *excess* is how many more than the full blocks that its rows would make. Loads arrive, queries
follow, and the planner knows those of the last loads. Each strategy is a curve with a point for each threshold, which
counts at a given excess with the least rewriting of its points of equal or smaller excess.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import command
import numpy as np
from competitors import Step, boundary, full_sort, strategy
from workloads import BLOCK_ROWS, LOAD_ROWS, FloatArray, Point, Table, best_at

from dbt_recluster.planner import Reads

Ranges = tuple[FloatArray, FloatArray]
THRESHOLDS = [1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 12, 16, 24]
# Queries after each load, and loads whose queries are known.
QUERIES, WINDOW = 40, 10


def hot(random: np.random.Generator, _: float) -> Ranges:
    """Nine of ten ranges lie in a tenth of the keys."""
    return _short(random, 0.45)


def moving(random: np.random.Generator, at: float) -> Ranges:
    """The same, and that tenth moves over all keys."""
    return _short(random, 0.9 * at)


def even(random: np.random.Generator, _: float) -> Ranges:
    """Ranges of up to a hundredth of the keys, anywhere."""
    middle, width = random.random(QUERIES), 0.01 * random.random(QUERIES)
    return middle - width / 2, middle + width / 2


def months(random: np.random.Generator, _: float) -> Ranges:
    """One to three whole months of a year."""
    first, count = random.integers(0, 12, QUERIES), random.integers(1, 4, QUERIES)
    return first / 12, np.minimum(first + count, 12) / 12


def latest(random: np.random.Generator, at: float) -> Ranges:
    """The last one to five loads; the last unit of time is that of the last load."""
    return at - random.integers(1, 6, QUERIES), np.full(QUERIES, at)


def _short(random: np.random.Generator, start: float) -> Ranges:
    middle, width = random.random(QUERIES), 0.01 * random.random(QUERIES)
    is_hot = random.random(QUERIES) < 0.9
    middle[is_hot] = start + 0.1 * random.random(int(is_hot.sum()))
    return middle - width / 2, middle + width / 2


SHAPES = {shape.__name__: shape for shape in (hot, moving, latest, months, even)}


def loads_of(shape: str, random: np.random.Generator, loads: int) -> Iterator[FloatArray]:
    """Keys of each load: over all keys, or in order of time with 10 % late."""
    for t in range(loads):
        keys = random.random(LOAD_ROWS)
        if shape == "latest":
            is_late = (random.random(LOAD_ROWS) < 0.1) & (t > 0)
            keys = np.where(is_late, keys * t, keys + t)
        yield keys


STEPS: dict[str, Callable[[float], Step]] = {
    "with reads": strategy("payback", with_reads=True),
    "without": strategy("payback"),
    "WAIR": boundary,
    "full sort": full_sort,
}


def simulate(shape: str, name: str, threshold: float, loads: int, seed: int) -> Point:
    """Load, recluster and read in turn; the scan is the mean excess."""
    random, queries = np.random.default_rng(seed), np.random.default_rng(seed + 1000)
    table, excess, seen, step = Table(), [], list[Ranges](), STEPS[name](threshold)
    for t, keys in enumerate(loads_of(shape, random, loads)):
        table.load(keys)
        step(table)
        seen.append(SHAPES[shape](queries, t + 1.0 if shape == "latest" else (t + 1) / loads))
        excess.append(mean_excess(table, *seen[-1]))
        table.reads = Reads(*(np.concatenate(ends) for ends in zip(*seen[-WINDOW:], strict=True)))
    return Point(threshold, float(np.mean(excess)), table.rewritten / table.loaded)


def mean_excess(table: Table, lower: FloatArray, upper: FloatArray) -> float:
    """Blocks that the mean query opens beyond the full blocks that its rows would make."""
    rows = np.sort(np.concatenate(table.keys))
    needed = (np.searchsorted(rows, upper, "right") - np.searchsorted(rows, lower)) / BLOCK_ROWS
    return float((table.opened(lower, upper) - needed).mean())


def ratio(ours: list[Point], theirs: list[Point]) -> tuple[float, float]:
    """Geometric mean, and worst, of our rewriting over theirs at the excess of their points and between."""
    least = max(min(point.scan for point in points) for points in (ours, theirs))
    most = min(max(point.scan for point in points) for points in (ours, theirs))
    ratios = [
        best_at(ours, at) / best_at(theirs, at) for at in np.geomspace(least, most, 25) if best_at(theirs, at) >= 0.05
    ]
    return float(np.exp(np.mean(np.log(np.maximum(ratios, 0.01))))), max(ratios)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print all curves."""
    figures: dict[str, Any] = {}
    for shape in options.shapes:
        for seed in options.seeds:
            curves = {
                name: [simulate(shape, name, threshold, options.loads, seed) for threshold in THRESHOLDS]
                for name in STEPS
            }
            figures[f"{shape}, {seed}"] = curves
            print(f"{shape}, seed {seed}: measured", flush=True)
    ours, *others = STEPS
    rows = []
    for shape in options.shapes:
        curves = [figures[f"{shape}, {seed}"] for seed in options.seeds]
        found = [[ratio(each[ours], each[name]) for each in curves] for name in others]
        cells = [(float(np.exp(np.mean(np.log([mean for mean, _ in of])))), max(of)[1]) for of in found]
        rows.append([shape, *(f"{mean:.2f}, worst {worst:.2f}" for mean, worst in cells)])
    command.markdown(["reads", *(f"over {name}" for name in others)], rows)
    return figures


def main() -> None:
    """Measure, print, save."""
    parser = command.parser(__doc__)
    parser.add_argument("--loads", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    options = parser.parse_args()
    command.save(options, measure(options))


if __name__ == "__main__":
    main()
