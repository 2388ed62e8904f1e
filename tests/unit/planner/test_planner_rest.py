"""Repeating plan and merge ends soon, whatever a table records of its keys: bounds of columns, and maybe not true."""

import random
from functools import partial

from block_tables import Block, rounds
from hypothesis import given
from hypothesis import strategies as st
from recorded_bounds import RECORDED, TYPES, Column, cut_evenly, describe, rows_rewritten

from dbt_recluster.planner import STRATEGIES, Policy

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
COLUMNS = st.lists(st.builds(Column, st.sampled_from(sorted(TYPES)), st.sampled_from(RECORDED)), min_size=1, max_size=3)


@st.composite
def tables(draw):
    """The columns of a key, and blocks of rows."""
    columns = draw(COLUMNS)
    places = st.tuples(*(st.integers(-1, len(TYPES[column.kind][1]) - 1) for column in columns))
    rows = st.lists(places, min_size=1, max_size=8).map(sorted).map(tuple)
    return columns, draw(st.lists(rows.map(Block), min_size=2, max_size=16))


@given(table=tables(), policy=POLICIES)
def test_plan_and_merge_end_whatever_is_recorded(table, policy):
    columns, blocks = table
    rows_rewritten(blocks, columns, policy, MOST_ROUNDS)


def test_loads_of_texts_that_are_cut_off_are_merged_as_seldom_as_others():
    """Blocks of neighbouring keys overlap by the texts that they begin and end with."""
    draw = random.Random(1)
    policy = Policy(depth=1, block_rows=8, max_level=UNCOUNTED)
    work = {"whole": 0, "cut": 0}
    for recorded in work:
        described, table = partial(describe, columns=[Column("many", recorded)]), []
        for _ in range(30):
            keys = sorted((draw.randrange(len(TYPES["many"][1])),) for _ in range(32))
            table += [Block(tuple(keys[i : i + 8])) for i in range(0, 32, 8)]
            for before, planned in rounds(table, policy, described, cut_evenly, MOST_ROUNDS):
                table = before
                work[recorded] += planned.rows
    assert work["cut"] <= work["whole"]
