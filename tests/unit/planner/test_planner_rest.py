"""Repeating plan and merge ends soon, whatever a table records of its keys: bounds of columns, and maybe not true."""

import random
from dataclasses import replace

import block_tables
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_bounds import (
    CUT,
    MISSING,
    RECORDED,
    ROUNDED,
    TYPES,
    WHOLE,
    Block,
    Column,
    describe,
    merge,
    rounds_to_rest,
    sort_key,
)

from dbt_recluster.planner import STRATEGIES, Policy, clustering_information, plan
from dbt_recluster.planner.merges import simulate

# So many merges that none of these tests ends because of their number.
UNCOUNTED = 10**6
MOST_ROUNDS = 20
POLICIES = st.builds(
    Policy,
    depth=st.sampled_from([1, 1.5, 2, 3, 0.1]),
    strategy=st.sampled_from(STRATEGIES),
    block_rows=st.sampled_from([4, 8]),
    max_merge_bytes=st.sampled_from([None, 120, 240]),
    max_level=st.just(UNCOUNTED),
)
COLUMNS = st.lists(
    st.builds(Column, st.sampled_from(sorted(TYPES)), st.sampled_from(RECORDED)), min_size=1, max_size=3
)


def blocks_of(rows):
    return Block(tuple(sorted(rows, key=sort_key)))


@st.composite
def tables(draw):
    """The columns of a key, and blocks of rows."""
    columns = draw(COLUMNS)
    places = st.tuples(*(st.none() | st.integers(0, len(TYPES[column.kind][1]) - 1) for column in columns))
    rows = st.lists(places, min_size=1, max_size=8)
    return columns, draw(st.lists(rows.map(blocks_of), min_size=2, max_size=16))


@given(table=tables(), policy=POLICIES)
def test_plan_and_merge_end_whatever_is_recorded(table, policy):
    columns, blocks = table
    rounds_to_rest(blocks, columns, policy, MOST_ROUNDS)


@pytest.mark.parametrize("second", TYPES)
@pytest.mark.parametrize("first", TYPES)
def test_every_pair_of_types_comes_to_rest(first, second):
    draw = random.Random(f"{first} {second}")
    sizes = [len(TYPES[kind][1]) for kind in (first, second)]
    for recorded in [
        (WHOLE, WHOLE),
        (CUT, WHOLE),
        (WHOLE, CUT),
        (ROUNDED, CUT),
        (CUT, ROUNDED),
        (MISSING, WHOLE),
    ]:
        columns = [Column(kind, how) for kind, how in zip((first, second), recorded, strict=True)]
        table = [
            blocks_of([tuple(draw.choice([None, *range(size)]) for size in sizes) for _ in range(8)])
            for _ in range(12)
        ]
        for depth in (1, 2):
            policy = Policy(depth=depth, block_rows=8, max_level=UNCOUNTED)
            # Each row is rewritten about as often as if all was known.
            assert sum(rounds_to_rest(table, columns, policy, MOST_ROUNDS)) <= 4 * 8 * 12


def test_loads_of_texts_that_are_cut_off_are_merged_as_seldom_as_others():
    """Blocks of neighbouring keys overlap by the texts that they begin and end with."""
    draw = random.Random(1)
    work = {}
    for recorded in (WHOLE, CUT):
        columns, table, rows = [Column("many", recorded)], [], 0
        policy = Policy(depth=1, block_rows=8, max_level=UNCOUNTED)
        for load in range(30):
            keys = sorted((draw.randrange(len(TYPES["many"][1])),) for _ in range(32))
            table += [Block(tuple(keys[i : i + 8])) for i in range(0, 32, 8)]
            for number in range(MOST_ROUNDS + 1):
                planned = plan(describe(table, columns), policy)
                if not planned.block_sets:
                    break
                rows += planned.rows
                table = merge(table, planned, policy, 1000 * load + 10 * number + 1)
            else:
                pytest.fail(f"no end after {MOST_ROUNDS} rounds")
        work[recorded] = rows
    assert work[CUT] <= work[WHOLE]


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(table=block_tables.TABLES, policy=block_tables.POLICIES, reads=block_tables.READS)
def test_every_merge_has_a_gain(strategy, table, policy, reads):
    """Each by itself lowers a figure that users are shown, as far as bounds and rows tell."""
    policy = replace(policy, strategy=strategy)
    blocks = block_tables.describe(table, reads=reads)
    planned = plan(blocks, policy)
    before = clustering_information(blocks)
    for block_set in planned.block_sets:
        alone = replace(planned, block_sets=(block_set,))
        after = clustering_information(simulate(blocks, alone, policy))
        rewritten = [table[place] for place in block_set.blocks]
        assert (
            after.average_depth < before.average_depth
            or block_set.expected_blocks < len(block_set.blocks)
            or any(block.deleted >= policy.deleted_share * len(block.keys) for block in rewritten)
            or (reads is not None and _ends_where_they_overlap(blocks, block_set))
        )


def _ends_where_they_overlap(blocks, block_set):
    lower, upper = blocks.lower[block_set.blocks], blocks.upper[block_set.blocks]
    over = [np.count_nonzero((lower <= rank) & (rank <= upper)) for rank in range(blocks.points)]
    between = [np.count_nonzero((lower <= rank) & (rank < upper)) for rank in range(blocks.points)]
    return any(
        (at > 0 and here > 1) or (after > 0 and there > 1)
        for (at, after), here, there in zip(blocks.reads.in_cells.reshape(-1, 2), over, between, strict=True)
    )
