"""The plan: the block sets to merge now."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from dbt_recluster.exceptions import PolicyError
from dbt_recluster.planner.arrays import BoolArray, FloatArray, Int32Array, IntArray
from dbt_recluster.planner.block_sets import BlockSets, fit_into_bytes, no_sets, own_depth
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import Candidates, candidates
from dbt_recluster.planner.depth import Sweep
from dbt_recluster.planner.joins import select_joins
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.small_blocks import full_blocks, small_blocks
from dbt_recluster.planner.strategies import BY_NAME
from dbt_recluster.planner.strategies.coverage import Extents
from dbt_recluster.planner.strategies.levels import joined_levels


@dataclass(frozen=True, eq=False)
class BlockSet:
    """Blocks to merge together.

    Attributes:
        blocks: Positions in the planned `Blocks`, int64 (k,), ascending, at least two.
        level: Level of the blocks that the merge will write.
        rows: Rows to rewrite; 0 if unknown.
        bytes: Bytes to read; 0 if unknown.
        depth: Greatest depth of its blocks alone; touching does not count. 1 if they are neighbours to join.
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
    """

    block_sets: tuple[BlockSet, ...]
    rows: int
    bytes: int
    reason: str
    limited: bool = False


def plan(blocks: Blocks, policy: Policy) -> Plan:
    """Plan which block sets to merge now, in O(n log n).

    The same blocks give the same plan in any order. Repeating plan and merge ends with an empty plan. A merge raises
    the depth of no key, except of keys whose rows alone fill a block, and from 0 to 1 between blocks that it joins.

    Args:
        blocks: n blocks.
        policy: The strategy, the threshold and the limits.

    Raises:
        PolicyError: The policy limits bytes, and the blocks' bytes are unknown.
    """
    if blocks.bytes is None and (policy.max_bytes is not None or policy.max_merge_bytes is not None):
        raise PolicyError("max_bytes and max_merge_bytes need the blocks' bytes, which are not known")
    if len(blocks) == 0:
        return Plan((), 0, 0, "no blocks")
    eligible = candidates(blocks, policy)
    thresholds = _thresholds(blocks, policy)
    selected = _select(blocks, eligible, thresholds, policy)
    reason, limited = _reason(eligible, selected, thresholds, policy), False
    if len(selected.sets) == 0 and (policy.max_bytes is not None or policy.max_merge_bytes is not None):
        unlimited = _select(
            blocks, eligible, thresholds, replace(policy, max_bytes=None, max_merge_bytes=None)
        )
        if limited := len(unlimited.sets) > 0:
            reason = _limited_reason(_reason(eligible, unlimited, thresholds, policy), policy)
    block_sets = _block_sets(blocks, eligible, selected, policy)
    return Plan(
        block_sets,
        sum(block_set.rows for block_set in block_sets),
        sum(block_set.bytes for block_set in block_sets),
        reason,
        limited,
    )


@dataclass(frozen=True, eq=False)
class _SelectedSets:
    """The sets of a plan.

    Attributes:
        sets: Those of the strategy and those that join small blocks, best first.
        is_join: Which of them join small blocks, bool (sets,).
        average_depth: See `Selection`.
    """

    sets: BlockSets
    is_join: BoolArray
    average_depth: float


def _select(blocks: Blocks, eligible: Candidates, thresholds: FloatArray, policy: Policy) -> _SelectedSets:
    """Select the strategy's sets and those that join small blocks, as far as they fit into the budget."""
    strategy = BY_NAME[policy.strategy]
    sets, average_depth = strategy.select(eligible, thresholds, policy)
    joins = select_joins(blocks, eligible, sets.member, policy) if strategy.joins else no_sets()
    is_join = np.arange(len(sets) + len(joins)) >= len(sets)
    if len(joins):
        sets = sets.then(joins)
        # The strategy's own order where there is nothing to compare it with.
        if not is_join.all():
            order = np.argsort(-_savings(blocks, eligible, sets, policy), kind="stable")
            sets, is_join = sets.in_order(order), is_join[order]
    fits = fit_into_bytes(eligible, sets, policy.max_bytes)
    return _SelectedSets(sets.only(fits), is_join[fits], average_depth)


