"""What larger blocks cost rewriting and save reads, at equal loads: the workloads of benchmarks/frontier.py.

    python benchmarks/block_rows.py                  # 60 loads: three minutes
    python benchmarks/block_rows.py --loads 100 --seeds 0 1

A load is eight files of 64 rows, whatever the blocks that a merge writes. Row groups stay as they are, so in each block
over its key a read of one key opens one row group: `scan` is that number, the mean over all loads and workloads. After
each load there is one round of payback at the threshold. `instead` is the scan that today's blocks, 1 x, come to with
as many rows rewritten, interpolated between thresholds.
"""

from __future__ import annotations

import numpy as np
from command import parser, save
from workloads import BLOCK_ROWS, WORKLOADS, FloatArray, Table, simulate_by_load

from dbt_recluster.planner import Policy, plan
from dbt_recluster.text import table as text_table

SIZES = (1, 2, 4, 8)


def measure(workload: str, size: int, depth: float, loads: int, seed: int) -> tuple[float, float]:
    """Return rows rewritten for each row loaded, and scan."""
    policy = Policy(depth=depth, block_rows=size * BLOCK_ROWS)

    def step(table: Table) -> None:
        table.merge(plan(table.blocks(), policy))

    scans, work = simulate_by_load(workload, step, loads, seed, block_rows=size * BLOCK_ROWS)
    return float(work[-1]), float(scans.mean())


def instead(rewritten: float, today: FloatArray) -> float:
    """Return the scan of today's blocks at this rewriting: float64 (thresholds, 2) of rewriting and scan."""
    at, scan = np.log(today[np.argsort(today[:, 0])].T)
    return float(np.exp(np.interp(np.log(rewritten), at, scan)))


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--loads", type=int, default=60)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments.add_argument("--depths", type=float, nargs="+", default=[1.5, 2, 3, 4, 8])
    arguments.add_argument("--workloads", nargs="*", choices=WORKLOADS, default=WORKLOADS)
    options = arguments.parse_args()
    found = {}
    for size in SIZES:
        for depth in options.depths:
            runs = [
                measure(w, size, depth, options.loads, seed)
                for w in options.workloads
                for seed in options.seeds
            ]
            found[size, depth] = np.mean(runs, axis=0)
            print(f"{size} x, threshold {depth:g}: {found[size, depth].round(2)}", flush=True)
    today = np.array([found[1, depth] for depth in options.depths])
    lines = [
        (f"{depth:g}", f"{size} x", f"{rewritten:.2f}", f"{scan:.2f}", f"{instead(rewritten, today):.2f}")
        for (size, depth), (rewritten, scan) in found.items()
    ]
    print(text_table(("threshold", "blocks", "rewritten", "scan", "instead"), lines))
    save(options, {"means": {f"{size} x, {depth:g}": list(mean) for (size, depth), mean in found.items()}})


if __name__ == "__main__":
    main()
