"""The plan: which block sets to merge now."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from dbt_recluster.planner.above_average import above_average
from dbt_recluster.planner.arrays import FloatArray, IntArray, PlaceArray
from dbt_recluster.planner.block_sets import BlockSets, own_depth, within_bytes
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.candidates import Candidates, candidates
from dbt_recluster.planner.errors import PolicyError
from dbt_recluster.planner.payback import payback, written_levels
from dbt_recluster.planner.peak import peak
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.width import width

_STRATEGIES = {"payback": payback, "peak": peak, "above_average": above_average, "width": width}


@dataclass(frozen=True, eq=False)
class BlockSet:
    """One block set: merge these blocks, and write sorted ones.

    Attributes:
        blocks: positions in the blocks that were planned, int64 (k,), ascending, at least two.
        level: level of the blocks it will write: one more than the greatest level it reads; of strategy
            `payback`, see `payback.written_levels`.
        rows: rows it rewrites; 0 when rows are not known.
        bytes: bytes it reads; 0 when bytes are not known.
        depth: most of its blocks over one key, touching bounds not counted.
        expected_depth: greatest depth of candidates over its keys after all tasks of the plan, touching
            bounds not counted.
        expected_blocks: how many blocks it will write, one for every `Policy.block_rows` rows.
        run: tasks of one plan with the same run write blocks of one level that do not overlap, so that they
            may be committed as one run.
        lower_block: position of a block that holds the set's least lower bound.
        upper_block: position of a block that holds the set's greatest upper bound.
        partition: its partition's code in `Blocks.partition`.
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
    """What to do now. No tasks: nothing to do.

    Attributes:
        tasks: best first; no block is in two of them, so they may run at the same time.
        rows: rows that all of them rewrite; 0 when rows are not known.
        bytes: bytes that all of them read; 0 when bytes are not known.
        reason: why there is, or is not, something to do.
    """

    block_sets: tuple[BlockSet, ...]
    rows: int
    bytes: int
    reason: str


def plan(blocks: Blocks, policy: Policy) -> Plan:
    """Choose the block sets to merge now.

    The same blocks give the same plan, in whatever order they are given. Repeating plan and merge ends with
    an empty plan.

    Args:
        blocks: n blocks.
        policy: threshold, strategy and limits.

    Returns:
        The plan. Its cost is O(n log n) at most.

    Raises:
        PolicyError: a limit in bytes is given, and the blocks' bytes are not known.
    """
    if blocks.bytes is None and (policy.max_bytes is not None or policy.max_merge_bytes is not None):
        raise PolicyError("max_bytes and max_merge_bytes need the blocks' bytes, which are not known")
    if len(blocks) == 0:
        return Plan((), 0, 0, "no blocks")
    chosen = candidates(blocks, policy)
    thresholds = _thresholds(blocks, policy)
    found, worst = _STRATEGIES[policy.strategy](chosen, thresholds, policy)
    sets = within_bytes(chosen, found, policy.max_bytes)
    tasks = _tasks(blocks, chosen, sets, policy)
    return Plan(
        tasks,
        sum(task.rows for task in tasks),
        sum(task.bytes for task in tasks),
        _reason(len(found), len(tasks), worst, thresholds, policy),
    )


def _thresholds(blocks: Blocks, policy: Policy) -> FloatArray:
    """Each partition's threshold, float64 (partitions,): the depth, or that part of its blocks."""
    count = np.bincount(blocks.partition)
    if policy.depth >= 1:
        return np.full(len(count), float(policy.depth))
    thresholds: FloatArray = np.maximum(1.0, policy.depth * count)
    return thresholds


def _reason(found: int, taken: int, worst: float, thresholds: FloatArray, policy: Policy) -> str:
    least, greatest = float(thresholds.min()), float(thresholds.max())
    threshold = f"{least:.4g}" if least == greatest else f"{least:.4g} to {greatest:.4g}"
    if taken:
        return f"average depth {worst:.4g} is above {threshold}"
    if found:
        return f"no block set fits into {policy.max_bytes} bytes"
    if worst == 0:
        return "no block can be narrowed: all are full blocks of a single key"
    if worst > least:
        return f"average depth {worst:.4g} is above {threshold}, but no set within the limits lowers it"
    return f"average depth {worst:.4g} is at most {threshold}"


def _tasks(blocks: Blocks, chosen: Candidates, sets: BlockSets, policy: Policy) -> tuple[BlockSet, ...]:
    if len(sets) == 0:
        return ()
    position = chosen.position[sets.member].astype(np.int64)
    lower, upper = blocks.lower[position], blocks.upper[position]
    level = sets.greatest(chosen.level).astype(np.int64) + 1
    if policy.strategy == "payback":
        level = written_levels(chosen, sets)
    least, greatest = np.minimum.reduceat(lower, sets.start), np.maximum.reduceat(upper, sets.start)
    set_of_member = np.repeat(np.arange(len(sets)), sets.size)
    rows = sets.total(chosen.rows)
    columns = zip(
        np.split(position, sets.start[1:]),
        level.tolist(),
        (rows if blocks.rows is not None else np.zeros_like(rows)).tolist(),
        sets.total(chosen.bytes).tolist(),
        own_depth(chosen, sets).tolist(),
        _expected_depth(chosen, sets).tolist(),
        np.maximum(1, -(-rows // policy.block_rows)).tolist(),
        _runs(level, least, greatest),
        _holders(position, lower == least[set_of_member], set_of_member),
        _holders(position, upper == greatest[set_of_member], set_of_member),
        chosen.partition[sets.member[sets.start]].tolist(),
        strict=True,
    )
    return tuple(BlockSet(np.sort(members), *values) for members, *values in columns)


def _holders(
    position: IntArray, holds: np.ndarray[tuple[int], np.dtype[np.bool_]], set_of_member: IntArray
) -> list[int]:
    """For each set one of its blocks where ``holds`` is true, and every set has one."""
    place = np.flatnonzero(holds)
    found: list[int] = position[place[np.unique(set_of_member[place], return_index=True)[1]]].tolist()
    return found


def _expected_depth(chosen: Candidates, sets: BlockSets) -> PlaceArray:
    """Greatest depth over each set's cells once each set has become disjoint blocks: int32 (sets,)."""
    hull_first, hull_last = sets.least(chosen.first), sets.greatest(chosen.last)
    untouched = np.ones(len(chosen), np.bool_)
    untouched[sets.member] = False
    after = Candidates(
        chosen.position,
        np.concatenate([hull_first, chosen.first[untouched]]),
        np.concatenate([hull_last, chosen.last[untouched]]),
        chosen.level,
        chosen.rows,
        chosen.bytes,
        chosen.partition,
    )
    sweep = after.sweep(np.arange(len(after.first)))
    return sweep.depths(len(sets))


def _runs(level: IntArray, lower: IntArray, upper: IntArray) -> list[int]:
    """Number the fewest runs such that tasks of one run have one level and key ranges that at most touch.

    Greedy colouring of intervals, optimal when taken in order of their lower ends.
    """
    runs = [0] * len(level)
    free: list[tuple[int, int]] = []  # upper end and number of the runs of this level
    current = None
    count = 0
    for task in np.lexsort((upper, lower, level)).tolist():
        if level[task] != current:
            free, current = [], level[task]
        if free and free[0][0] <= lower[task]:
            runs[task] = free[0][1]
            heapq.heapreplace(free, (int(upper[task]), runs[task]))
        else:
            runs[task] = count
            heapq.heappush(free, (int(upper[task]), count))
            count += 1
    return runs
