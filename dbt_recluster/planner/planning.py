"""The plan: the block sets to merge now."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from dbt_recluster.exceptions import PolicyError
from dbt_recluster.planner.arrays import BoolArray, FloatArray, Int32Array, IntArray
from dbt_recluster.planner.block_sets import BlockSets, Selection, own_depth, within_bytes
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import Candidates, candidates
from dbt_recluster.planner.depth import Sweep
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.strategies import BY_NAME


@dataclass(frozen=True, eq=False)
class BlockSet:
    """Blocks to merge together.

    Attributes:
        blocks: Positions in the planned `Blocks`, int64 (k,), ascending, at least two.
        level: Level of the blocks that the merge will write.
        rows: Rows to rewrite; 0 if unknown.
        bytes: Bytes to read; 0 if unknown.
        depth: Greatest depth of its blocks alone; touching does not count.
        expected_depth: Greatest depth of candidates over its keys after the whole plan; touching does not count.
        expected_blocks: Blocks that the merge will write, one for every `Policy.block_rows` rows.
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
    the depth of no key, except of keys whose rows alone fill a block.

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
    selection, sets = _select(eligible, thresholds, policy)
    limited = False
    if len(sets) == 0 and (policy.max_bytes is not None or policy.max_merge_bytes is not None):
        unlimited = replace(policy, max_bytes=None, max_merge_bytes=None)
        limited = len(_select(eligible, thresholds, unlimited)[1]) > 0
    block_sets = _block_sets(blocks, eligible, sets, policy)
    return Plan(
        block_sets,
        sum(block_set.rows for block_set in block_sets),
        sum(block_set.bytes for block_set in block_sets),
        _limited_reason(selection, thresholds, policy) if limited else _reason(selection, sets, thresholds),
        limited,
    )


def _select(eligible: Candidates, thresholds: FloatArray, policy: Policy) -> tuple[Selection, BlockSets]:
    """Return the strategy's selection, and those of its sets that fit into the budget."""
    selection = BY_NAME[policy.strategy].select(eligible, thresholds, policy)
    return selection, within_bytes(eligible, selection.sets, policy.max_bytes)


def _thresholds(blocks: Blocks, policy: Policy) -> FloatArray:
    """Threshold of each partition's average depth, float64 (partitions,)."""
    count = np.bincount(blocks.partition)
    if policy.depth >= 1:
        return np.full(len(count), float(policy.depth))
    thresholds: FloatArray = np.maximum(1.0, policy.depth * count)
    return thresholds


def _reason(selection: Selection, sets: BlockSets, thresholds: FloatArray) -> str:
    depth, threshold = selection.average_depth, _shown(thresholds)
    if len(sets):
        return f"average depth {depth:.4g} is above {threshold}"
    if depth == 0:
        return "no block can be narrowed: all are full blocks of a single key"
    if depth > float(thresholds.min()):
        return f"average depth {depth:.4g} is above {threshold}, but no merge would lower it"
    return f"average depth {depth:.4g} is at most {threshold}"


def _limited_reason(selection: Selection, thresholds: FloatArray, policy: Policy) -> str:
    limit = min(limit for limit in (policy.max_bytes, policy.max_merge_bytes) if limit is not None)
    depth, threshold = selection.average_depth, _shown(thresholds)
    return f"average depth {depth:.4g} is above {threshold}, and no block set fits into {limit:,} bytes"


def _shown(thresholds: FloatArray) -> str:
    least, greatest = float(thresholds.min()), float(thresholds.max())
    return f"{least:.4g}" if least == greatest else f"{least:.4g} to {greatest:.4g}"


def _block_sets(
    blocks: Blocks, eligible: Candidates, sets: BlockSets, policy: Policy
) -> tuple[BlockSet, ...]:
    if len(sets) == 0:
        return ()
    position = eligible.position[sets.member].astype(np.int64)
    lower, upper = blocks.lower[position], blocks.upper[position]
    least, greatest = np.minimum.reduceat(lower, sets.start), np.maximum.reduceat(upper, sets.start)
    set_of_member = np.repeat(np.arange(len(sets)), sets.size)
    level = BY_NAME[policy.strategy].written_levels(eligible, sets)
    rows = sets.total(eligible.rows)
    columns = zip(
        np.split(position, sets.start[1:]),
        level.tolist(),
        (rows if blocks.rows is not None else np.zeros_like(rows)).tolist(),
        sets.total(eligible.bytes).tolist(),
        own_depth(eligible, sets).tolist(),
        _expected_depth(eligible, sets).tolist(),
        np.maximum(1, -(-rows // policy.block_rows)).tolist(),
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
