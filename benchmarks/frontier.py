"""Write amplification against scan: every strategy, a full sort, and for uniform loads the optimum.

    python benchmarks/frontier.py            # all workloads; writes benchmarks/results/frontier.{json,png}
    python benchmarks/frontier.py --quick    # a few of them, short; writes nothing
    python benchmarks/frontier.py --only payback    # measures this one again, keeps the others' figures
    python benchmarks/frontier.py --only            # measures nothing, prints and draws what is stored
    python benchmarks/frontier.py --decay           # 100 against 1,000 uniform loads; writes results/decay.json

Scan is the mean number of blocks that a read of one random key opens. A strategy is a curve: one point for each
threshold. At a given scan it counts with the least write amplification of its points of equal or smaller scan.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import numpy as np
from optimum import optimum, optimum_at
from workloads import BLOCK_ROWS, WORKLOADS, Point, Table, simulate

from dbt_recluster.planner import Policy, block_depths, plan

RESULTS = Path(__file__).parent / "results" / "frontier.json"
THRESHOLDS = [1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 16]
SCANS = np.arange(1.5, 8.01, 0.5)
OURS = "payback"
# No write amplification below this is compared: whoever does nothing is as good.
LEAST = 0.05

Curves = dict[str, list[Point]]


def strategy(
    name: str, repeat: bool = True, max_blocks: int | None = None
) -> Callable[[float], Callable[[Table], None]]:
    """A step that plans and merges, once or until nothing is left to do."""

    def at(threshold: float) -> Callable[[Table], None]:
        policy = Policy(depth=threshold, strategy=name, block_rows=BLOCK_ROWS, max_blocks=max_blocks)

        def step(table: Table) -> None:
            while True:
                found = plan(table.blocks(), policy)
                if found.tasks:
                    table.merge(found)
                if not repeat or not found.tasks:
                    return

        return step

    return at


def full_sort(threshold: float) -> Callable[[Table], None]:
    """A step that rewrites the whole table when its average depth is above the threshold."""

    def step(table: Table) -> None:
        if block_depths(table.blocks()).mean() > threshold:
            table.merge_sets([(list(range(len(table.keys))), 0)])

    return step


# Strategies in two forms each, as a user can run them: once after each load, or until nothing is left to do.
STEPS: dict[str, Callable[[float], Callable[[Table], None]]] = {
    OURS: strategy("payback"),
    "payback, no level or run": strategy("payback"),
    "peak": strategy("peak"),
    "peak, once": strategy("peak", repeat=False),
    "above_average": strategy("above_average"),
    "above_average, once": strategy("above_average", repeat=False),
    "width": strategy("width", max_blocks=8),
    "width, once": strategy("width", repeat=False, max_blocks=8),
    "width, whole bucket": strategy("width"),
    "full sort": full_sort,
}
# The patent limits a set; without a limit its strategy is a different one, and a better one.
WHOLE = "width, whole bucket"
OTHERS = [name for name in STEPS if not name.startswith("payback")]


def best_at(points: list[Point], scan: float) -> float:
    """Least write amplification among points of at most this scan; infinite if there are none."""
    return min((point.write_amplification for point in points if point.scan <= scan), default=np.inf)


def ratios(curves: Curves, ours: str = OURS) -> list[float | None]:
    """Ours to the best of the others at each of `SCANS`; None where there is nothing to compare."""
    found: list[float | None] = []
    for scan in SCANS:
        other = min(best_at(curves[name], scan) for name in OTHERS if name in curves)
        mine = best_at(curves[ours], scan)
        found.append(mine / other if np.isfinite(mine) and LEAST < other < np.inf else None)
    return found


def geometric_mean(values: list[float | None]) -> float:
    """Of the values that are not None."""
    logs = [np.log(max(value, 1e-3)) for value in values if value is not None]
    return float(np.exp(np.mean(logs))) if logs else float("nan")


def measure(
    workloads: list[str], names: list[str], thresholds: list[float], loads: int, seed: int
) -> dict[str, Curves]:
    """All points of these strategies."""
    found: dict[str, Curves] = {}
    for workload in workloads:
        began = time.monotonic()
        found[workload] = {
            name: [
                simulate(
                    workload, threshold, STEPS[name](threshold), loads, seed, known="no level" not in name
                )
                for threshold in thresholds
            ]
            for name in names
        }
        print(f"{workload}: measured in {time.monotonic() - began:.0f} s", flush=True)
    return found


def print_table(curves: dict[str, Curves], best: list[tuple[float, float]]) -> None:
    """Write amplification at each scan, and the ratio of ours to the best of the others."""
    for workload, of in curves.items():
        print(f"\n{workload:<32}" + "".join(f"{scan:7.1f}" for scan in SCANS))
        for name, points in of.items():
            print(f"  {name:<30}" + "".join(f"{best_at(points, scan):7.2f}" for scan in SCANS))
        if workload == "uniform, sorted":
            print(f"  {'optimum':<30}" + "".join(f"{optimum_at(best, scan):7.2f}" for scan in SCANS))
        row = ratios(of)
        print(
            f"  {'ours / best of the others':<30}"
            + "".join("      -" if r is None else f"{r:7.2f}" for r in row)
        )
        print(
            f"  geometric mean {geometric_mean(row):.2f}, greatest {max((r for r in row if r), default=0):.2f}"
        )
    everything = [ratio for of in curves.values() for ratio in ratios(of)]
    print(
        f"\nover all: geometric mean {geometric_mean(everything):.3f}, "
        f"greatest {max((r for r in everything if r is not None), default=float('nan')):.2f}"
    )


def print_summary(curves: dict[str, Curves], best: list[tuple[float, float]]) -> None:
    """The same in short, as Markdown."""
    shown = [2.0, 3.0, 4.0, 6.0, 8.0]
    print(
        "\n| workload |"
        + "".join(f" scan {scan:.0f} |" for scan in shown)
        + " ratio | greatest | without whole buckets |"
    )
    print("|---" * (len(shown) + 4) + "|")
    everything: list[float | None] = []
    described: list[float | None] = []
    for workload, of in curves.items():
        cells = [
            f" {best_at(of[OURS], scan):.2f} / {min(best_at(of[name], scan) for name in OTHERS):.2f} |"
            for scan in shown
        ]
        row = ratios(of)
        without = ratios({name: points for name, points in of.items() if name != WHOLE})
        everything += row
        described += without
        greatest = max((ratio for ratio in row if ratio is not None), default=float("nan"))
        print(
            f"| {workload} |"
            + "".join(cells)
            + f" {geometric_mean(row):.2f} | {greatest:.2f} | {geometric_mean(without):.2f} |"
        )
    print(
        "| optimum for uniform loads |"
        + "".join(f" {optimum_at(best, scan):.2f} |" for scan in shown)
        + " | | |"
    )
    print(
        f"| all |{' |' * len(shown)} {geometric_mean(everything):.2f} "
        f"| {max(ratio for ratio in everything if ratio is not None):.2f} | {geometric_mean(described):.2f} |"
    )
    print("\nuniform, sorted: scan, write amplification, times the optimum of that many runs")
    for point in curves["uniform, sorted"][OURS]:
        if 1.5 <= point.scan <= 8:
            times = point.write_amplification / optimum_at(best, point.scan)
            print(
                f"  depth {point.threshold:>5}: {point.scan:.2f} {point.write_amplification:.2f} {times:.2f}"
            )


def decay() -> None:
    """Whether the curve after 1,000 uniform loads is the one after 100, as the optimum grows."""
    results = []
    for loads in (100, 1000):
        best = optimum(loads)
        for depth in (2, 3, 4, 6):
            found = simulate("uniform, sorted", depth, STEPS[OURS](depth), loads, 0)
            times = found.write_amplification / optimum_at(best, found.scan)
            results.append((loads, depth, found.scan, found.write_amplification, times))
            print(
                f"{loads} loads, depth {depth}: scan {found.scan:.2f}, "
                f"write amplification {found.write_amplification:.2f}, times the optimum {times:.2f}",
                flush=True,
            )
    RESULTS.with_name("decay.json").write_text(json.dumps(results) + "\n")


def draw(curves: dict[str, Curves], best: list[tuple[float, float]], path: Path) -> None:
    """One panel for each workload."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = -(-len(curves) // 4)
    figure, panels = plt.subplots(rows, 4, figsize=(18, 4 * rows), squeeze=False)
    colours = {OURS: "C3", "peak": "C0", "above_average": "C1", "width": "C2", "full sort": "0.5"}
    for panel, (workload, of) in zip(panels.flat, curves.items(), strict=False):
        for name, colour in colours.items():
            forms = [
                point
                for form in of
                if form.split(",")[0] == name and "no level" not in form
                for point in of[form]
            ]
            scans = np.arange(1.0, 9.0, 0.05)
            panel.plot(scans, [max(best_at(forms, scan), 0.01) for scan in scans], color=colour, label=name)
        if workload.startswith("uniform, sorted"):
            panel.plot(*zip(*best, strict=True), "k--", label="optimum")
        panel.set(
            title=workload,
            yscale="log",
            xlim=(1, 9),
            ylim=(0.01, 60),
            xlabel="scan",
            ylabel="write amplification",
        )
    for panel in list(panels.flat)[len(curves) :]:
        panel.axis("off")
    panels.flat[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=70)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--decay", action="store_true")
    parser.add_argument(
        "--only", nargs="*", choices=list(STEPS), help="strategies to measure; others from the JSON"
    )
    parser.add_argument("--workloads", nargs="*", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--loads", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS, help="JSON; the plot goes beside it")
    options = parser.parse_args()
    names = list(STEPS) if options.only is None else options.only
    if options.decay:
        decay()
        return
    if options.quick:
        workloads = ["uniform, sorted", "late 10 %, sorted", "tenants, unsorted"]
        print_table(measure(workloads, names, [1.5, 2, 3, 5, 8], 20, options.seed), optimum(20))
        return
    curves: dict[str, Curves] = {}
    if options.output.exists():
        stored = json.loads(options.output.read_text())["curves"]
        curves = {w: {n: [Point(*p) for p in points] for n, points in of.items()} for w, of in stored.items()}
    best = optimum(options.loads)
    for workload in options.workloads if names else []:
        fresh = measure([workload], names, THRESHOLDS, options.loads, options.seed)[workload]
        of = {**curves.get(workload, {}), **fresh}
        curves[workload] = {name: of[name] for name in STEPS if name in of}
        options.output.parent.mkdir(exist_ok=True)
        stored = {
            w: {n: [astuple(p) for p in points] for n, points in of.items()} for w, of in curves.items()
        }
        content = {"loads": options.loads, "seed": options.seed, "optimum": best, "curves": stored}
        options.output.write_text(json.dumps(content, indent=None, separators=(",", ":")) + "\n")
    print_table(curves, best)
    print_summary(curves, best)
    draw(curves, best, options.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
