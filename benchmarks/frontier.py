"""Write amplification against scan, for every strategy, for who else selects blocks, and the optimum for uniform loads.

    python benchmarks/frontier.py            # all workloads; writes benchmarks/results/frontier.json
    python benchmarks/frontier.py --loads 20 --seeds 0 --workloads "uniform, sorted" --json /tmp/short.json
    python benchmarks/frontier.py --seeds 1 2         # measures these seeds, keeps the figures of others
    python benchmarks/frontier.py --only payback      # measures this strategy again, keeps the others' figures
    python benchmarks/frontier.py --only              # measures nothing, prints the stored figures
    python benchmarks/frontier.py --only --scoreboard 7    # prints who rewrites least at each scan, and in total
    python benchmarks/frontier.py --tpch 0.2 --loads 20    # prints rows rewritten and blocks opened of lineitem

Scan is the mean number of blocks that a read of one random key opens. A strategy is a curve with one point for each
threshold. At a given scan it counts with the least write amplification of its points of equal or smaller scan.
Forms of a strategy, "peak" and "peak, once", count as one.

Total cost is blocks rewritten and opened for each load, at some reads of one key for each load. A policy counts with
its best setting for each rate and workload, known only in hindsight; `auto` chooses its own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import command
import numpy as np
import pyarrow.parquet as pq
from competitors import (
    Step,
    auto_depth,
    below_target,
    cubes,
    full_sort,
    level_bands,
    overlap_depth,
    paid_by_reads,
    strategy,
    tiers,
    universal,
)
from workloads import WORKLOADS, Point, Table, best_at, blocks_of_load, simulate

RESULTS = Path(__file__).parent / "results" / "frontier.json"
THRESHOLDS = [1, 1.25, 1.5, 1.6, 1.7, 1.75, 1.8, 1.9, 2, 2.25, 2.5, 2.75, 3, 3.5, *range(4, 9), 10, 12, 16, 32, 64, 128]
SCANS = np.arange(1.5, 8.01, 0.5)
OURS = "payback"
# Numbers of loads, for policies without a threshold.
LOADS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 33, 50, 100]
# Reads of one key for each load.
RATES = [0.1, 1, 10, 100, 1000]
AUTO = "auto"
# Below this write amplification nothing is compared: a strategy that does nothing would be as good.
LEAST = 0.05

# Points by strategy; then by workload; then by seed.
Strategies = dict[str, list[Point]]
Curves = dict[int, dict[str, Strategies]]


# The strategies of the sources run in two forms, as a user can run them: once after a load, or until the plan is empty.
# The patent of `width` limits a set; without a limit it is a strategy of ours, and a better one.
STEPS: dict[str, Callable[[float], Step]] = {
    OURS: strategy("payback"),
    "peak": strategy("peak"),
    "peak, once": strategy("peak", repeat=False),
    "above_average": strategy("above_average"),
    "above_average, once": strategy("above_average", repeat=False),
    "width": strategy("width", blocks_of_set=8),
    "width, once": strategy("width", repeat=False, blocks_of_set=8),
    "width of whole buckets": strategy("width"),
    "full sort": full_sort,
    "full sort, every few loads": below_target,
    "overlap depth": overlap_depth,
    "level bands": level_bands,
    "cubes": cubes,
    **{f"cubes, every {loads} loads": partial(cubes, every=loads) for loads in (2, 3, 4, 6, 8)},
    "below 3/4 of the target, every few loads": partial(below_target, target=0.75),
    "tiering": tiers,
    "lazy leveling": partial(tiers, lazy=True),
    "universal": universal,
    "paid by reads": paid_by_reads,
    AUTO: auto_depth,
}


BY_COUNT = ("overlap depth", "level bands", "tiering", "lazy leveling", "universal")


def parameters(name: str) -> list[float]:
    """Thresholds, or numbers of loads, to try."""
    integers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32]
    if name.startswith("cubes") or name.endswith("loads"):
        return LOADS
    if name in (AUTO, "paid by reads"):
        return RATES
    return integers[name in ("tiering", "lazy leveling") :] if name in BY_COUNT else THRESHOLDS


def measure(workload: str, names: list[str], loads: int, seed: int) -> Strategies:
    """Measure the curves of these strategies."""
    began = time.monotonic()
    curves = {name: [simulate(workload, at, STEPS[name](at), loads, seed) for at in parameters(name)] for name in names}
    print(f"{workload}, seed {seed}: measured in {time.monotonic() - began:.0f} s", flush=True)
    return curves


def stored(path: Path) -> Curves:
    """Read the stored curves, by seed, workload and strategy."""
    if not path.exists():
        return {}
    curves = json.loads(path.read_text())["curves"]
    return {
        int(seed): {
            workload: {name: [Point(*point) for point in points] for name, points in strategies.items()}
            for workload, strategies in workloads.items()
        }
        for seed, workloads in curves.items()
    }


def store(path: Path, curves: Curves, loads: int, best: list[tuple[float, float]]) -> None:
    """Write all curves."""
    path.parent.mkdir(exist_ok=True)
    content = {"loads": loads, "optimum": best, "curves": dict(sorted(curves.items()))}
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n")


def optimum(loads: int, prices: int = 60) -> list[tuple[float, float]]:
    """Lower convex hull of what any schedule of merges of equal loads can reach, by a number of prices of a run.

    Returns (mean number of runs, rows rewritten for each row loaded), ascending by runs.
    """
    return sorted({cheapest(loads, price) for price in np.geomspace(0.01, 2.0 * loads, prices)})


def cheapest(loads: int, price: float) -> tuple[float, float]:
    """Return the mean number of runs, and loads rewritten for each load, of the cheapest schedule at a price of a run.

    After each load a schedule decides how many of the youngest runs to merge. Let C(n) be the least cost of n loads on
    top of an older run, where a merge costs its rows and every run costs a price after each load. The oldest of these
    runs was last merged at some load s, when it held s loads. The n - s loads after it cost C(n - s). The least cost
    is found by dynamic programming over s, as in Mathieu, Staelin, Young and Yousefi, "Bigtable merge compaction"
    (2014), with a price for runs instead of a limit on them.
    """
    weight = np.array([price, 1.0])
    # Runs, added up over the loads, and loads rewritten: of n loads, and of those that end with a merge of them all.
    best, merged = np.zeros((loads + 1, 2)), np.zeros((loads + 1, 2))
    for n in range(1, loads + 1):
        if n > 1:
            earlier = np.arange(1, n)
            options = merged[earlier] + best[n - earlier - 1] + (0, n)
            merged[n] = options[(options @ weight).argmin()]
        last = np.arange(1, n + 1)
        options = merged[last] + best[n - last] + (n, 0)
        best[n] = options[(options @ weight).argmin()]
    runs, work = best[loads] / loads
    return float(runs), float(work)


def optimum_at(points: list[tuple[float, float]], scan: float) -> float:
    """Write amplification of the optimum at a mean number of runs.

    It is linear between two schedules, because switching from one to the other reaches about the points between them.
    """
    runs, work = zip(*points, strict=True)
    return float(np.interp(scan, runs, work))


def policies(strategies: Strategies) -> dict[str, list[Point]]:
    """The points of all forms of each strategy."""
    pooled: dict[str, list[Point]] = {}
    for name, points in strategies.items():
        pooled.setdefault(name.split(",")[0], []).extend(points)
    return pooled


def best_other(strategies: Strategies, scan: float) -> float:
    """Least write amplification of all strategies but ours."""
    others = [points for name, points in policies(strategies).items() if name not in (OURS, AUTO)]
    return min((best_at(points, scan) for points in others), default=np.inf)


def ratios(strategies: Strategies) -> list[float]:
    """Ours to the best of the others at those of `SCANS` where there is something to compare."""
    pairs = [(best_at(strategies[OURS], scan), best_other(strategies, scan)) for scan in SCANS]
    return [mine / other for mine, other in pairs if np.isfinite(mine) and LEAST < other < np.inf]


def geometric_mean(values: list[float]) -> float:
    """Geometric mean; NaN without values."""
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-3))))) if values else float("nan")


def shown(value: float) -> str:
    """Two decimals, or a dash where there is nothing to show."""
    return f"{value:.2f}" if np.isfinite(value) else "-"


def print_summary(curves: Curves, best: list[tuple[float, float]]) -> None:
    """Print a summary as Markdown, and the figures beside it."""
    scans = [2.0, 3.0, 4.0, 6.0, 8.0]
    print(f"\nMeans over seeds {', '.join(map(str, curves))}; the worst is over all scans and seeds\n")
    rows, pooled = list[list[str]](), list[float]()
    for workload in next(iter(curves.values())):
        seeds = [workloads[workload] for workloads in curves.values() if workload in workloads]
        own = [ratio for each in seeds for ratio in ratios(each)]
        pooled += own
        ours = [float(np.mean([best_at(each[OURS], scan) for each in seeds])) for scan in scans]
        others = [float(np.mean([best_other(each, scan) for each in seeds])) for scan in scans]
        cells = [f"{shown(mine)} / {shown(other)}" for mine, other in zip(ours, others, strict=True)]
        rows.append([workload, *cells, shown(geometric_mean(own)), shown(max(own, default=np.nan))])
    optima = [f"{optimum_at(best, scan):.2f}" for scan in scans]
    rows.append(["optimum for uniform loads", *optima, "", ""])
    rows.append(["all", *[""] * len(scans), shown(geometric_mean(pooled)), shown(max(pooled, default=np.nan))])
    command.markdown(["workload", *(f"scan {scan:.0f}" for scan in scans), "ratio", "worst"], rows)
    print_thresholds(curves)


def print_scoreboard(curves: Curves) -> None:
    """Print ours to each policy at each scan, as geometric means over workloads, and who is best there."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    for workloads in curves.values():
        for workload, strategies in workloads.items():
            for name, points in policies(strategies).items():
                pairs = [(best_at(strategies[OURS], scan), best_at(points, scan), scan) for scan in SCANS]
                ratios = [(a / b, scan, workload) for a, b, scan in pairs if LEAST < b < np.inf]
                found.setdefault(name, []).extend(ratios)
    scans = [1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    means = {
        name: [geometric_mean([ratio for ratio, at, _ in found[name] if at == scan]) for scan in scans]
        for name in found
    }
    rows = []
    for name, at_scans in means.items():
        worst, scan, workload = max(found[name], default=(np.nan, np.nan, "none"))
        everything = geometric_mean([ratio for ratio, *_ in found[name]])
        rows.append([name, *map(shown, [everything, *at_scans]), f"{worst:.2f} ({workload}, {scan:g})"])
    every = [strategies for workloads in curves.values() for strategies in workloads.values()]
    best = []
    for at, scan in enumerate(scans):
        pairs = [(best_at(strategies[OURS], scan), best_other(strategies, scan)) for strategies in every]
        won = [mine <= other for mine, other in pairs if other > LEAST]
        best.append(f"{max(means, key=lambda name, at=at: means[name][at])} ({sum(won)} of {len(won)})")
    rows.append([f"best on average (workloads where {OURS} is best)", "", *best, ""])
    print(f"\nOurs to each, seeds {', '.join(map(str, curves))}\n")
    command.markdown(["policy", "all scans", *(f"scan {scan:g}" for scan in scans), "worst"], rows)


def print_costs(curves: Curves) -> None:
    """Print our total cost to that of each policy at each rate of reads, as geometric mean / greatest."""
    measured = [(workload, strategies) for workloads in curves.values() for workload, strategies in workloads.items()]
    found: dict[str, list[list[float]]] = {}
    for rate in RATES:
        for workload, strategies in measured:
            costs = {
                name: {p.threshold: blocks_of_load(workload) * p.write_amplification + rate * p.scan for p in points}
                for name, points in policies(strategies).items()
            }
            auto, default = costs.pop(AUTO)[rate], costs[OURS][4]
            best = {name: min(of_policy.values()) for name, of_policy in costs.items()}
            ours = best.pop(OURS)
            ratios = {name: ours / cost for name, cost in best.items()}
            ratios["best depth, over the best other"] = ours / min(best.values())
            ratios["auto, over the best depth"] = auto / ours
            ratios["auto, over the best other"] = auto / min(best.values())
            ratios["depth 4, over the best depth"] = default / ours
            for name, ratio in ratios.items():
                found.setdefault(name, [[] for _ in RATES])[RATES.index(rate)].append(ratio)
    rows = [[name, *(f"{geometric_mean(of):.2f} / {max(of):.2f}" for of in rates)] for name, rates in found.items()]
    print(f"\nTotal cost of {OURS} at its best depth to that of each\n")
    command.markdown(["policy", *(f"{rate:g} reads a load" for rate in RATES)], rows)


def print_tpch(scale: float, loads: int, block_rows: int) -> None:
    """Print what policies make of lineitem, which arrives by order key and is clustered by ship date."""
    with command.own_directory("tpch") as directory:
        lines = pq.read_table(command.tpch(directory, scale, "lineitem") / "lineitem.parquet", columns=["l_shipdate"])
    keys = lines["l_shipdate"].cast("int32").to_numpy().astype(float)
    days = np.random.default_rng(1).choice(np.unique(keys), 100)
    steps = {
        "payback, depth 4": strategy("payback")(4),
        "Zamboni, after each load": below_target(1),
        "iceops, after each load": below_target(1, 0.75),
        "full sort, every 5 loads": below_target(5),
    }
    rows = []
    for name, step in steps.items():
        table, opened = Table(block_rows), []
        for load in np.array_split(keys, loads):
            table.load(load)
            step(table)
            opened.append(table.opened(days, days).mean())
        figures = (np.mean(opened), opened[-1], table.rewritten / table.loaded)
        rows.append([name, str(len(table.keys)), *map(shown, figures)])
    command.markdown(["policy", "blocks", "a day opens, mean", "at the end", "rows rewritten for each loaded"], rows)


def print_thresholds(curves: Curves) -> None:
    """Print mean scan / write amplification over seeds at each threshold, as Markdown."""
    thresholds = [1.5, 2, 3, 4, 6, 8, 12]
    rows = []
    for workload in next(iter(curves.values())):
        curves_of_seeds = [workloads[workload][OURS] for workloads in curves.values() if workload in workloads]
        cells = []
        for threshold in thresholds:
            points = [point for curve in curves_of_seeds for point in curve if point.threshold == threshold]
            _, scan, work = np.mean(points, axis=0) if points else [np.nan] * 3
            cells.append(f"{scan:.2f} / {work:.2f}")
        rows.append([workload, *cells])
    command.markdown(["workload", *(f"depth {threshold:g}" for threshold in thresholds)], rows)


def measure_all(options: argparse.Namespace) -> None:
    """Measure what is asked for, store it, and print what is stored."""
    path = Path(options.json)
    names = list(STEPS) if options.only is None else options.only
    curves = stored(path)
    best = optimum(options.loads)
    for seed in options.seeds if names else []:
        for workload in options.workloads:
            measured = measure(workload, names, options.loads, seed)
            workloads = curves.setdefault(seed, {})
            known = {**workloads.get(workload, {}), **measured}
            workloads[workload] = {name: known[name] for name in STEPS if name in known}
            curves[seed] = {name: workloads[name] for name in WORKLOADS if name in workloads}
            store(path, curves, options.loads, best)
    if options.scoreboard is None:
        print_summary(curves, best)
    else:
        chosen = {seed: curves[seed] for seed in options.scoreboard}
        print_scoreboard(chosen)
        print_costs(chosen)


def main() -> None:
    """Print policies on lineitem, or measure and print the workloads."""
    parser = command.parser(__doc__)
    parser.add_argument("--only", nargs="*", choices=list(STEPS), help="strategies to measure; default all")
    parser.add_argument("--workloads", nargs="*", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--loads", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--scoreboard", type=int, nargs="*", metavar="SEED", help="seeds of a table of all policies")
    parser.add_argument("--tpch", type=float, metavar="SCALE", help="print policies on lineitem of this scale instead")
    parser.add_argument("--block-rows", type=int, default=50_000, help="of --tpch")
    parser.set_defaults(json=str(RESULTS))
    options = parser.parse_args()
    if options.tpch:
        print_tpch(options.tpch, options.loads, options.block_rows)
    else:
        measure_all(options)


if __name__ == "__main__":
    main()
