"""Deleted rows: which blocks are worth a rewrite for the rows that reads take from them in vain."""

from __future__ import annotations

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, FloatArray, Int32Array, IntArray
from dbt_recluster.planner.block_sets import BlockSets, no_sets
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.policy import Policy


def deleted_share(blocks: Blocks, position: IntArray | Int32Array) -> FloatArray:
    """Share of the rows of some blocks, given by position, that are deleted: float64 (m,)."""
    if blocks.deleted is None or blocks.rows is None:
        return np.zeros(len(position))
    share: FloatArray = blocks.deleted[position] / np.maximum(blocks.rows[position], 1)
    return share


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
    worth: BoolArray = deleted_share(blocks, candidates.position) >= policy.deleted_share
    worth[taken] = False
    if policy.max_merge_bytes is not None:
        worth &= candidates.bytes <= policy.max_merge_bytes
    member = np.flatnonzero(worth)
    return BlockSets(member, np.arange(len(member)))


def live_rows(blocks: Blocks, candidates: Candidates) -> IntArray | Int32Array:
    """Rows of each candidate that are not deleted: (c,)."""
    return (
        candidates.rows if blocks.deleted is None else candidates.rows - blocks.deleted[candidates.position]
    )


def live_bytes(blocks: Blocks, candidates: Candidates) -> IntArray | Int32Array:
    """Bytes of each candidate that its rows that are not deleted take, at least 1 if any: (c,)."""
    if blocks.deleted is None:
        return candidates.bytes
    live: IntArray = np.ceil(candidates.bytes * (1 - deleted_share(blocks, candidates.position))).astype(
        np.int64
    )
    return live
