"""Fragmentation against rows rewritten, for loads that are smaller than a block.

    python benchmarks/small_blocks.py            # three seeds; writes benchmarks/results/small_blocks.json
    python benchmarks/small_blocks.py --quick    # a fifth of the loads, one seed; writes nothing

Every load is one sorted file, and one round of recluster follows it. Fragmentation is blocks over full blocks' worth of
rows. Its greatest value counts from the first fifteen full blocks on, because a table of three loads is no worse for
being three blocks. After every merge the depth of all bounds, and between them, is held against the depth before it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dbt_recluster.planner import Blocks, Plan, Policy, clustering_information, plan

FloatArray = npt.NDArray[np.float64]
RESULTS = Path(__file__).parent / "results" / "small_blocks.json"
BLOCK_ROWS = 1_000
SETTLED = 15


def in_order(
    random: np.random.Generator, loads: int, rows: Callable[[], int], late: float
) -> Iterator[FloatArray]:
    """Load t brings times from t to t + 1, and a share of rows of any earlier time."""
    for t in range(loads):
        keys = t + random.random(rows())
        is_late = (random.random(len(keys)) < late) & (t > 0)
        keys[is_late] = random.random(int(is_late.sum())) * t
        yield keys


def backlog(random: np.random.Generator, following: Iterator[FloatArray]) -> Iterator[FloatArray]:
    """Full blocks of earlier times, and then other loads."""
    for t in range(20):
        yield t - 20 + random.random(BLOCK_ROWS)
    yield from following


def over_all_keys(random: np.random.Generator, loads: int, rows: Callable[[], int]) -> Iterator[FloatArray]:
    """Every load covers all keys."""
    for _ in range(loads):
        yield random.random(rows())


def customers(random: np.random.Generator, loads: int) -> Iterator[FloatArray]:
    """Load t brings a few rows each of some of fifty customers, ordered by customer and time."""
    for t in range(loads):
        some = random.choice(50, 5, replace=False)
        yield some[random.integers(0, 5, BLOCK_ROWS // 10)] + (t + random.random(BLOCK_ROWS // 10)) / (
            loads + 1
        )


@dataclass(frozen=True)
class Workload:
    """A series of loads, and the most fragmentation and rows rewritten that are allowed; None where none is set."""

    loads: Callable[[np.random.Generator, int], Iterator[FloatArray]]
    count: int = 1_000
    most_fragmented: float | None = None
    most_rewritten: float | None = None


def _rows(random: np.random.Generator, least: float, most: float) -> Callable[[], int]:
    return lambda: int(random.integers(round(least * BLOCK_ROWS), round(most * BLOCK_ROWS) + 1))


def _ordered(
    least: float, most: float, late: float = 0.0
) -> Callable[[np.random.Generator, int], Iterator[FloatArray]]:
    return lambda random, loads: in_order(random, loads, _rows(random, least, most), late)


def _after_backlog(random: np.random.Generator, loads: int) -> Iterator[FloatArray]:
    return backlog(random, _ordered(0.01, 0.6)(random, loads))


def _over_all_keys_after_backlog(random: np.random.Generator, loads: int) -> Iterator[FloatArray]:
    yield from (20 * keys for keys in over_all_keys(random, 1, lambda: 20 * BLOCK_ROWS))
    yield from (20 * keys for keys in over_all_keys(random, loads, _rows(random, 0.01, 0.6)))


WORKLOADS: dict[str, Workload] = {
    "in order, a tenth of a block": Workload(_ordered(0.1, 0.1), 1_000, 2.0, 2.5),
    "in order, 5 to 15 % of a block": Workload(_ordered(0.05, 0.15), 1_000, 2.0, 2.5),
    "in order, a tenth, 1 % late": Workload(_ordered(0.1, 0.1, 0.01), 1_000, 2.5, 3.0),
    "in order, a tenth, 0.1 % late": Workload(_ordered(0.1, 0.1, 0.001), 1_000, 2.5, 3.0),
    "backlog, then 1 to 60 % in order": Workload(_after_backlog, 1_000, 1.6, 2.5),
    "backlog, then 1 to 60 % over all keys": Workload(_over_all_keys_after_backlog, 200),
    "in order, a hundredth of a block": Workload(_ordered(0.01, 0.01), 3_000),
    "in order, 45 to 55 % of a block": Workload(_ordered(0.45, 0.55), 300),
    "customers, a tenth of a block": Workload(customers, 1_000),
    "in order, full blocks": Workload(_ordered(1, 1), 300, 1.0, 0.0),
}


@dataclass
class Table:
    """A table of real keys as lists of blocks, and what became of it."""

    policy: Policy
    keys: list[FloatArray] = field(default_factory=list)
    level: list[int] = field(default_factory=list)
    run: list[int] = field(default_factory=list)
    loaded: int = 0
    rewritten: int = 0
    merges: int = 0
    deeper: int = 0

    def blocks(self) -> Blocks:
        """Describe the blocks to the planner."""
        return Blocks.build(
            np.array([part[0] for part in self.keys]),
            np.array([part[-1] for part in self.keys]),
            rows=np.array([len(part) for part in self.keys]),
            level=np.array(self.level),
            run=np.array(self.run),
        )

    def load(self, keys: FloatArray) -> None:
        """Append a load as one run of blocks."""
        self.loaded += len(keys)
        self._add(np.sort(keys), 0, 0)

    def recluster(self) -> None:
        """Plan and merge once, and count the keys that the merge made deeper."""
        planned = plan(self.blocks(), self.policy)
        if planned.block_sets:
            before = self._bounds()
            self._merge(planned)
            after = self._bounds()
            at = np.unique(np.concatenate([*before, *after]))
            at = np.concatenate([at, (at[:-1] + at[1:]) / 2])
            self.deeper += int((_depth(after, at) > np.maximum(_depth(before, at), 1)).sum())

    def fragmentation(self) -> float:
        """Blocks over full blocks' worth of rows."""
        return len(self.keys) / (self.loaded / BLOCK_ROWS)

    def _merge(self, planned: Plan) -> None:
        gone = {place for block_set in planned.block_sets for place in block_set.blocks.tolist()}
        old = self.keys
        kept = [place for place in range(len(old)) if place not in gone]
        self.keys = [old[place] for place in kept]
        self.level = [self.level[place] for place in kept]
        self.run = [self.run[place] for place in kept]
        self.merges += 1
        for block_set in planned.block_sets:
            self.rewritten += block_set.rows
            keys = np.sort(np.concatenate([old[place] for place in block_set.blocks.tolist()]))
            self._add(keys, block_set.level, 1_000 * self.merges + block_set.run)

    def _add(self, keys: FloatArray, level: int, run: int) -> None:
        parts = np.array_split(keys, math.ceil(len(keys) / BLOCK_ROWS))
        self.keys += parts
        self.level += [level] * len(parts)
        self.run += [run] * len(parts)

    def _bounds(self) -> tuple[FloatArray, FloatArray]:
        return np.sort([part[0] for part in self.keys]), np.sort([part[-1] for part in self.keys])


