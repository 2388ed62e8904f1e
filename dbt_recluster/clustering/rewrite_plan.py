"""The plan of a round, described for a dry run."""

from __future__ import annotations

import numpy as np

from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.clustering.key_text import lower_texts, upper_texts
from dbt_recluster.clustering.result import PlannedSet, RewritePlan
from dbt_recluster.clustering.table import ClusteredTable, SnapshotBlocks
from dbt_recluster.planner import Plan, Policy, clustering_information
from dbt_recluster.planner.simulation import simulate


def rewrite_plan(table: ClusteredTable, blocks: SnapshotBlocks, plan: Plan, policy: Policy) -> RewritePlan:
    """Describe a plan.

    Args:
        table: The table.
        blocks: Its blocks.
        plan: What is to be done with them.
        policy: The policy of the plan.
    """
    sets = plan.block_sets
    lower = blocks.eligible[[block_set.lower_block for block_set in sets]] if sets else np.zeros(0, np.int64)
    upper = blocks.eligible[[block_set.upper_block for block_set in sets]] if sets else np.zeros(0, np.int64)
    bounds = zip(
        lower_texts(table, blocks.metadata, lower),
        upper_texts(table, blocks.metadata, upper),
        strict=True,
    )
    planned = tuple(
        PlannedSet(
            level=int(blocks.blocks.level[block_set.blocks].max()),
            new_level=block_set.level,
            blocks=len(block_set.blocks),
            expected_blocks=block_set.expected_blocks,
            rows=block_set.rows,
            bytes=block_set.bytes,
            lower=least,
            upper=greatest,
            depth=block_set.depth,
            expected_depth=block_set.expected_depth,
        )
        for block_set, (least, greatest) in zip(sets, bounds, strict=True)
    )
    after = clustering_information(simulate(blocks.blocks, plan, policy)).average_depth
    speed = rewrite_speed(table)
    seconds = None if speed is None else round(plan.bytes / speed, 1)
    return RewritePlan(planned, plan.bytes, plan.rows, after, seconds)
