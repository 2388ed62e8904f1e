"""Time and memory of the planner against the number of blocks.

    python benchmarks/planner_scale.py            # 10^4 to 10^7 blocks
    python benchmarks/planner_scale.py --quick    # up to 10^5

Times are processor seconds, the least of several repeats. Ratios are to ``np.argsort(kind="stable")`` on the 2n bounds,
measured right before in the same process. Memory is the most that NumPy held at once during the call, in addition to
the blocks themselves.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import command
import numpy as np

from dbt_recluster.planner import STRATEGIES, Blocks, Policy, Reads, clustering_information, plan


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Least processor time of repeated calls."""
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return best


def peak_bytes(call: Callable[[], object]) -> int:
    """Most memory allocated at once during a call, in addition to memory allocated before it."""
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def bounds(blocks: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six sorted runs of descending size over one domain, in random order: lower, upper, level."""
    parts, levels = np.array([0.7, 0.2, 0.05, 0.025, 0.0125, 0.0125]), [12, 6, 3, 1, 0, 0]
    lower, upper, level = [], [], []
    for part, run_level in zip((parts * blocks).astype(int), levels, strict=True):
        ends = np.sort(random.random(part + 1))
        lower.append(ends[:-1])
        upper.append(ends[1:])
        level.append(np.full(part, run_level))
    order = random.permutation(sum(map(len, level)))
    return np.concatenate(lower)[order], np.concatenate(upper)[order], np.concatenate(level)[order]


def measure(blocks: int, repeats: int) -> dict[str, float]:
    """Measure all figures for one number of blocks."""
    random = np.random.default_rng(blocks)
    lower, upper, level = bounds(blocks, random)
    rows = np.full(len(lower), 1_000_000)
    ends = np.concatenate([lower, upper])
    sort = seconds(lambda: np.argsort(ends, kind="stable"), repeats)
    figures: dict[str, float] = {"blocks": len(lower), "argsort_seconds": sort}

    def add(name: str, call: Callable[[], object]) -> None:
        figures[f"{name}_ratio"] = seconds(call, repeats) / sort
        figures[f"{name}_bytes_per_block"] = peak_bytes(call) / len(lower)

    # Nine of ten reads in a tenth of the keys.
    at = random.random(10_000)
    at[1000:] = 0.4 + at[1000:] / 10
    build = partial(Blocks.build, lower, upper, rows=rows, level=level)
    build_with_reads = partial(build, reads=Reads(at, at + 0.01))
    add("build", build)
    table = build()
    add("information", lambda: clustering_information(table))
    for name in STRATEGIES:
        add(name, partial(plan, table, Policy(depth=4, strategy=name)))
    add("build_with_reads", build_with_reads)
    add("plan_with_reads", partial(plan, build_with_reads(), Policy(depth=2)))
    return figures


def main() -> None:
    parser = command.parser(__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    results = []
    for blocks in (10**4, 10**5) if options.quick else (10**4, 10**5, 10**6, 10**7):
        results.append(measure(blocks, 1 if options.quick else 3 if blocks > 10**6 else 5))
        print(f"{blocks} blocks: measured", flush=True)
    for name in results[0]:
        print(f"{name:<32}" + "".join(f"{figures[name]:>14,.8g}" for figures in results))
    command.save(options, {"scale": results})


if __name__ == "__main__":
    main()
