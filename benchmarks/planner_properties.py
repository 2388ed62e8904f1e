"""Promises of the planner, checked on many random tables of real keys, for every strategy.

    python benchmarks/planner_properties.py            # 1,000 tables a strategy; writes results/planner_properties.json
    python benchmarks/planner_properties.py --quick    # 100 tables; writes nothing

Every table is planned and merged until the plan is empty. After every plan the benchmark checks that its sets are
disjoint, that sets and plan stay within their limits, that the blocks of a set leave no gap between them but those
that joins of small blocks cross, that the blocks in another order give the same plan, and that the merge makes no point
of the key domain deeper than it was, nor deeper than 1 in a gap that a join crosses, except keys whose rows alone fill
more than a block.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "planner"))
import block_tables

from dbt_recluster.planner import STRATEGIES, Plan, Policy, plan

RESULTS = Path(__file__).parent / "results" / "planner_properties.json"
MOST_ROUNDS = 2000
BROKEN = (
    "sets not disjoint",
    "over the plan's bytes",
    "over a set's bytes",
    "sets with a gap",
    "plans that depend on order",
    "points raised",
    "tables without an end",
)


def random_table(random: np.random.Generator) -> list[block_tables.Block]:
    """Blocks of many shapes: wide, narrow, constant, equal, touching, nested, of any level."""
    keys = int(random.choice([2, 5, 20, 100, 1000]))
    levels = int(random.choice([1, 4, 40]))
    blocks = []
    for _ in range(int(random.choice([0, 1, 2, 10, 40, 120]))):
        width = int(random.choice([1, 2, 5, keys]))
        start = int(random.integers(0, keys))
        part = np.sort(np.minimum(start + random.integers(0, width, int(random.integers(1, 9))), keys - 1))
        blocks.append(
            block_tables.Block(
                tuple(part.tolist()),
                int(random.integers(levels)),
                0,
                int(random.integers(2)),
                int(random.integers(1, 90)),
            )
        )
    return blocks


def random_policy(random: np.random.Generator, strategy: str) -> Policy:
    """A policy with any limits."""

    def sometimes(least: int, greatest: int) -> int | None:
        return int(random.integers(least, greatest)) if random.random() < 0.3 else None

    return Policy(
        depth=float(random.choice([1, 1.5, 2, 3, 5, 0.1, 0.5])),
        strategy=strategy,
        max_bytes=sometimes(0, 3000),
        max_merge_bytes=sometimes(1, 1000),
        block_rows=int(random.integers(1, 9)),
    )


def depths(blocks: list[block_tables.Block], partition: int, points: np.ndarray) -> np.ndarray:
    """Number of blocks that cover each point of a partition."""
    members = [block for block in blocks if block.partition == partition]
    lower = np.sort([block.keys[0] for block in members])
    upper = np.sort([block.keys[-1] for block in members])
    covering: np.ndarray = np.searchsorted(lower, points, "right") - np.searchsorted(upper, points)
    return covering


def contents(blocks: list[block_tables.Block], planned: Plan, known: bool) -> list[tuple[int, list[str]]]:
    """Describe a plan by the figures of its blocks that the planner is given, instead of their positions."""
    figures = [
        str(
            (
                block.keys[0],
                block.keys[-1],
                len(block.keys),
                block.level if known else 0,
                block.partition,
                block.bytes or 10 * len(block.keys),
            )
        )
        for block in blocks
    ]
    return [(s.level, sorted(figures[place] for place in s.blocks)) for s in planned.block_sets]


def check_plan(blocks: list[block_tables.Block], planned: Plan, policy: Policy, counts: Counter[str]) -> None:
    """Check the promises of a plan alone."""
    positions = [int(place) for block_set in planned.block_sets for place in block_set.blocks]
    counts["sets not disjoint"] += len(positions) != len(set(positions))
    counts["over the plan's bytes"] += policy.max_bytes is not None and planned.bytes > policy.max_bytes
    for block_set in planned.block_sets:
        counts["sets"] += 1
        counts["blocks in sets"] += len(block_set.blocks)
        counts["over a set's bytes"] += (
            policy.max_merge_bytes is not None and block_set.bytes > policy.max_merge_bytes
        )
        members = sorted((blocks[place] for place in block_set.blocks.tolist()), key=lambda b: b.keys[0])
        reach = members[0].keys[-1]
        for block in members[1:]:
            if block.keys[0] > reach:
                gap = [b for b in blocks if b.keys[0] < block.keys[0] and b.keys[-1] > reach]
                empty = all(b.partition != block.partition for b in gap)
                counts["sets with a gap"] += policy.strategy != "payback" or not empty
            reach = max(reach, block.keys[-1])


def check_merge(
    before: list[block_tables.Block],
    after: list[block_tables.Block],
    policy: Policy,
    counts: Counter[str],
) -> None:
    """Check that a merge has made no key deeper."""
    heavy = block_tables.heavy_keys(before, policy.block_rows)
    for partition in (0, 1):
        points = np.array(block_tables.points([b for b in before + after if b.partition == partition]))
        if len(points):
            least = 1 if policy.strategy == "payback" else 0
            deeper = depths(after, partition, points) > np.maximum(depths(before, partition, points), least)
            counts["points compared"] += len(points)
            counts["points raised"] += sum((partition, key) not in heavy for key in points[deeper].tolist())


def check(strategy: str, seed: int, counts: Counter[str]) -> None:
    """Plan and merge one random table until the plan is empty."""
    random = np.random.default_rng(seed)
    blocks, policy = random_table(random), random_policy(random, strategy)
    known = bool(random.random() < 0.7)
    counts["tables"] += 1
    for rounds in range(MOST_ROUNDS):
        planned = plan(block_tables.describe(blocks, levels=known, runs=known), policy)
        shuffled = [blocks[place] for place in random.permutation(len(blocks)).tolist()]
        again = plan(block_tables.describe(shuffled, levels=known, runs=known), policy)
        counts["plans that depend on order"] += contents(blocks, planned, known) != contents(
            shuffled, again, known
        )
        counts["plans"] += 1
        check_plan(blocks, planned, policy, counts)
        if not planned.block_sets:
            counts["most rounds"] = max(counts["most rounds"], rounds)
            return
        after = block_tables.merge(blocks, planned, policy, (rounds + 1) * 1000)
        check_merge(blocks, after, policy, counts)
        blocks = after
    counts["tables without an end"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    results = {}
    for strategy in STRATEGIES:
        counts: Counter[str] = Counter()
        for number in range(100 if options.quick else options.tables):
            check(strategy, options.seed * 1_000_000 + number, counts)
        results[strategy] = dict(sorted(counts.items()))
        print(strategy, json.dumps(results[strategy]), flush=True)
    if not options.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"seed": options.seed, "counts": results}, indent=1) + "\n")
    failed = sum(counts.get(name, 0) for counts in results.values() for name in BROKEN)
    print(f"{failed} promises broken")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
