"""A first clustering in parts, by `max_bytes`, against one in one go; and what a last one with a depth of 1 adds.

    python benchmarks/in_parts.py            # prints the table of docs/guides/large-table.md

100 full blocks, each of random keys: of all keys, of a tenth of them, or of a range of random width. Every call
rewrites at most a part of the table, until there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from workloads import FloatArray, Table

from dbt_recluster.planner import Policy, clustering_information, plan

BLOCKS, BLOCK_ROWS = 100, 1_000
ROW_BYTES = 10
PARTS = (1, 2, 4, 10)


def all_keys(random: np.random.Generator, _: int) -> FloatArray:
    """Keys of a block that covers the whole table."""
    return random.random(BLOCK_ROWS)


def a_tenth(random: np.random.Generator, block: int) -> FloatArray:
    """Keys of a block of a table that was loaded almost in order."""
    return block + BLOCKS / 10 * random.random(BLOCK_ROWS)


def some_range(random: np.random.Generator, _: int) -> FloatArray:
    """Keys between two random ones."""
    low, high = np.sort(random.random(2))
    return low + (high - low) * random.random(BLOCK_ROWS)


def recluster(table: Table, policy: Policy) -> int:
    """Plan and merge until there is nothing to do; return the number of calls."""
    calls = 0
    while (
        planned := plan(table.blocks(bytes=[len(part) * ROW_BYTES for part in table.keys]), policy)
    ).block_sets:
        table.merge(planned)
        calls += 1
    return calls


def measure(keys: Callable[[np.random.Generator, int], FloatArray], parts: int) -> list[str]:
    """Recluster a new table in parts with the default depth, and then with a depth of 1."""
    random = np.random.default_rng(0)
    table = Table(BLOCK_ROWS)
    for block in range(BLOCKS):
        table.load(keys(random, block))
    cells = []
    for depth in (Policy().depth, 1):
        policy = Policy(
            block_rows=BLOCK_ROWS, depth=depth, max_bytes=-(-BLOCKS * BLOCK_ROWS * ROW_BYTES // parts)
        )
        calls = recluster(table, policy)
        average = clustering_information(table.blocks()).average_depth
        cells += [str(calls), f"{average:.1f}", f"{table.rewritten / table.loaded:.1f}"]
    return cells


def main() -> None:
    figures = ["average depth", "rewritten"]
    header = ["`max_bytes`", "calls", *figures, "calls with depth 1", *figures]
    print("| each block has keys of |", " | ".join(header), "in all |")
    print("|---|---|---|---|---|---|---|---|")
    for name, keys in (("the whole table", all_keys), ("a tenth of it", a_tenth), ("some range", some_range)):
        for parts in PARTS:
            limit = "none" if parts == 1 else f"{1 / parts:.0%} of the table"
            print("|", " | ".join([name, limit, *measure(keys, parts)]), "|", flush=True)


if __name__ == "__main__":
    main()
