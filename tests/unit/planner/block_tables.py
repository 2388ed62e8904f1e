"""Tables of real records for tests: blocks hold actual keys, and a merge sorts and cuts them."""

import itertools
from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import examples

from dbt_recluster.planner import STRATEGIES, Blocks, Policy, Reads, plan
from dbt_recluster.planner.planning import simulate_rounds


@dataclass(frozen=True)
class Block:
    keys: tuple
    level: int = 0
    run: int = 0
    partition: int = 0
    bytes: int = 0
    deleted: int = 0  # how many of the keys, the least ones

    @property
    def live(self):
        return self.keys[min(self.deleted, len(self.keys)) :]


def build(bounds, **more):
    """Describe blocks of these pairs of bounds."""
    return Blocks.build([low for low, _ in bounds], [high for _, high in bounds], **more)


def in_order(rows, **more):
    """Describe blocks side by side, with gaps between them."""
    return build([(10 * n, 10 * n + 5) for n in range(len(rows))], rows=list(rows), **more)


def planned_sets(blocks, **policy):
    """The positions of each set, in the plan's order."""
    return [block_set.blocks.tolist() for block_set in plan(blocks, Policy(**policy)).block_sets]


def describe(blocks, levels=True, runs=True, reads=None):
    """Describe a table to the planner."""
    return Blocks.build(
        [block.keys[0] for block in blocks],
        [block.keys[-1] for block in blocks],
        rows=[len(block.keys) for block in blocks],
        bytes=[block.bytes or 10 * len(block.keys) for block in blocks],
        level=[block.level if levels else 0 for block in blocks],
        run=[block.run if runs else 0 for block in blocks],
        partition=[block.partition for block in blocks],
        deleted=[block.deleted for block in blocks],
        reads=reads,
    )


def cut(keys, block_rows):
    """Cut sorted keys into blocks of about block_rows; a key stays in one block unless it fills more than one."""
    parts = -(-len(keys) // block_rows)
    blocks, start = [], 0
    for number in range(1, parts + 1):
        end = max(start, len(keys) * number // parts)
        while 0 < end < len(keys) and keys[end - 1] == keys[end] and keys.count(keys[end]) <= block_rows:
            end += 1
        if end > start:
            blocks.append(tuple(keys[start:end]))
        start = end
    return blocks


def simulate_final(blocks, policy):
    """The plans until nothing is left to do, and the blocks after them, as predicted."""
    steps = list(itertools.islice(simulate_rounds(blocks, policy), 500))
    assert len(steps) < 500
    return [planned for planned, _ in steps], steps[-1][1] if steps else blocks


def merge(blocks, planned, policy, run, cut=cut):
    """Merge the block sets of a plan; their runs follow this one."""
    gone = {int(place) for block_set in planned.block_sets for place in block_set.blocks}
    after = [block for place, block in enumerate(blocks) if place not in gone]
    for block_set in planned.block_sets:
        members = [blocks[place] for place in block_set.blocks]
        keys = sorted(key for member in members for key in member.live)
        parts = cut(keys, policy.block_rows)
        after += [Block(part, block_set.level, run + block_set.run, members[0].partition) for part in parts]
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


def rounds(blocks, policy, describe=describe, cut=cut, most=500):
    """Repeat plan and merge; yield each table with its plan, of which the last is empty."""
    for _ in range(most + 1):
        planned = plan(describe(blocks), policy)
        yield blocks, planned
        if not planned.block_sets:
            return
        blocks = merge(blocks, planned, policy, 1 + max(block.run for block in blocks), cut)
    raise AssertionError(f"no end after {most} rounds")


def check_sets(blocks, planned, policy):
    """Sets are disjoint, each in one partition and within the limits; their figures are those of their blocks."""
    positions = [int(place) for block_set in planned.block_sets for place in block_set.blocks]
    assert len(positions) == len(set(positions))
    for block_set in planned.block_sets:
        members = block_set.blocks.tolist()
        assert members == sorted(members)
        assert set(blocks.partition[members].tolist()) == {block_set.partition}
        assert block_set.bytes == blocks.bytes[members].sum()
        assert block_set.rows == blocks.rows[members].sum()
        assert policy.max_merge_bytes is None or block_set.bytes <= policy.max_merge_bytes
        # The limit on blocks is not for compactions, which leave fewer blocks.
        leaves_fewer = block_set.expected_blocks < len(members)
        assert leaves_fewer or len(members) <= (policy.max_merge_blocks or len(members))
    assert planned.bytes == sum(block_set.bytes for block_set in planned.block_sets)
    assert planned.rows == sum(block_set.rows for block_set in planned.block_sets)
    assert policy.max_bytes is None or planned.bytes <= policy.max_bytes


KEYS = st.integers(0, 30)
BLOCK = st.builds(
    Block,
    st.one_of(
        st.lists(KEYS, min_size=1, max_size=8),
        st.integers(1, 9).flatmap(lambda n: KEYS.map(lambda key: [key] * n)),
    ).map(lambda keys: tuple(sorted(keys))),
    level=st.integers(0, 3),
    partition=st.integers(0, 1),
    deleted=st.sampled_from([0, 0, 0, 1, 3, 9]),
).map(lambda block: replace(block, deleted=min(block.deleted, len(block.keys))))
TABLES = st.lists(BLOCK, max_size=24)
# Larger full blocks make many blocks small.
POLICIES = st.builds(
    Policy,
    # Most examples go to the default.
    strategy=st.sampled_from([Policy().strategy] * 9 + [name for name in STRATEGIES if name != Policy().strategy]),
    depth=st.sampled_from([1, 1.5, 2, 3, 4, 100, 0.1, 0.5]),
    block_rows=st.integers(1, 8) | st.integers(4, 40),
    block_bytes=st.none() | st.integers(40, 400),
    max_bytes=st.none() | st.integers(0, 600),
    max_merge_bytes=st.none() | st.integers(1, 300),
    max_merge_blocks=st.none() | st.integers(2, 5),
)
ENDS = st.none() | st.integers(-2, 32)
RANGES = st.lists(st.tuples(ENDS, ENDS, st.sampled_from([0, 0.5, 1, 100])), max_size=12).map(
    lambda rows: [(b, a, w) if None not in (a, b) and b < a else (a, b, w) for a, b, w in rows]
)
READS = st.none() | RANGES.map(lambda rows: Reads(*map(list, zip(*rows, strict=True))) if rows else Reads([], []))


def any_table(**more):
    """Decorate a test of every strategy with any table, policy and reads, and with more values."""
    of_all = given(table=TABLES, policy=POLICIES, reads=READS, **more)
    return lambda test: settings(max_examples=examples(100 * len(STRATEGIES)))(of_all(test))
