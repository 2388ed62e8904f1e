"""A partition's plan does not depend on the others: only so may a look pass over those that did not change."""

from dataclasses import replace

import block_tables
import numpy as np
import pytest
from hypothesis import given

from dbt_recluster.planner import STRATEGIES, plan


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(table=block_tables.TABLES, policy=block_tables.POLICIES)
def test_a_partition_has_sets_if_and_only_if_it_has_some_alone(strategy, table, policy):
    policy = replace(policy, strategy=strategy, max_bytes=None)
    blocks = block_tables.describe(table)
    have_sets = {block_set.partition for block_set in plan(blocks, policy).block_sets}
    for partition in np.unique(blocks.partition).tolist():
        alone = plan(blocks.take(np.flatnonzero(blocks.partition == partition)), policy)
        assert bool(alone.block_sets) == (partition in have_sets)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(table=block_tables.TABLES, policy=block_tables.POLICIES)
def test_a_budget_for_all_sets_changes_no_plan(strategy, table, policy):
    policy = replace(policy, strategy=strategy, max_bytes=None)
    blocks = block_tables.describe(table)
    planned = plan(blocks, policy)
    again = plan(blocks, replace(policy, max_bytes=planned.bytes))
    assert [s.blocks.tolist() for s in planned.block_sets] == [s.blocks.tolist() for s in again.block_sets]
