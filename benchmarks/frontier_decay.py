"""Decay: the curve of `payback` after 1,000 loads against its curve after 100.

    python benchmarks/frontier_decay.py            # writes benchmarks/results/decay.json
    python benchmarks/frontier_decay.py --quick    # 20 against 100 loads; writes nothing

For uniform loads the least work for a mean number of sorted runs is known, and the figure is the work of `payback` as a
multiple of it. The optimal schedule knows the last load in advance. `payback` does not, and may have made a large merge
just before it. So the figure is also given as a mean over several last loads, evenly spaced from half of the loads to
all of them: 21 for 100 loads, 6 for 1,000. Other workloads have no known optimum. Their work may grow as the optimum
for uniform loads does between the same scans.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from frontier import STEPS
from frontier_report import OURS
from optimum import optimum, optimum_at
from workloads import simulate_by_load

RESULTS = Path(__file__).parent / "results" / "decay.json"
DEPTHS = [2, 3, 4, 5, 6, 7, 8, 12]
OTHERS = [
    "late 10 %, sorted",
    "late 10 % by a few loads, sorted",
    "hot range, sorted",
    "backlog, sorted",
    "tenants, sorted",
]


def times_optimum(
    scans: np.ndarray, work: np.ndarray, best: dict[int, list[tuple[float, float]]]
) -> list[float]:
    """Work as a multiple of the optimum of as many runs, at each last load."""
    return [float(work[end - 1] / optimum_at(best[end], float(scans[:end].mean()))) for end in best]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    few, many = (20, 100) if options.quick else (100, 1000)
    best = {
        loads: {end: optimum(end) for end in np.linspace(loads // 2, loads, ends).astype(int).tolist()}
        for loads, ends in ((few, 21), (many, 6))
    }
    results: dict[str, list[list[float]]] = {"uniform": [], "others": []}
    for depth in DEPTHS:
        for seed in options.seeds if depth in (2, 3, 4, 6, 8) else options.seeds[:1]:
            scans, work = simulate_by_load("uniform, sorted", STEPS[OURS](depth), many, seed)
            for loads in (few, many):
                times = times_optimum(scans, work, best[loads])
                row = [loads, depth, seed, float(scans[:loads].mean()), float(work[loads - 1]), times[-1]]
                results["uniform"].append([*row, float(np.mean(times)), max(times)])
                print(
                    f"uniform, {loads} loads, depth {depth}, seed {seed}: scan {row[3]:.2f}, write amplification "
                    f"{row[4]:.2f}, times the optimum {times[-1]:.2f}, over the ends {np.mean(times):.2f}, "
                    f"at most {max(times):.2f}",
                    flush=True,
                )
    for number, workload in enumerate(OTHERS):
        for depth in (2, 4):
            figures = []
            for loads in (few, many):
                scans, work = simulate_by_load(workload, STEPS[OURS](depth), loads, options.seeds[0])
                figures.append((float(scans.mean()), float(work[-1])))
            before, after = figures
            grown = optimum_at(best[many][many], after[0]) / optimum_at(best[few][few], before[0])
            results["others"].append([number, depth, *before, *after, grown])
            print(
                f"{workload}, depth {depth}: scan {before[0]:.2f} and {after[0]:.2f}, write amplification "
                f"{before[1]:.2f} and {after[1]:.2f}, {after[1] / before[1]:.2f} times; "
                f"the optimum of these scans {grown:.2f} times",
                flush=True,
            )
    if not options.quick:
        RESULTS.write_text(json.dumps({**results, "workloads": OTHERS}) + "\n")


if __name__ == "__main__":
    main()
