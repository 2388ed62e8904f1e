"""What the planner promises, checked on many random tables of real keys, for every strategy.

    python benchmarks/planner_properties.py            # 1,000 tables a strategy; writes results/planner_properties.json
    python benchmarks/planner_properties.py --quick    # 100 tables; writes nothing

Every table is planned and merged until the plan is empty. After each plan this checks that its sets are disjoint,
that each stays within its limits and all within theirs, that the blocks of each leave no gap between them, that the
plan is the same for the blocks in another order, and, after the merge, that no point of the key domain is deeper than
before, save keys whose rows alone fill more than a block.
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


def random_table(random: np.random.Generator) -> list[block_tables.Block]:
    """Blocks of many shapes: wide, narrow, constant, equal, touching, nested, of any level."""
    keys = int(random.choice([2, 5, 20, 100, 1000]))
    levels = int(random.choice([1, 4, 40]))
    found = []
    for _ in range(int(random.choice([0, 1, 2, 10, 40, 120]))):
        width = int(random.choice([1, 2, 5, keys]))
        start = int(random.integers(0, keys))
        part = np.sort(np.minimum(start + random.integers(0, width, int(random.integers(1, 9))), keys - 1))
        found.append(
            block_tables.Block(
                tuple(part.tolist()),
                int(random.integers(levels)),
                0,
                int(random.integers(2)),
                int(random.integers(1, 90)),
            )
        )
    return found


def random_policy(random: np.random.Generator, strategy: str) -> Policy:
    """Any limits."""

    def sometimes(least: int, greatest: int) -> int | None:
        return int(random.integers(least, greatest)) if random.random() < 0.3 else None

    return Policy(
        depth=float(random.choice([1, 1.5, 2, 3, 5, 0.1, 0.5])),
        strategy=strategy,
        max_bytes=sometimes(0, 3000),
        max_merge_bytes=sometimes(1, 1000),
        max_blocks=sometimes(2, 10),
        block_rows=int(random.integers(1, 9)),
        overlap_threshold=int(random.choice([1, 1, 1, 2, 3])),
    )


def depths(blocks: list[block_tables.Block], partition: int, points: np.ndarray) -> np.ndarray:
    """How many blocks cover each point."""
    of = [block for block in blocks if block.partition == partition]
    lower, upper = np.sort([block.keys[0] for block in of]), np.sort([block.keys[-1] for block in of])
    covering: np.ndarray = np.searchsorted(lower, points, "right") - np.searchsorted(upper, points)
    return covering


def contents(blocks: list[block_tables.Block], found: Plan) -> list[tuple[int, list[str]]]:
    """A plan in terms of what the planner knows of blocks, not of where they stand."""
    told = [str((b.keys[0], b.keys[-1], len(b.keys), b.level, b.partition, b.bytes)) for b in blocks]
    return [(task.level, sorted(told[place] for place in task.blocks)) for task in found.tasks]


def check_plan(blocks: list[block_tables.Block], found: Plan, policy: Policy, counts: Counter[str]) -> None:
    """Promises of a plan by itself."""
    chosen = [int(place) for task in found.tasks for place in task.blocks]
    counts["sets not disjoint"] += len(chosen) != len(set(chosen))
    counts["over the plan's bytes"] += policy.max_bytes is not None and found.bytes > policy.max_bytes
    for task in found.tasks:
        counts["sets"] += 1
        counts["blocks in sets"] += len(task.blocks)
        counts["over a set's bytes"] += (
            policy.max_merge_bytes is not None and task.bytes > policy.max_merge_bytes
        )
        counts["over a set's blocks"] += (
            policy.max_blocks is not None and len(task.blocks) > policy.max_blocks
        )
        members = sorted((blocks[place] for place in task.blocks.tolist()), key=lambda block: block.keys[0])
        reach = members[0].keys[-1]
        for block in members[1:]:
            counts["sets with a gap"] += block.keys[0] > reach
            reach = max(reach, block.keys[-1])


def check(strategy: str, seed: int, counts: Counter[str]) -> None:
    """One table, to its end."""
    random = np.random.default_rng(seed)
    blocks, policy = random_table(random), random_policy(random, strategy)
    known = bool(random.random() < 0.7)
    counts["tables"] += 1
    for nth in range(MOST_ROUNDS):
        described = block_tables.describe(blocks, levels=known, runs=known)
        found = plan(described, policy)
        order = random.permutation(len(blocks)).tolist()
        shuffled = [blocks[place] for place in order]
        again = plan(block_tables.describe(shuffled, levels=known, runs=known), policy)
        counts["plans that depend on order"] += contents(blocks, found) != contents(shuffled, again)
        counts["plans"] += 1
        check_plan(blocks, found, policy, counts)
        if not found.tasks:
            counts["most rounds"] = max(counts["most rounds"], nth)
            return
        after = block_tables.merge(blocks, found, policy, (nth + 1) * 1000)
        heavy = block_tables.heavy_keys(blocks, policy.block_rows)
        for partition in (0, 1):
            points = np.array(block_tables.points([b for b in blocks + after if b.partition == partition]))
            if len(points):
                deeper = depths(after, partition, points) > depths(blocks, partition, points)
                counts["points compared"] += len(points)
                counts["points raised"] += sum(
                    (partition, key) not in heavy for key in points[deeper].tolist()
                )
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
        for nth in range(100 if options.quick else options.tables):
            check(strategy, options.seed * 1_000_000 + nth, counts)
        results[strategy] = dict(sorted(counts.items()))
        print(strategy, json.dumps(results[strategy]), flush=True)
    if not options.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"seed": options.seed, "counts": results}, indent=1) + "\n")
    broken = {
        "sets not disjoint",
        "over the plan's bytes",
        "over a set's bytes",
        "over a set's blocks",
        "sets with a gap",
        "plans that depend on order",
        "points raised",
        "tables without an end",
    }
    failed = sum(counts.get(name, 0) for counts in results.values() for name in broken)
    print(f"{failed} promises broken")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
