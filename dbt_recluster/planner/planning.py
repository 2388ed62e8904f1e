"""The plan: the block sets to merge now."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from dbt_recluster.exceptions import PolicyError
from dbt_recluster.planner.arrays import BoolArray, FloatArray, Int32Array, IntArray
from dbt_recluster.planner.block_sets import BlockSets, fit_into_bytes, own_depth
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import Candidates, candidates
from dbt_recluster.planner.deleted_rows import deleted_share, live_bytes, live_rows, select_purges
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
        blocks: Positions in the planned `Blocks`, int64 (k,), ascending: two or more, or one with many deleted rows.
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
    With `payback`, blocks of which many rows are deleted are rewritten too, each alone.

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
    reason, limited = _reason(blocks, eligible, selected, thresholds, policy), False
    if len(selected.sets) == 0 and (policy.max_bytes is not None or policy.max_merge_bytes is not None):
        unlimited = _select(
            blocks, eligible, thresholds, replace(policy, max_bytes=None, max_merge_bytes=None)
        )
        if limited := len(unlimited.sets) > 0:
            reason = _limited_reason(_reason(blocks, eligible, unlimited, thresholds, policy), policy)
    block_sets = _block_sets(blocks, eligible, selected, policy)
    return Plan(
        block_sets,
        sum(block_set.rows for block_set in block_sets),
        sum(block_set.bytes for block_set in block_sets),
        reason,
        limited,
    )


_MERGE, _JOIN, _PURGE = range(3)


@dataclass(frozen=True, eq=False)
class _SelectedSets:
    """The sets of a plan.

    Attributes:
        sets: Those of the strategy, those that join small blocks, and those of one block with many deleted rows, best
            first.
        kind: Which of the three each is: `_MERGE`, `_JOIN` or `_PURGE`, int64 (sets,).
        average_depth: See `Selection`.
    """

    sets: BlockSets
    kind: IntArray
    average_depth: float

    def of(self, kind: int) -> BlockSets:
        """The sets of one kind."""
        return self.sets.only(self.kind == kind)


def _select(blocks: Blocks, eligible: Candidates, thresholds: FloatArray, policy: Policy) -> _SelectedSets:
    """Select the strategy's sets and those beside it, as far as they fit into the budget."""
    strategy = BY_NAME[policy.strategy]
    sets, average_depth = strategy.select(eligible, thresholds, policy)
    kind = np.full(len(sets), _MERGE)
    if strategy.joins:
        joins = select_joins(blocks, eligible, sets.member, policy)
        purges = select_purges(blocks, eligible, np.concatenate([sets.member, joins.member]), policy)
        kind = np.repeat([_MERGE, _JOIN, _PURGE], [len(sets), len(joins), len(purges)])
        sets = sets.then(joins).then(purges)
        # The order of the strategy, or along the key, where there is nothing to compare.
        if len(purges) or len(np.unique(kind)) > 1:
            order = np.argsort(-_savings(blocks, eligible, sets, policy), kind="stable")
            sets, kind = sets.in_order(order), kind[order]
    fits = fit_into_bytes(eligible, sets, policy.max_bytes)
    return _SelectedSets(sets.only(fits), kind[fits], average_depth)


def _savings(blocks: Blocks, eligible: Candidates, sets: BlockSets, policy: Policy) -> FloatArray:
    """Blocks that reads need not open after each set is merged, for each byte rewritten: float64 (sets,).

    A read of one key opens every block over it, and a read of a range, or planning a scan, every block in it. So a set
    saves the coverage that it removes, in lengths of blocks, and the blocks that it leaves fewer. Both count alike, as
    if there were a read of a range as long as a block for each read of one key. Of a block with deleted rows, both
    kinds of read open that share in vain.
    """
    extents = Extents.of(eligible.first, eligible.last).take(sets.member)
    hull = np.maximum.reduceat(extents.end, sets.start) - np.minimum.reduceat(extents.begin, sets.start)
    # A block alone on the axis is two units long.
    removed = (np.add.reduceat(extents.length, sets.start, dtype=np.int64) - hull) / 2
    fewer = np.maximum(sets.size - _expected_blocks(blocks, eligible, sets, policy), 0)
    in_vain = deleted_share(blocks, eligible.position[sets.member]) * (extents.length / 2 + 1)
    cost = sets.total(eligible.rows if blocks.bytes is None else eligible.bytes)
    saved = np.maximum(removed, 0) + fewer + np.add.reduceat(in_vain, sets.start)
    savings: FloatArray = saved / np.maximum(cost, 1)
    return savings


