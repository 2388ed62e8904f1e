"""Whether anything is to be done in a partition does not depend on the others, so a look may leave some out."""

from dataclasses import replace

import block_tables
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dbt_recluster.planner import STRATEGIES, Policy, plan

# At a threshold between 1 and 2 `payback` may put partitions off while others have cheaper sets.
DEPTHS = st.sampled_from([1, 1.5, 2, 0.3])


# The average depth of the whole table falls by another set than that of a partition.
_AVERAGES = [
    *(((0,), 0, 0), ((0,), 0, 0), ((0,), 0, 1), ((0,), 1, 0), ((0,), 1, 1), ((0,), 2, 1), ((1,), 0, 0)),
    *(((2,), 1, 0), ((2,), 0, 0), ((0, 0), 0, 0), ((0, 2), 0, 0), ((0, 0, 0, 0, 0, 3), 0, 0)),
]
AVERAGES = [
    block_tables.Block(keys, level=level, run=0, partition=partition, bytes=0, deleted=0)
    for keys, level, partition in _AVERAGES
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(table=block_tables.TABLES, policy=block_tables.POLICIES, reads=block_tables.READS, depth=DEPTHS)
@example(table=AVERAGES, policy=Policy(block_rows=3, max_merge_bytes=70), reads=None, depth=1)
def test_a_plan_is_empty_if_and_only_if_that_of_each_partition_is(strategy, table, policy, reads, depth):
    policy = replace(policy, strategy=strategy, max_bytes=None, depth=depth)
    blocks = block_tables.describe(table, reads=reads)
    alone = [
        plan(blocks.take(np.flatnonzero(blocks.partition == partition)), policy)
        for partition in np.unique(blocks.partition)
    ]
    assert bool(plan(blocks, policy).block_sets) == any(planned.block_sets for planned in alone)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(table=block_tables.TABLES, policy=block_tables.POLICIES, reads=block_tables.READS, depth=DEPTHS)
def test_no_partition_has_sets_that_it_would_not_have_alone(strategy, table, policy, reads, depth):
    policy = replace(policy, strategy=strategy, depth=depth)
    blocks = block_tables.describe(table, reads=reads)
    for partition in {block_set.partition for block_set in plan(blocks, policy).block_sets}:
        alone = blocks.take(np.flatnonzero(blocks.partition == partition))
        assert plan(alone, replace(policy, max_bytes=None)).block_sets
