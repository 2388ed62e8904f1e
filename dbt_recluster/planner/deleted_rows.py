"""Deleted rows: which blocks are worth a rewrite for the deleted rows that reads still scan."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import IntArray
from dbt_recluster.planner.block_sets import BlockSets, no_sets
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.policy import Policy


def select_purges(blocks: Blocks, candidates: Candidates, taken: IntArray, policy: Policy) -> BlockSets:
    """Make a set of each block that has `Policy.deleted_share` of its rows deleted and is in no other set.

    Merging it with itself writes the rows that are left, within its bounds, so no key becomes deeper, and the new
    block has no deleted rows, so it is not selected again.

    Args:
        blocks: n blocks.
        candidates: Those that a plan may rewrite.
        taken: Positions in the candidates of the blocks of other sets, int64 (m,).
        policy: The share, and `max_merge_bytes`.
    """
    if blocks.deleted is None:
        return no_sets()
    worth = blocks.deleted_at_least(policy.deleted_share)[candidates.position]
    worth[taken] = False
    if policy.max_merge_bytes is not None:
        worth &= candidates.bytes <= policy.max_merge_bytes
    member = np.flatnonzero(worth)
    return BlockSets(member, np.arange(len(member)))
