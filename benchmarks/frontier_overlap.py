"""Overlap that a plan removes, as a share of coverage and as a share of average depth.

    python benchmarks/frontier_overlap.py            # all workloads; writes benchmarks/results/overlap.json
    python benchmarks/frontier_overlap.py --quick    # 20 loads; writes nothing

`payback` works out from average depth, which counts blocks, the share of overlap that has to go. It takes that share of
the coverage, which counts units of the axis. This compares both shares for every plan, and the average depth after the
merge with the one that the share of coverage predicts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from workloads import BLOCK_ROWS, WORKLOADS, Table, simulate

from dbt_recluster.planner import Blocks, Plan, Policy, plan
from dbt_recluster.planner.arrays import Intervals

RESULTS = Path(__file__).parent / "results" / "overlap.json"
DEPTHS = [2, 3, 4, 6]


def average_depth(blocks: Blocks, policy: Policy) -> float:
    """Average depth of the candidates, as planning counts it."""
    return float(policy.candidates(blocks).cells().depths().mean())


def removable(intervals: Intervals, label: np.ndarray) -> int:
    """Units that go if the blocks of one label become disjoint; blocks in order, labels ascending."""
    start = np.flatnonzero(np.diff(label, prepend=-1))
    hull = np.maximum.reduceat(intervals.end, start) - np.minimum.reduceat(intervals.begin, start)
    return int(intervals.length.sum()) - int(hull.sum())


def removed_share(blocks: Blocks, planned: Plan, policy: Policy) -> float:
    """Share of the removable coverage that a plan removes."""
    eligible = policy.candidates(blocks)
    member = np.flatnonzero(eligible.cells().depths() > 1)
    intervals = eligible.units(member)
    set_of_block = np.full(len(blocks), -1)
    for number, block_set in enumerate(planned.block_sets):
        set_of_block[block_set.blocks] = number
    label = set_of_block[eligible.position[member]]
    merged = np.flatnonzero(label >= 0)
    merged = merged[np.argsort(label[merged], kind="stable")]
    everything = removable(intervals, intervals.components())
    return removable(intervals.take(merged), label[merged]) / everything


def measure(workload: str, loads: int) -> list[tuple[float, float, float]]:
    """Shares by units and by blocks, and actual to predicted average depth, for every plan."""
    figures: list[tuple[float, float, float]] = []
    for depth in DEPTHS:
        policy = Policy(depth=depth, block_rows=BLOCK_ROWS)

        def step(table: Table, policy: Policy = policy) -> None:
            while True:
                blocks = table.blocks()
                planned = plan(blocks, policy)
                if not planned.block_sets:
                    return
                units, before = removed_share(blocks, planned, policy), average_depth(blocks, policy)
                table.merge(planned)
                after = average_depth(table.blocks(), policy)
                predicted = 1 + (before - 1) * (1 - units)
                figures.append((units, (before - after) / (before - 1), after / predicted))

        simulate(workload, depth, step, loads, 0)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    every: list[tuple[float, float, float]] = []
    for workload in WORKLOADS:
        figures = measure(workload, 20 if options.quick else 100)
        every += figures
        if figures:
            ratio = np.array(figures)[:, 2]
            print(
                f"{workload:<34} {len(figures):>5} plans, actual / predicted depth "
                f"{ratio.min():.3f} to {ratio.max():.3f}",
                flush=True,
            )
    units, blocks, ratio = np.array(every).T
    result = {
        "plans": len(every),
        "correlation": float(np.corrcoef(units, blocks)[0, 1]),
        "actual to predicted depth": dict(
            zip(
                ("least", "5 %", "median", "95 %", "greatest"),
                np.quantile(ratio, [0, 0.05, 0.5, 0.95, 1]).tolist(),
                strict=True,
            )
        ),
    }
    print(json.dumps(result))
    if not options.quick:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