def _savings(blocks: Blocks, eligible: Candidates, sets: BlockSets, policy: Policy) -> FloatArray:
    """Blocks that reads need not open after each set is merged, for each byte rewritten: float64 (sets,).

    A read of one key opens every block over it, and a read of a range, or planning a scan, every block in it. So a set
    saves the coverage that it removes, in lengths of blocks, and the blocks that it leaves fewer. Both count alike, as
    if there were a read of a range as long as a block for each read of one key.
    """
    extents = Extents.of(eligible.first, eligible.last).take(sets.member)
    hull = np.maximum.reduceat(extents.end, sets.start) - np.minimum.reduceat(extents.begin, sets.start)
    # A block alone on the axis is two units long.
    removed = (np.add.reduceat(extents.length, sets.start, dtype=np.int64) - hull) / 2
    fewer = np.maximum(sets.size - _expected_blocks(eligible, sets, policy), 0)
    cost = sets.total(eligible.rows if blocks.bytes is None else eligible.bytes)
    savings: FloatArray = (np.maximum(removed, 0) + fewer) / np.maximum(cost, 1)
    return savings


def _expected_blocks(eligible: Candidates, sets: BlockSets, policy: Policy) -> IntArray:
    """Blocks that merging each set will write: int64 (sets,)."""
    rows, size = sets.total(eligible.rows), sets.total(eligible.bytes)
    return full_blocks(rows, size, policy.block_rows, policy.block_bytes)


def _thresholds(blocks: Blocks, policy: Policy) -> FloatArray:
    """Threshold of each partition's average depth, float64 (partitions,)."""
    count = np.bincount(blocks.partition)
    if policy.depth >= 1:
        return np.full(len(count), float(policy.depth))
    thresholds: FloatArray = np.maximum(1.0, policy.depth * count)
    return thresholds


def _reason(eligible: Candidates, selected: _SelectedSets, thresholds: FloatArray, policy: Policy) -> str:
    depth, threshold = selected.average_depth, _shown(thresholds)
    joins = _joins_text(eligible, selected.sets.only(selected.is_join), policy)
    if not selected.is_join.all():
        return f"average depth {depth:.4g} is above {threshold}" + (f", and {joins}" if joins else "")
    if joins:
        return joins
    if depth == 0:
        return "no block can be narrowed: all are full blocks of a single key"
    if depth > float(thresholds.min()):
        return f"average depth {depth:.4g} is above {threshold}, but no merge would lower it"
    return f"average depth {depth:.4g} is at most {threshold}"


def _joins_text(eligible: Candidates, joins: BlockSets, policy: Policy) -> str:
    """Describe joins: "53 small blocks make 6 full ones"; nothing if there are none."""
    if len(joins) == 0:
        return ""
    rows, size = eligible.rows[joins.member], eligible.bytes[joins.member]
    small = int(np.count_nonzero(small_blocks(rows, size, policy.block_rows, policy.block_bytes)))
    blocks, written = len(joins.member), int(_expected_blocks(eligible, joins, policy).sum())
    joined = f"{blocks} small blocks" if small == blocks else f"{blocks} blocks, {small} of them small,"
    rows, size = joins.total(eligible.rows), joins.total(eligible.bytes)
    # The joins of a lower tier leave small blocks.
    larger = small_blocks(rows, size, policy.block_rows, policy.block_bytes).any()
    kind = "larger" if larger else "full"
    return f"{joined} make {written} {kind} one{'s' if written > 1 else ''}"


def _limited_reason(reason: str, policy: Policy) -> str:
    limit = min(limit for limit in (policy.max_bytes, policy.max_merge_bytes) if limit is not None)
    return f"{reason}, and no block set fits into {limit:,} bytes"


def _shown(thresholds: FloatArray) -> str:
    least, greatest = float(thresholds.min()), float(thresholds.max())
    return f"{least:.4g}" if least == greatest else f"{least:.4g} to {greatest:.4g}"


def _block_sets(
    blocks: Blocks, eligible: Candidates, selected: _SelectedSets, policy: Policy
) -> tuple[BlockSet, ...]:
    sets, is_join = selected.sets, selected.is_join
    if len(sets) == 0:
        return ()
    position = eligible.position[sets.member].astype(np.int64)
    lower, upper = blocks.lower[position], blocks.upper[position]
    least, greatest = np.minimum.reduceat(lower, sets.start), np.maximum.reduceat(upper, sets.start)
    set_of_member = np.repeat(np.arange(len(sets)), sets.size)
    level = np.empty(len(sets), np.int64)
    level[is_join] = joined_levels(eligible, sets.only(is_join))
    level[~is_join] = BY_NAME[policy.strategy].written_levels(eligible, sets.only(~is_join))
    rows = sets.total(eligible.rows)
    columns = zip(
        np.split(position, sets.start[1:]),
        level.tolist(),
        (rows if blocks.rows is not None else np.zeros_like(rows)).tolist(),
        sets.total(eligible.bytes).tolist(),
        own_depth(eligible, sets).tolist(),
        _expected_depth(eligible, sets).tolist(),
        _expected_blocks(eligible, sets, policy).tolist(),
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