def _depth(bounds: tuple[FloatArray, FloatArray], at: FloatArray) -> npt.NDArray[np.int64]:
    """Number of blocks over each key."""
    depth: npt.NDArray[np.int64] = np.searchsorted(bounds[0], at, "right") - np.searchsorted(bounds[1], at)
    return depth


def measure(workload: Workload, count: int, seed: int, policy: Policy) -> dict[str, float]:
    """Load and recluster in turn."""
    random = np.random.default_rng(seed)
    table, worst, began = Table(policy), 0.0, time.monotonic()
    for keys in workload.loads(random, count):
        table.load(keys)
        table.recluster()
        if table.loaded >= SETTLED * BLOCK_ROWS:
            worst = max(worst, table.fragmentation())
    return {
        "fragmentation": table.fragmentation(),
        "most fragmented": worst,
        "rewritten": table.rewritten / table.loaded,
        "average depth": clustering_information(table.blocks()).average_depth,
        "keys deeper": table.deeper,
        "seconds": time.monotonic() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--depth", type=float, default=Policy().depth)
    parser.add_argument("--strategy", default=Policy().strategy, help="one that joins nothing, to compare")
    parser.add_argument("--workloads", nargs="*", choices=list(WORKLOADS), default=list(WORKLOADS))
    options = parser.parse_args()
    policy = Policy(depth=options.depth, strategy=options.strategy, block_rows=BLOCK_ROWS)
    results: dict[str, dict[int, dict[str, float]]] = {}
    print(
        "| workload | at the end | greatest | allowed | rewritten | allowed | average depth | keys deeper |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in options.workloads:
        workload = WORKLOADS[name]
        count = workload.count // 5 if options.quick else workload.count
        seeds = options.seeds[:1] if options.quick else options.seeds
        results[name] = {seed: measure(workload, count, seed, policy) for seed in seeds}
        most = {
            key: max(figures[key] for figures in results[name].values()) for key in results[name][seeds[0]]
        }
        print(
            f"| {name} | {most['fragmentation']:.2f} | {most['most fragmented']:.2f} "
            f"| {workload.most_fragmented or ''} | {most['rewritten']:.2f} "
            f"| {'' if workload.most_rewritten is None else workload.most_rewritten} "
            f"| {most['average depth']:.2f} | {most['keys deeper']:.0f} |",
            flush=True,
        )
    standard = options.strategy == Policy().strategy and options.workloads == list(WORKLOADS)
    if standard and not options.quick:
        RESULTS.write_text(json.dumps({"depth": options.depth, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
