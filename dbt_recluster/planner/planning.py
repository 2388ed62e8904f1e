"""The plan: the block sets to merge now, and the blocks that merging them will leave."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dbt_recluster.exceptions import PolicyError
from dbt_recluster.planner.arrays import IntArray, Sweep
from dbt_recluster.planner.blocks import Blocks, Extents
from dbt_recluster.planner.candidates import BlockSets, Candidates, own_depth
from dbt_recluster.planner.gain import written_blocks
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
from dbt_recluster.planner.strategies.age_groups import compacted_levels


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
    reason, needed = reason_of(blocks, eligible, selection, policy), None
    limit = policy.max_set_bytes
    if len(selection.sets) == 0 and limit is not None:
        unlimited = select(replace(policy, max_bytes=None, max_merge_bytes=None))
        if len(unlimited.sets):
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
        needed is not None,
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
    in_blocks = sets.at(eligible.position)
    lower, upper = in_blocks.least(blocks.lower), in_blocks.greatest(blocks.upper)
    level = np.empty(len(sets), np.int64)
    level[kind == MERGE] = BY_NAME[policy.strategy].written_levels(eligible, selection.of(MERGE))
    level[kind == COMPACTION] = compacted_levels(eligible, selection.of(COMPACTION))
    level[kind == DELETED] = selection.of(DELETED).greatest(eligible.level)
    columns = zip(
        np.split(in_blocks.member, sets.start[1:]),
        level.tolist(),
        sets.total(eligible.rows * (blocks.rows is not None)).tolist(),
        sets.total(eligible.bytes).tolist(),
        own_depth(eligible, sets).tolist(),
        _expected_depth(eligible, sets).tolist(),
        expected_blocks(eligible, sets, policy).tolist(),
        _runs(level, lower, upper),
        _first_in_sets(in_blocks, blocks.lower, lower),
        _first_in_sets(in_blocks, blocks.upper, upper),
        eligible.partition[sets.member[sets.start]].tolist(),
        strict=True,
    )
    return tuple(BlockSet(np.sort(members), *values) for members, *values in columns)


def _first_in_sets(sets: BlockSets, bounds: IntArray, wanted: IntArray) -> list[int]:
    """The first member of each set whose bound is the wanted one of the set, (sets,). Every set must have one."""
    place = np.flatnonzero(bounds[sets.member] == np.repeat(wanted, sets.size))
    first: list[int] = sets.member[place[np.searchsorted(place, sets.start)]].tolist()
    return first


def _expected_depth(eligible: Candidates, sets: BlockSets) -> IntArray:
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
    free: dict[int, list[tuple[int, int]]] = {}  # upper end and number of the runs of each level
    count = 0
    for place in np.lexsort((upper, lower, level)).tolist():
        of_level = free.setdefault(int(level[place]), [])
        if of_level and of_level[0][0] <= lower[place]:
            runs[place] = of_level[0][1]
            heapq.heapreplace(of_level, (int(upper[place]), runs[place]))
        else:
            runs[place] = count
            heapq.heappush(of_level, (int(upper[place]), count))
            count += 1
    return runs


@dataclass(frozen=True)
class Simulation:
    """Result of repeating plan and merge.

    Attributes:
        blocks: The blocks at the end.
        plans: The plans in order, without empty ones.
        rows: Rows rewritten in all of them.
        bytes: Bytes read in all of them.
    """

    blocks: Blocks
    plans: tuple[Plan, ...]
    rows: int
    bytes: int


def simulate_final(blocks: Blocks, policy: Policy, rounds: int | None = None) -> Simulation:
    """Repeat plan and merge until the plan is empty.

    Args:
        blocks: n blocks.
        policy: Its `max_bytes` limits all rounds together.
        rounds: Most rounds, or None for no limit.
    """
    plans: list[Plan] = []
    spent = 0
    while rounds is None or len(plans) < rounds:
        left = None if policy.max_bytes is None else policy.max_bytes - spent
        planned = plan(blocks, replace(policy, max_bytes=left))
        if not planned.block_sets:
            break
        plans.append(planned)
        spent += planned.bytes
        blocks = simulate(blocks, planned, policy)
    return Simulation(blocks, tuple(plans), sum(planned.rows for planned in plans), spent)


def simulate(blocks: Blocks, plan: Plan, policy: Policy) -> Blocks:
    """Predict the blocks after a plan's merges, from bounds and row counts alone (see `written_blocks`).

    Each set's rows are cut into its `expected_blocks` of nearly equal size. The rows of one key stay
    in one block unless they fill more than one.

    Args:
        blocks: The n blocks that were planned.
        plan: Their plan.
        policy: Its `block_rows` is the size to cut to.

    Returns:
        The blocks in no set, in their order, then the new blocks of each set, in the order of the key.
    """
    sets = plan.block_sets
    if not sets:
        return blocks
    size = np.array([len(block_set.blocks) for block_set in sets])
    members = BlockSets(np.concatenate([block_set.blocks for block_set in sets]), np.cumsum(size) - size)
    expected = np.array([block_set.expected_blocks for block_set in sets])
    written = written_blocks(blocks, members, expected, policy.block_rows)
    kept = np.ones(len(blocks), np.bool_)
    kept[members.member] = False
    lower, upper = np.append(blocks.lower[kept], written.lower), np.append(blocks.upper[kept], written.upper)
    points = np.unique(np.append(lower, upper))

    # An end may lie at a bound that no longer exists; it moves outwards, as far as the block's own bound at most.
    def lower_ends(ends: IntArray) -> IntArray:
        return np.searchsorted(points, np.append(ends[kept], written.lower), side="right") - 1

    def upper_ends(ends: IntArray) -> IntArray:
        return np.searchsorted(points, np.append(ends[kept], written.upper))

    def values(kept_from: IntArray, of_sets: list[int]) -> IntArray:
        return np.append(kept_from[kept], np.array(of_sets, np.int64)[written.block_set])

    counts = np.bincount(written.block_set, minlength=len(sets)).tolist()
    sizes = [block_set.bytes // max(1, count) for block_set, count in zip(sets, counts, strict=True)]
    old, no_block = blocks.extents, np.zeros(len(written.rows), np.bool_)
    next_run = max(0, int(blocks.run.max())) + 1
    return Blocks(
        lower=np.searchsorted(points, lower),
        upper=np.searchsorted(points, upper),
        points=len(points),
        rows=None if blocks.rows is None else np.append(blocks.rows[kept], written.rows),
        bytes=None if blocks.bytes is None else values(blocks.bytes, sizes),
        level=values(blocks.level, [block_set.level for block_set in sets]),
        run=values(blocks.run, [next_run + block_set.run for block_set in sets]),
        partition=values(blocks.partition, [block_set.partition for block_set in sets]),
        unbounded=np.append(blocks.unbounded[kept], no_block),
        fixed=np.append(blocks.fixed[kept], no_block),
        extents=Extents(
            lower_ends(old.lower),
            upper_ends(old.upper),
            lower_ends(old.shown_lower),
            upper_ends(old.shown_upper),
            np.append(old.unnarrowed[kept], no_block),
        ),
        deleted=None if blocks.deleted is None else values(blocks.deleted, [0] * len(sets)),
        reads=None if blocks.reads is None else blocks.reads.moved(points),
    )
