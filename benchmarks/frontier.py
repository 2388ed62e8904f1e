"""Write amplification against scan, for every strategy, a full sort, and the optimum for uniform loads.

    python benchmarks/frontier.py            # all workloads; writes benchmarks/results/frontier.{json,png}
    python benchmarks/frontier.py --quick    # a few short workloads; writes nothing
    python benchmarks/frontier.py --seeds 1 2         # measures these seeds, keeps the figures of others
    python benchmarks/frontier.py --only payback      # measures this strategy again, keeps the others' figures
    python benchmarks/frontier.py --only              # measures nothing, prints and draws the stored figures

Scan is the mean number of blocks that a read of one random key opens. A strategy is a curve with one point for each
threshold. At a given scan it counts with the least write amplification of its points of equal or smaller scan.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from frontier_report import OURS, UNKNOWN, Curves, draw, optimum, print_summary
from workloads import BLOCK_ROWS, WORKLOADS, Point, Table, full_sort, simulate

from dbt_recluster.planner import Policy, plan

RESULTS = Path(__file__).parent / "results" / "frontier.json"
THRESHOLDS = [1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 16]


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


def measure(
    workload: str, names: list[str], thresholds: list[float], loads: int, seed: int
) -> dict[str, list[Point]]:
    """Measure the curves of these strategies."""
    began = time.monotonic()
    curves = {
        name: [
            simulate(workload, threshold, STEPS[name](threshold), loads, seed, known=name != UNKNOWN)
            for threshold in thresholds
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--only", nargs="*", choices=list(STEPS), help="strategies to measure; others from the JSON"
    )
    parser.add_argument("--workloads", nargs="*", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--loads", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--output", type=Path, default=RESULTS, help="JSON; the plot goes beside it")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    names = list(STEPS) if options.only is None else options.only
    if options.quick:
        workloads = ["uniform, sorted", "late 10 %, sorted", "tenants, unsorted"]
        quick = {0: {workload: measure(workload, names, [1.5, 2, 3, 5, 8], 20, 0) for workload in workloads}}
        print_summary(quick, optimum(20))
        return
    curves = stored(options.output)
    best = optimum(options.loads)
    for seed in options.seeds if names else []:
        for workload in options.workloads:
            measured = measure(workload, names, THRESHOLDS, options.loads, seed)
            workloads = curves.setdefault(seed, {})
            known = {**workloads.get(workload, {}), **measured}
            workloads[workload] = {name: known[name] for name in STEPS if name in known}
            curves[seed] = {name: workloads[name] for name in WORKLOADS if name in workloads}
            store(options.output, curves, options.loads, best)
    complete = {
        seed: workloads
        for seed, workloads in curves.items()
        if all(OURS in strategies for strategies in workloads.values())
    }
    print_summary(complete, best)
    draw(complete, best, options.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
