"""Write amplification against scan, for every strategy, a full sort, and the optimum for uniform loads.

    python benchmarks/frontier.py            # all workloads; writes benchmarks/results/frontier.{json,png}
    python benchmarks/frontier.py --loads 20 --seeds 0 --workloads "uniform, sorted" --json /tmp/short.json
    python benchmarks/frontier.py --seeds 1 2         # measures these seeds, keeps the figures of others
    python benchmarks/frontier.py --only payback      # measures this strategy again, keeps the others' figures
    python benchmarks/frontier.py --only              # measures nothing, prints and draws the stored figures

Scan is the mean number of blocks that a read of one random key opens. A strategy is a curve with one point for each
threshold. At a given scan it counts with the least write amplification of its points of equal or smaller scan.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import command
import numpy as np
from workloads import BLOCK_ROWS, WORKLOADS, Point, Table, best_at, full_sort, simulate

from dbt_recluster.planner import Policy, plan

RESULTS = Path(__file__).parent / "results" / "frontier.json"
THRESHOLDS = [1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 16]
SCANS = np.arange(1.5, 8.01, 0.5)
OURS = "payback"
UNKNOWN = f"{OURS}, no level or run"
# The patent limits a set. Without a limit its strategy is a different one, and a better one.
WHOLE = "width, whole bucket"
# Below this write amplification nothing is compared: a strategy that does nothing would be as good.
LEAST = 0.05

# Points by strategy; then by workload; then by seed.
Strategies = dict[str, list[Point]]
Curves = dict[int, dict[str, Strategies]]


def strategy(
    name: str, repeat: bool = True, blocks_of_set: int | None = None, with_reads: bool = False
) -> Callable[[float], Callable[[Table], None]]:
    """Return a step that plans and merges, once or until the plan is empty, with limited sets or not."""

    def at(threshold: float) -> Callable[[Table], None]:
        policy = Policy(depth=threshold, strategy=name, block_rows=BLOCK_ROWS, max_merge_blocks=blocks_of_set)

        def step(table: Table) -> None:
            while True:
                next_plan = plan(table.blocks(reads=table.reads if with_reads else None), policy)
                table.merge(next_plan)
                if not repeat or not next_plan.block_sets:
                    return

        return step

    return at


# The strategies of the sources run in two forms, as a user can run them: once after a load, or until the plan is empty.
STEPS: dict[str, Callable[[float], Callable[[Table], None]]] = {
    OURS: strategy("payback"),
    UNKNOWN: strategy("payback"),
    "peak": strategy("peak"),
    "peak, once": strategy("peak", repeat=False),
    "above_average": strategy("above_average"),
    "above_average, once": strategy("above_average", repeat=False),
    "width": strategy("width", blocks_of_set=8),
    "width, once": strategy("width", repeat=False, blocks_of_set=8),
    "width, whole bucket": strategy("width"),
    "full sort": full_sort,
}


def measure(workload: str, names: list[str], loads: int, seed: int) -> Strategies:
    """Measure the curves of these strategies."""
    began = time.monotonic()
    curves = {
        name: [
            simulate(workload, threshold, STEPS[name](threshold), loads, seed, known=name != UNKNOWN)
            for threshold in THRESHOLDS
        ]
        for name in names
    }
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
    """Lower convex hull of the figures that any schedule of merges can reach.

    Args:
        loads: Number of loads, all of one size.
        prices: Number of prices to try.

    Returns:
        (mean number of runs, rows rewritten for each row loaded), ascending by runs.
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


def best_other(strategies: Strategies, scan: float, whole: bool = True) -> float:
    """Least write amplification of all strategies but ours."""
    others = [name for name in strategies if not name.startswith(OURS) and (whole or name != WHOLE)]
    return min((best_at(strategies[name], scan) for name in others), default=np.inf)


