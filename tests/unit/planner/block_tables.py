"""Tables of real records for tests: blocks hold actual keys, and a merge sorts and cuts them."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from dbt_recluster.planner import Blocks, Policy, plan


@dataclass(frozen=True)
class Block:
    keys: tuple
    level: int = 0
    run: int = 0
    partition: int = 0
    bytes: int = 0


def describe(blocks, levels=True, runs=True):
    """The planner's view of a table."""
    return Blocks.build(
        [block.keys[0] for block in blocks],
        [block.keys[-1] for block in blocks],
        rows=[len(block.keys) for block in blocks],
        bytes=[block.bytes or 10 * len(block.keys) for block in blocks],
        level=[block.level if levels else 0 for block in blocks],
        run=[block.run if runs else 0 for block in blocks],
        partition=[block.partition for block in blocks],
    )


def cut(keys, block_rows):
    """Sorted keys to blocks of about block_rows, a key's rows together unless they fill more than one."""
    parts = -(-len(keys) // block_rows)
    blocks, start = [], 0
    for nth in range(1, parts + 1):
        end = max(start, len(keys) * nth // parts)
        while 0 < end < len(keys) and keys[end - 1] == keys[end] and keys.count(keys[end]) <= block_rows:
            end += 1
        if end > start:
            blocks.append(tuple(keys[start:end]))
        start = end
    return blocks


def merge(blocks, found, policy, run):
    """The table after a plan."""
    gone = {int(place) for task in found.tasks for place in task.blocks}
    after = [block for place, block in enumerate(blocks) if place not in gone]
    for task in found.tasks:
        members = [blocks[place] for place in task.blocks]
        keys = sorted(key for member in members for key in member.keys)
        parts = cut(keys, policy.block_rows)
        after += [Block(part, task.level, run + task.run, members[0].partition) for part in parts]
    return after


def depth_at(blocks, partition, point):
    return sum(1 for b in blocks if b.partition == partition and b.keys[0] <= point <= b.keys[-1])


def points(blocks):
    """Every bound and every middle between two bounds."""
    bounds = sorted({key for block in blocks for key in (block.keys[0], block.keys[-1])})
    return bounds + [(a + b) / 2 for a, b in itertools.pairwise(bounds)]


def heavy_keys(blocks, block_rows):
    """(partition, key) pairs whose rows alone fill more than a block."""
    count = Counter((block.partition, key) for block in blocks for key in block.keys)
    return {pair for pair, rows in count.items() if rows > block_rows}


def final(blocks, policy, levels=True, runs=True, rounds=500):
    """Repeat plan and merge; the tables after each round."""
    tables = [blocks]
    for nth in range(rounds):
        found = plan(describe(tables[-1], levels, runs), policy)
        if not found.tasks:
            return tables
        tables.append(merge(tables[-1], found, policy, (nth + 1) * 1000))
    raise AssertionError(f"no end after {rounds} rounds")


KEYS = st.integers(0, 30)
BLOCK = st.builds(
    Block,
    st.one_of(
        st.lists(KEYS, min_size=1, max_size=8),
        st.integers(1, 9).flatmap(lambda n: KEYS.map(lambda key: [key] * n)),
    ).map(lambda keys: tuple(sorted(keys))),
    level=st.integers(0, 3),
    partition=st.integers(0, 1),
)
TABLES = st.lists(BLOCK, max_size=24)
POLICIES = st.builds(
    Policy,
    depth=st.sampled_from([1, 1.5, 2, 3, 0.1, 0.5]),
    block_rows=st.integers(1, 8),
    max_bytes=st.none() | st.integers(0, 600),
    max_merge_bytes=st.none() | st.integers(1, 300),
    max_blocks=st.none() | st.integers(2, 6),
    overlap_threshold=st.integers(1, 3),
)


def with_strategy(policy, strategy):
    return replace(policy, strategy=strategy)
