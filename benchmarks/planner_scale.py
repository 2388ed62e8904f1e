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


def measure(blocks: int, strategies: list[str], repeats: int) -> dict[str, object]:
    """Measure all figures for one number of blocks."""
    random = np.random.default_rng(blocks)
    lower, upper, level = bounds(blocks, random)
    rows = np.full(len(lower), 1_000_000)
    ends = np.concatenate([lower, upper])
    sort = seconds(lambda: np.argsort(ends, kind="stable"), repeats)
    build = seconds(lambda: Blocks.build(lower, upper, rows=rows, level=level), repeats)
    table = Blocks.build(lower, upper, rows=rows, level=level)
    figures: dict[str, object] = {
        "blocks": len(table),
        "argsort_seconds": sort,
        "build_ratio": build / sort,
        "information_ratio": seconds(lambda: clustering_information(table), repeats) / sort,
        "information_bytes_per_block": peak_bytes(lambda: clustering_information(table)) / len(table),
        "plan_ratio": {},
        "plan_bytes_per_block": {},
    }
    for name in strategies:
        policy = Policy(depth=4, strategy=name)
        figures["plan_ratio"][name] = seconds(lambda policy=policy: plan(table, policy), repeats) / sort  # type: ignore[index,misc]
        figures["plan_bytes_per_block"][name] = peak_bytes(lambda policy=policy: plan(table, policy)) / len(
            table
        )  # type: ignore[index,misc]
    # Payback with reads: nine of ten in a tenth of the keys.
    at = random.random(10_000)
    at[1000:] = 0.4 + at[1000:] / 10
    reads = Reads(at, at + 0.01)
    figures["build_with_reads_ratio"] = (
        seconds(lambda: Blocks.build(lower, upper, rows=rows, level=level, reads=reads), repeats) / sort
    )
    known, policy = Blocks.build(lower, upper, rows=rows, level=level, reads=reads), Policy(depth=2)
    figures["plan_with_reads_ratio"] = seconds(lambda: plan(known, policy), repeats) / sort
    figures["plan_with_reads_bytes_per_block"] = peak_bytes(lambda: plan(known, policy)) / len(known)
    return figures


def main() -> None:
    parser = command.parser(__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    print(f"{'blocks':>9} {'argsort s':>10} {'build':>6} {'metrics':>8} {'bytes':>6}", end="")
    print("".join(f" {name:>14} {'bytes':>6}" for name in STRATEGIES) + "  reads: build, plan, bytes")
    results = []
    for blocks in (10**4, 10**5) if options.quick else (10**4, 10**5, 10**6, 10**7):
        repeats = 1 if options.quick else 3 if blocks > 10**6 else 5
        figures = measure(blocks, list(STRATEGIES), repeats)
        results.append(figures)
        print(
            f"{figures['blocks']:>9} {figures['argsort_seconds']:>10.4f} {figures['build_ratio']:>6.1f} "
            f"{figures['information_ratio']:>8.2f} {figures['information_bytes_per_block']:>6.0f}"
            + "".join(
                f" {figures['plan_ratio'][name]:>14.2f} {figures['plan_bytes_per_block'][name]:>6.0f}"  # type: ignore[index]
                for name in STRATEGIES
            )
            + f" {figures['build_with_reads_ratio']:>7.1f} {figures['plan_with_reads_ratio']:>6.2f} "
            f"{figures['plan_with_reads_bytes_per_block']:>6.0f}",
            flush=True,
        )
    command.save(options, {"scale": results})


if __name__ == "__main__":
    main()