def ratios(strategies: Strategies, whole: bool = True) -> list[float]:
    """Ours to the best of the others at those of `SCANS` where there is something to compare."""
    pairs = [(best_at(strategies[OURS], scan), best_other(strategies, scan, whole)) for scan in SCANS]
    return [mine / other for mine, other in pairs if np.isfinite(mine) and LEAST < other < np.inf]


def geometric_mean(values: list[float]) -> float:
    """Geometric mean; NaN without values."""
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-3))))) if values else float("nan")


def greatest(values: list[float]) -> float:
    """Greatest value; NaN without values."""
    return max(values, default=float("nan"))


def compared(curves: Curves, workload: str) -> list[Strategies]:
    """A workload's curves for the seeds with which the other strategies have been measured too."""
    measured = [workloads[workload] for workloads in curves.values() if workload in workloads]
    return [strategies for strategies in measured if any(not name.startswith(OURS) for name in strategies)]


def shown(value: float) -> str:
    """Two decimals, or a dash where there is nothing to show."""
    return f"{value:.2f}" if np.isfinite(value) else "-"


def print_summary(curves: Curves, best: list[tuple[float, float]]) -> None:
    """Print a summary as Markdown, and the figures beside it."""
    scans = [2.0, 3.0, 4.0, 6.0, 8.0]
    print(f"\nMeans over seeds {', '.join(map(str, curves))}; the worst is over all scans and seeds\n")
    rows: list[list[str]] = []
    pooled: list[list[float]] = [[], []]
    for workload in next(iter(curves.values())):
        seeds = compared(curves, workload)
        if not seeds:
            continue
        own = [[ratio for each in seeds for ratio in ratios(each, whole)] for whole in (True, False)]
        for values, more in zip(pooled, own, strict=True):
            values += more
        ours = [float(np.mean([best_at(each[OURS], scan) for each in seeds])) for scan in scans]
        others = [float(np.mean([best_other(each, scan) for each in seeds])) for scan in scans]
        cells = [f"{shown(mine)} / {shown(other)}" for mine, other in zip(ours, others, strict=True)]
        rows.append([workload, *cells, *_figures(*own)])
    optima = [f"{optimum_at(best, scan):.2f}" for scan in scans]
    rows.append(["optimum for uniform loads", *optima, *[""] * 4])
    rows.append(["all", *[""] * len(scans), *_figures(*pooled)])
    columns = [*(f"scan {scan:.0f}" for scan in scans), "ratio", "worst", "without whole buckets", "worst"]
    command.markdown(["workload", *columns], rows)
    print_seeds(curves)
    print_bound(curves, best)
    print_unknown(curves)
    print_thresholds(curves)


def _figures(*rows: list[float]) -> list[str]:
    """Geometric mean and greatest of each row, as cells of a table."""
    return [shown(figure(row)) for row in rows for figure in (geometric_mean, greatest)]


def print_seeds(curves: Curves) -> None:
    """Print the ratio of ours to the best of the others by seed."""
    for seed, workloads in curves.items():
        with_whole, without_whole = (
            geometric_mean([ratio for each in workloads.values() for ratio in ratios(each, whole)])
            for whole in (True, False)
        )
        print(f"seed {seed}: {with_whole:.3f}, without whole buckets {without_whole:.3f}")


def print_bound(curves: Curves, best: list[tuple[float, float]]) -> None:
    """Print ours and the optimum against the best of the others, for uniform loads."""
    for whole in (True, False):
        bound: list[float] = []
        ours: list[float] = []
        for strategies in compared(curves, "uniform, sorted"):
            ours += ratios(strategies, whole)
            others = [(scan, best_other(strategies, scan, whole)) for scan in SCANS]
            bound += [optimum_at(best, scan) / other for scan, other in others if other > LEAST]
        print(
            f"uniform, sorted, {'with' if whole else 'without'} whole buckets: "
            f"ours {geometric_mean(ours):.2f}, at most {greatest(ours):.2f}; "
            f"the optimum {geometric_mean(bound):.2f}, at most {greatest(bound):.2f}"
        )


