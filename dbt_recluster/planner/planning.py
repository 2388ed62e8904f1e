"""The plan: the block sets to merge now."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dbt_recluster.exceptions import PolicyError
from dbt_recluster.planner.arrays import BoolArray, Int32Array, IntArray, Sweep
from dbt_recluster.planner.block_sets import BlockSets, own_depth
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import Candidates
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.selection import (
    COMPACTION,
    DELETED,
    MERGE,
    Selection,
    expected_blocks,
    limited_reason,
    reason_of,
    select_sets,
)
from dbt_recluster.planner.strategies import BY_NAME
from dbt_recluster.planner.strategies.levels import compacted_levels


@dataclass(frozen=True, eq=False)
class BlockSet:
    """Blocks to merge together.

    Attributes:
        blocks: Positions in the planned `Blocks`, int64 (k,), ascending: two or more, or one with many deleted rows.
        level: Level of the blocks that the merge will write.
        rows: Rows to rewrite; 0 if unknown.
        bytes: Bytes to read; 0 if unknown.
        depth: Greatest depth of its blocks alone; touching does not count. 1 for a compaction.
        expected_depth: Greatest depth of candidates over its keys after the whole plan; touching does not count.
        expected_blocks: Blocks that the merge will write, one for every `Policy.block_rows` rows, or
            `Policy.block_bytes` bytes if these are more.
        run: Sets of a plan with the same run write disjoint blocks of one level, which may be committed as one run.
        lower_block: Position of a block that has the set's least lower bound.
        upper_block: Position of a block that has the set's greatest upper bound.
        partition: Code of its partition in `Blocks.partition`.
    """

    blocks: IntArray
    level: int
    rows: int
    bytes: int
    depth: int
    expected_depth: int
    expected_blocks: int
    run: int
    lower_block: int
    upper_block: int
    partition: int


@dataclass(frozen=True)
class Plan:
    """The block sets to merge now; none if nothing is to be done.

    Attributes:
        block_sets: Best first. No block is in two of them, so they may be merged at the same time.
        rows: Rows to rewrite in all sets; 0 if unknown.
        bytes: Bytes to read in all sets; 0 if unknown.
        reason: Why there is, or is not, something to do.
        limited: Whether the plan is empty only because of `Policy.max_bytes` or `Policy.max_merge_bytes`.
        reducible_depth: The depth that was compared with `Policy.depth`, in the worst partition: the average depth as
            far as merges can reduce it. 0 if no block can be narrowed.
        by_reads: Whether the read depth was compared instead.
        needed: If ``limited``, the least budget of bytes, to a sixteenth, for which there is a plan.
    """

    block_sets: tuple[BlockSet, ...]
    rows: int
    bytes: int
    reason: str
    limited: bool = False
    reducible_depth: float = 0.0
    by_reads: bool = False
    needed: int | None = None


def plan(blocks: Blocks, policy: Policy) -> Plan:
    """Plan which block sets to merge now, in O(n log n).

    The same blocks give the same plan in any order. Repeating plan and merge ends with an empty plan. A merge raises
    the depth of no key, except of keys whose rows alone fill a block, and from 0 to 1 between small neighbours.
    With `payback`, blocks of which many rows are deleted are rewritten too, each alone.

    Args:
        blocks: n blocks.
        policy: The strategy, the threshold and the limits.

    Raises:
        PolicyError: The policy limits bytes, and the blocks' bytes are unknown.
    """
    if blocks.bytes is None and policy.max_set_bytes is not None:
        raise PolicyError("max_bytes and max_merge_bytes need the blocks' bytes, which are not known")
    if len(blocks) == 0:
        return Plan((), 0, 0, "no blocks")
    eligible = policy.candidates(blocks)
    select = partial(select_sets, blocks, eligible, policy.thresholds(np.bincount(blocks.partition)))
    selection = select(policy)
    reason, limited, needed = reason_of(blocks, eligible, selection, policy), False, None
    limit = policy.max_set_bytes
    if len(selection.sets) == 0 and limit is not None:
        unlimited = select(replace(policy, max_bytes=None, max_merge_bytes=None))
        if limited := len(unlimited.sets) > 0:
            needed = _needed_bytes(
                lambda budget: len(select(replace(policy, max_bytes=budget, max_merge_bytes=None)).sets) > 0,
                limit,
                int(unlimited.sets.total(eligible.bytes).min()),
            )
            reason = limited_reason(reason_of(blocks, eligible, unlimited, policy), limit, needed)
    block_sets = _block_sets(blocks, eligible, selection, policy)
    return Plan(
        block_sets,
        sum(block_set.rows for block_set in block_sets),
        sum(block_set.bytes for block_set in block_sets),
        reason,
        limited,
        selection.worst.depth,
        selection.worst.by_reads,
        needed,
    )


def _needed_bytes(suffices: Callable[[int], bool], limit: int, most: int) -> int:
    """Return a budget that suffices for a plan, where the limit does not: sets are cut to fit into a budget.

    Args:
        suffices: Whether a budget leaves a set.
        limit: The limit, in bytes.
        most: Bytes that suffice.
    """
    least = min(limit, most)
    while 2 * least < most and not suffices(max(1, 2 * least)):
        least = max(1, 2 * least)
    most = min(most, max(1, 2 * least))
    while most - least > max(1, most // 16):
        middle = (least + most) // 2
        least, most = (least, middle) if suffices(middle) else (middle, most)
    return most


def _block_sets(
    blocks: Blocks, eligible: Candidates, selection: Selection, policy: Policy
) -> tuple[BlockSet, ...]:
    sets, kind = selection.sets, selection.kind
    if len(sets) == 0:
        return ()
    position = eligible.position[sets.member].astype(np.int64)
    lower, upper = blocks.lower[position], blocks.upper[position]
    least, greatest = np.minimum.reduceat(lower, sets.start), np.maximum.reduceat(upper, sets.start)
    set_of_member = np.repeat(np.arange(len(sets)), sets.size)
    level = np.empty(len(sets), np.int64)
    level[kind == MERGE] = BY_NAME[policy.strategy].written_levels(eligible, selection.of(MERGE))
    level[kind == COMPACTION] = compacted_levels(eligible, selection.of(COMPACTION))
    level[kind == DELETED] = selection.of(DELETED).greatest(eligible.level)
    rows = sets.total(eligible.rows)
    columns = zip(
        np.split(position, sets.start[1:]),
        level.tolist(),
        (rows if blocks.rows is not None else np.zeros_like(rows)).tolist(),
        sets.total(eligible.bytes).tolist(),
        own_depth(eligible, sets).tolist(),
        _expected_depth(eligible, sets).tolist(),
        expected_blocks(eligible, sets, policy).tolist(),
        _runs(level, least, greatest),
        _first_in_sets(position, lower == least[set_of_member], set_of_member),
        _first_in_sets(position, upper == greatest[set_of_member], set_of_member),
        eligible.partition[sets.member[sets.start]].tolist(),
        strict=True,
    )
    return tuple(BlockSet(np.sort(members), *values) for members, *values in columns)


def _first_in_sets(position: IntArray, where: BoolArray, set_of_member: IntArray) -> list[int]:
    """For each set, its first position where ``where`` is true. Every set must have one."""
    place = np.flatnonzero(where)
    first: list[int] = position[place[np.unique(set_of_member[place], return_index=True)[1]]].tolist()
    return first


def _expected_depth(eligible: Candidates, sets: BlockSets) -> Int32Array:
    """Greatest depth over each set's cells when every set has become disjoint blocks: int32 (sets,)."""
    untouched = np.ones(len(eligible), np.bool_)
    untouched[sets.member] = False
    first, last = sets.least(eligible.first), sets.greatest(eligible.last)
    cells = np.concatenate([first, eligible.first[untouched], last, eligible.last[untouched]])
    return Sweep.over_cells(cells).depths(len(sets))


def _runs(level: IntArray, lower: IntArray, upper: IntArray) -> list[int]:
    """Number the fewest runs such that sets of one run have one level and key ranges that at most touch.

    This is greedy interval colouring, which is optimal when intervals are taken in the order of their lower ends.
    """
    runs = [0] * len(level)
    free: list[tuple[int, int]] = []  # upper end and number of the runs of this level
    current = None
    count = 0
    for place in np.lexsort((upper, lower, level)).tolist():
        if level[place] != current:
            free, current = [], level[place]
        if free and free[0][0] <= lower[place]:
            runs[place] = free[0][1]
            heapq.heapreplace(free, (int(upper[place]), runs[place]))
        else:
            runs[place] = count
            heapq.heappush(free, (int(upper[place]), count))
            count += 1
    return runs