def _expected_blocks(blocks: Blocks, eligible: Candidates, sets: BlockSets, policy: Policy) -> IntArray:
    """Blocks that merging each set will write: int64 (sets,)."""
    rows, size = sets.total(live_rows(blocks, eligible)), sets.total(live_bytes(blocks, eligible))
    return full_blocks(rows, size, policy.block_rows, policy.block_bytes)


def _thresholds(blocks: Blocks, policy: Policy) -> FloatArray:
    """Threshold of each partition's average depth, float64 (partitions,)."""
    count = np.bincount(blocks.partition)
    if policy.depth >= 1:
        return np.full(len(count), float(policy.depth))
    thresholds: FloatArray = np.maximum(1.0, policy.depth * count)
    return thresholds


def _reason(
    blocks: Blocks, eligible: Candidates, selected: _SelectedSets, thresholds: FloatArray, policy: Policy
) -> str:
    depth, threshold = selected.average_depth, _shown(thresholds)
    beside = [
        text
        for text in (
            _joins_text(blocks, eligible, selected.of(_JOIN), policy),
            _purges_text(len(selected.of(_PURGE)), policy),
        )
        if text
    ]
    if (selected.kind == _MERGE).any():
        return ", and ".join([f"average depth {depth:.4g} is above {threshold}", *beside])
    if beside:
        return ", and ".join(beside)
    if depth == 0:
        return "no block can be narrowed: all are full blocks of a single key"
    if depth > float(thresholds.min()):
        return f"average depth {depth:.4g} is above {threshold}, but no merge would lower it"
    return f"average depth {depth:.4g} is at most {threshold}"


def _purges_text(count: int, policy: Policy) -> str:
    """Describe blocks with deleted rows; nothing if there are none."""
    if count == 0:
        return ""
    blocks = "1 block has" if count == 1 else f"{count} blocks have"
    return f"{blocks} {policy.deleted_share:.0%} or more of the rows deleted"


def _joins_text(blocks: Blocks, eligible: Candidates, joins: BlockSets, policy: Policy) -> str:
    """Describe joins: "53 small blocks make 6 full ones"; nothing if there are none."""
    if len(joins) == 0:
        return ""
    rows, size = eligible.rows[joins.member], eligible.bytes[joins.member]
    small = int(np.count_nonzero(small_blocks(rows, size, policy.block_rows, policy.block_bytes)))
    count, written = len(joins.member), int(_expected_blocks(blocks, eligible, joins, policy).sum())
    joined = f"{count} small blocks" if small == count else f"{count} blocks, {small} of them small,"
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
    sets, kind = selected.sets, selected.kind
    if len(sets) == 0:
        return ()
    position = eligible.position[sets.member].astype(np.int64)
    lower, upper = blocks.lower[position], blocks.upper[position]
    least, greatest = np.minimum.reduceat(lower, sets.start), np.maximum.reduceat(upper, sets.start)
    set_of_member = np.repeat(np.arange(len(sets)), sets.size)
    level = np.empty(len(sets), np.int64)
    level[kind == _MERGE] = BY_NAME[policy.strategy].written_levels(eligible, selected.of(_MERGE))
    level[kind == _JOIN] = joined_levels(eligible, selected.of(_JOIN))
    level[kind == _PURGE] = selected.of(_PURGE).greatest(eligible.level)
    rows = sets.total(eligible.rows)
    columns = zip(
        np.split(position, sets.start[1:]),
        level.tolist(),
        (rows if blocks.rows is not None else np.zeros_like(rows)).tolist(),
        sets.total(eligible.bytes).tolist(),
        own_depth(eligible, sets).tolist(),
        _expected_depth(eligible, sets).tolist(),
        _expected_blocks(blocks, eligible, sets, policy).tolist(),
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
