"""Fragmentation against rows rewritten, for loads that are smaller than a block.

    python benchmarks/small_blocks.py            # three seeds
    python benchmarks/small_blocks.py --quick    # a fifth of the loads, one seed

Every load is one sorted file, and one round of recluster follows it. Fragmentation is blocks over full blocks' worth of
rows. Its greatest value counts from the first fifteen full blocks on, because a table of three loads is no worse for
being three blocks. After every merge the depth of all bounds, and between them, is held against the depth before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import command
import numpy as np
from workloads import FloatArray, Table, time_ordered

from dbt_recluster.planner import Policy, clustering_information, plan

Series = Callable[[np.random.Generator, int], Iterator[FloatArray]]
BLOCK_ROWS = 1_000
SETTLED = 15
FIGURES = ("fragmentation", "most fragmented", "rewritten", "average depth", "keys deeper")


def _rows(random: np.random.Generator, least: float, most: float) -> Callable[[], int]:
    return lambda: int(random.integers(round(least * BLOCK_ROWS), round(most * BLOCK_ROWS) + 1))


def _ordered(least: float, most: float, late: float = 0.0) -> Series:
    def series(random: np.random.Generator, loads: int) -> Iterator[FloatArray]:
        yield from (load.keys for load in time_ordered(random, loads, late, rows=_rows(random, least, most)))

    return series


def _after_backlog(random: np.random.Generator, loads: int) -> Iterator[FloatArray]:
    yield from (t - 20 + random.random(BLOCK_ROWS) for t in range(20))
    yield from _ordered(0.01, 0.6)(random, loads)


# With the number of loads.
WORKLOADS: dict[str, tuple[Series, int]] = {
    "in order, a tenth of a block": (_ordered(0.1, 0.1), 1_000),
    "in order, a tenth, 1 % late": (_ordered(0.1, 0.1, 0.01), 1_000),
    "backlog, then 1 to 60 % in order": (_after_backlog, 1_000),
    "in order, a hundredth of a block": (_ordered(0.01, 0.01), 3_000),
    "in order, 45 to 55 % of a block": (_ordered(0.45, 0.55), 300),
    "in order, full blocks": (_ordered(1, 1), 300),
}


def recluster(table: Table, policy: Policy) -> int:
    """Plan and merge once; return the number of keys that the merge made deeper."""
    planned = plan(table.blocks(), policy)
    if not planned.block_sets:
        return 0
    before = replace(table)
    table.merge(planned)
    at = np.unique(np.concatenate([before.lower, before.upper, table.lower, table.upper]))
    at = np.concatenate([at, (at[:-1] + at[1:]) / 2])
    return int((table.opened(at, at) > np.maximum(before.opened(at, at), 1)).sum())


def measure(series: Series, count: int, seed: int, policy: Policy) -> dict[str, float]:
    """Load and recluster in turn."""
    random = np.random.default_rng(seed)
    table, deeper, fragmentation = Table(BLOCK_ROWS), 0, [0.0]
    for keys in series(random, count):
        table.load(keys)
        deeper += recluster(table, policy)
        full_blocks = table.loaded / BLOCK_ROWS
        fragmentation.append(len(table.keys) / full_blocks if full_blocks >= SETTLED else 0)
    return {
        "fragmentation": len(table.keys) / full_blocks,
        "most fragmented": max(fragmentation),
        "rewritten": table.rewritten / table.loaded,
        "average depth": clustering_information(table.blocks()).average_depth,
        "keys deeper": deeper,
    }


def main() -> None:
    parser = command.parser(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--workloads", nargs="*", choices=list(WORKLOADS), default=list(WORKLOADS))
    options = parser.parse_args()
    policy = Policy(block_rows=BLOCK_ROWS)
    results: dict[str, dict[int, dict[str, float]]] = {}
    rows = []
    for name in options.workloads:
        series, count = WORKLOADS[name]
        count = count // 5 if options.quick else count
        seeds = options.seeds[:1] if options.quick else options.seeds
        results[name] = {seed: measure(series, count, seed, policy) for seed in seeds}
        most = {key: max(figures[key] for figures in results[name].values()) for key in FIGURES}
        rows.append([name, *(f"{most[key]:.2f}" for key in FIGURES)])
        print(f"{name}: measured", flush=True)
    command.markdown(["workload", *FIGURES], rows)
    command.save(options, {"results": results})


if __name__ == "__main__":
    main()
