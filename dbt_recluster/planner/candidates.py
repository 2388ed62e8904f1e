"""Candidates: the blocks that planning may choose, and where on the key axis they count.

Reported depth counts touching bounds as overlap; planning must not, or a perfectly sorted table whose blocks
share boundary values would never come to rest. So planning works on cells. Every distinct bound is a cell,
and so is every gap between two neighbouring bounds. A block covers the cells strictly between its bounds, a
constant block the cell of its only key. Two blocks that share one boundary value thus have no cell in common,
however many of them meet there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, IntArray, PlaceArray, dense_ranks, narrow
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.depth import Sweep
from dbt_recluster.planner.policy import Policy


@dataclass(frozen=True, eq=False)
class Candidates:
    """Blocks that may be rewritten, in an order that does not depend on the order in which they were given.

    Attributes:
        position: where each stands in the `Blocks` they come from, int32 (c,).
        first: its first cell, int32 (c,), ascending.
        last: its last cell, int32 (c,), at least first.
        level: int32 (c,).
        rows: int32 (c,), or int64 where one does not fit; where rows are not known, a full block's.
        bytes: as rows, (c,); 0 where not known.
        partition: int32 (c,).
    """

    position: PlaceArray
    first: PlaceArray
    last: PlaceArray
    level: PlaceArray
    rows: IntArray | PlaceArray
    bytes: IntArray | PlaceArray
    partition: PlaceArray

    def __len__(self) -> int:
        """Number of candidates."""
        return len(self.position)

    def sweep(self, members: IntArray) -> Sweep:
        """Sweep over some candidates, by cells made dense.

        Args:
            members: int64 (m,), places in these candidates.

        Returns:
            A sweep over m intervals.
        """
        cells, points = dense_ranks(np.concatenate([self.first[members], self.last[members]]))
        return Sweep.over(cells[: len(members)], cells[len(members) :], points)


def full_constants(blocks: Blocks, policy: Policy) -> BoolArray:
    """Constant blocks with full row count, level -1 of the RFC: rewriting them gains nothing.

    Full means at least half of `Policy.block_rows`: two such blocks of one key would not fit into one.
    Databend's code asks for 0.8 of it, with blocks cut no smaller. Blocks whose rows are not known count as
    full.

    Returns:
        bool (n,).
    """
    return blocks.constant & (True if blocks.rows is None else 2 * blocks.rows >= policy.block_rows)


def candidates(blocks: Blocks, policy: Policy) -> Candidates:
    """Choose the blocks that planning may rewrite.

    Left out are levels below 0 and of `Policy.max_level` and above, full constant blocks, and blocks whose
    upper bound is still not known after they have been reclustered: rewriting has not given them bounds, so
    it never will.
    """
    eligible = (blocks.level >= 0) & (blocks.level < policy.max_level) & ~full_constants(blocks, policy)
    eligible &= ~blocks.unbounded | (blocks.level == 0)
    eligible &= blocks.extent_lower <= blocks.extent_upper
    position = narrow(np.flatnonzero(eligible))
    inside = (blocks.extent_lower < blocks.extent_upper)[position]
    first = narrow(2 * blocks.extent_lower[position] + inside)
    last = narrow(2 * blocks.extent_upper[position] - inside)
    others = [array for array in (blocks.level, blocks.rows, blocks.bytes, blocks.run) if array is not None]
    order = _order(first, last, position, others)
    position = position[order]
    # Where nothing is known, one number stands for all, and takes no memory.
    return Candidates(
        position,
        first[order],
        last[order],
        narrow(blocks.level[position]),
        np.broadcast_to(np.int64(policy.block_rows), len(position))
        if blocks.rows is None
        else narrow(blocks.rows[position]),
        np.broadcast_to(np.int64(0), len(position))
        if blocks.bytes is None
        else narrow(blocks.bytes[position]),
        narrow(blocks.partition[position])
        if blocks.partition.any()
        else np.broadcast_to(np.int32(0), len(position)),
    )


def _order(first: PlaceArray, last: PlaceArray, position: PlaceArray, others: list[IntArray]) -> IntArray:
    """Order by first, last and then the others, which are only looked at where first and last tie.

    Args:
        first: int32 (c,).
        last: int32 (c,).
        position: of the c candidates in n blocks, int32 (c,).
        others: each int64 (n,).

    Returns:
        int64 (c,).
    """
    if len(first) == 0:
        return np.zeros(0, np.int64)
    key = first.astype(np.int64)
    key *= int(last.max()) + 1
    key += last
    order = np.argsort(key)
    arranged = key[order]
    same = arranged[1:] == arranged[:-1]
    del arranged
    if same.any():
        tied = np.zeros(len(order), np.bool_)
        tied[1:] |= same
        tied[:-1] |= same
        block = order[tied]
        keys = [*(other[position[block]] for other in reversed(others)), key[block]]
        order[tied] = block[np.lexsort(keys)]
    return order