def print_unknown(curves: Curves) -> None:
    """Print the work of ours without levels and runs as a multiple of the work with them, at equal scan."""
    values: dict[str, list[float]] = {}
    for workloads in curves.values():
        for workload, strategies in workloads.items():
            for scan in SCANS[SCANS >= 2]:
                work, known = (best_at(strategies.get(name, []), scan) for name in (UNKNOWN, OURS))
                if known > LEAST and np.isfinite(work):
                    values.setdefault(workload, []).append(work / known)
    if values:
        means = {workload: geometric_mean(ratios) for workload, ratios in values.items()}
        everything = geometric_mean([ratio for ratios in values.values() for ratio in ratios])
        low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        print(
            f"\nwithout level and run: {everything:.3f} times the work, "
            f"from {means[low]:.3f} ({low}) to {means[high]:.3f} ({high})"
        )


def print_thresholds(curves: Curves) -> None:
    """Print mean scan / write amplification over seeds at each threshold, as Markdown."""
    thresholds = [1.5, 2, 3, 4, 6, 8, 12]
    rows = []
    for workload in next(iter(curves.values())):
        curves_of_seeds = [
            workloads[workload][OURS] for workloads in curves.values() if workload in workloads
        ]
        cells = []
        for threshold in thresholds:
            points = [point for curve in curves_of_seeds for point in curve if point.threshold == threshold]
            _, scan, work = np.mean(points, axis=0) if points else [np.nan] * 3
            cells.append(f"{scan:.2f} / {work:.2f}")
        rows.append([workload, *cells])
    command.markdown(["workload", *(f"depth {threshold:g}" for threshold in thresholds)], rows)


def draw(curves: Curves, best: list[tuple[float, float]], path: Path) -> None:
    """Draw one panel for each workload, with means over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    workloads = list(next(iter(curves.values())))
    rows = -(-len(workloads) // 4)
    figure, panels = plt.subplots(rows, 4, figsize=(18, 4 * rows), squeeze=False)
    colours = {OURS: "C3", "peak": "C0", "above_average": "C1", "width": "C2", "full sort": "0.5"}
    scans = np.arange(1.0, 9.0, 0.05)
    for panel, workload in zip(panels.flat, workloads, strict=False):
        for name, colour in colours.items():
            panel.plot(scans, _mean_curve(curves, workload, name, scans), color=colour, label=name)
        if workload == "uniform, sorted":
            panel.plot(*zip(*best, strict=True), "k--", label="optimum")
        panel.set(
            title=workload,
            yscale="log",
            xlim=(1, 9),
            ylim=(0.01, 60),
            xlabel="scan",
            ylabel="write amplification",
        )
    for panel in list(panels.flat)[len(workloads) :]:
        panel.axis("off")
    panels.flat[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=70)


def _mean_curve(curves: Curves, workload: str, name: str, scans: np.ndarray) -> np.ndarray:
    """Write amplification of a strategy's best form at each scan, as a mean over seeds."""
    lines = []
    for workloads in curves.values():
        forms = [
            point
            for form, points in workloads.get(workload, {}).items()
            if form.split(",")[0] == name and "no level" not in form
            for point in points
        ]
        lines.append([max(best_at(forms, scan), 0.01) for scan in scans])
    mean: np.ndarray = np.mean(lines, axis=0)
    return mean


def main() -> None:
    """Measure what is asked for, store it, print and draw everything stored."""
    parser = command.parser(__doc__)
    parser.add_argument("--only", nargs="*", choices=list(STEPS), help="strategies to measure; default all")
    parser.add_argument("--workloads", nargs="*", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--loads", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.set_defaults(json=str(RESULTS))
    options = parser.parse_args()
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
    complete = {
        seed: workloads
        for seed, workloads in curves.items()
        if all(OURS in strategies for strategies in workloads.values())
    }
    print_summary(complete, best)
    draw(complete, best, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
