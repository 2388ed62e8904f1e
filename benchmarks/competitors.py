"""Who else selects blocks to rewrite, each from its public description: used by frontier.py and reads.py.

A step reclusters a table after a load. Steps have no limits of memory or time, so each policy shows its best curve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import log

import numpy as np
from workloads import LOAD_ROWS, FloatArray, IntArray, Table

from dbt_recluster.advice.cost_model import best_threshold, costs_by_threshold, relative_rewriting
from dbt_recluster.planner import Policy, plan

Step = Callable[[Table], None]


def strategy(
    name: str, repeat: bool = True, blocks_of_set: int | None = None, with_reads: bool = False
) -> Callable[[float], Step]:
    """Return a step that plans and merges, once or until the plan is empty, with limited sets or not."""

    def at(threshold: float) -> Step:
        def step(table: Table) -> None:
            policy = Policy(depth=threshold, strategy=name, block_rows=table.block_rows, max_merge_blocks=blocks_of_set)
            while True:
                next_plan = plan(table.blocks(reads=table.reads if with_reads else None), policy)
                table.merge(next_plan)
                if not repeat or not next_plan.block_sets:
                    return

        return step

    return at


def full_sort(threshold: float) -> Step:
    """Rewrite the whole table when its average depth is above the threshold."""

    def step(table: Table) -> None:
        if table.blocks().intervals.depths().mean() > threshold:
            table.merge_sets([(list(range(len(table.keys))), 0)])

    return step


def auto_depth(rate: float) -> Step:
    """`depth: auto`, where a load is a day and brings this many reads of one key each."""
    depth, rewriting, since, history = 0.0, 1.0, 0, [(0, 0)]  # the rows loaded and rewritten so far

    def step(table: Table) -> None:
        nonlocal depth, rewriting, since
        (loaded, before), today = history[max(0, len(history) - 7)], len(history)
        loaded, rewritten = table.loaded - loaded, history[-1][1] - before
        if depth > 1 and today - since >= 7:
            rewriting = relative_rewriting(loaded, rewritten, min(today, 7), depth)
        costs = costs_by_threshold(loaded / min(today, 7), rewriting, rate * table.block_rows)
        chosen = best_threshold(costs, depth or None)
        depth, since = chosen, since if chosen == depth else today
        strategy("payback")(depth)(table)
        history.append((table.loaded, table.rewritten))

    return step


def below_target(every: float, target: float = np.inf) -> Step:
    """Every few loads, sort all blocks with fewer rows than the target, in full blocks, together.

    Without a target it is a full sort, as by `rewrite_data_files` with `rewrite-all`, and by iceberg-zamboni 0.7.0: it
    cuts files by decoded bytes and compares encoded ones, so they stay below its target. Iceberg and iceops 0.1.0 take
    files below three quarters of it.
    """
    calls = 0

    def step(table: Table) -> None:
        nonlocal calls
        calls += 1
        rows = np.array([len(keys) for keys in table.keys])
        members = np.flatnonzero(rows < target * table.block_rows)
        if calls % every == 0 and len(members) > 1:
            table.merge_sets([(members.tolist(), 0)])

    return step


def paid_by_reads(rate: float) -> Step:
    """Sort everything once the reads since the last sort, of one key each, have wasted as many rows as that rewrites.

    This is the counter of OReO (arXiv 2405.04984), between the table as it is and the sorted one.
    """
    wasted = 0.0

    def step(table: Table) -> None:
        nonlocal wasted
        keys = np.concatenate(table.keys)
        read = keys[:: max(1, len(keys) // 1024)]
        wasted += rate * (float(table.opened(read, read).mean()) - 1) * table.block_rows
        if wasted >= len(keys):
            table.merge_sets([(list(range(len(table.keys))), 0)])
            wasted = 0.0

    return step


def tiers(ratio: float, lazy: bool = False) -> Step:
    """Merge the runs of a level into one of the next when they are this many; the last level is one run if lazy.

    Source: tiering and lazy leveling of LSM trees (arXiv 2202.04522). Blocks that overlap no other are not rewritten.
    """
    unit = 0.0

    def step(table: Table) -> None:
        nonlocal unit
        unit = unit or table.loaded / len(set(table.run))
        last = max(1, int(log(table.loaded / unit, ratio)) - 1)  # the levels before it hold one part in `ratio`
        deepest = max(table.level)
        if lazy and 0 < deepest < last:
            table.level = [last if level == deepest else level for level in table.level]
        level = 0
        while level <= max(table.level):
            levels, run = np.array(table.level), np.array(table.run)
            merged = set(run[levels == level].tolist())
            if len(merged) >= ratio and not (lazy and level == last):
                merged |= set(run[lazy & (levels == last) & (level + 1 == last)].tolist())
                _merge_runs(table, merged, level + 1)
            level += 1

    return step


def universal(trigger: float) -> Step:
    """From this many runs on, merge all if they are thrice the oldest, or the younger that are as large as the next.

    Source: universal compaction as in Apache Paimon 1.3, with its default ratios.
    """

    def step(table: Table) -> None:
        size = Counter[int]()
        for run, keys in zip(table.run, table.keys, strict=True):
            size[run] += len(keys)
        youngest = sorted(size, reverse=True)
        if len(youngest) < max(trigger, 2):
            return
        oldest = size[youngest[-1]]
        count = max(1, len(youngest) - int(trigger) + 1)
        if table.loaded - oldest > 2 * oldest:
            count = len(youngest)
        total = sum(size[run] for run in youngest[:count])
        while count < len(youngest) and total * 1.01 >= size[youngest[count]]:
            total += size[youngest[count]]
            count += 1
        if count > 1:
            _merge_runs(table, set(youngest[:count]), 1)

    return step


def overlap_depth(threshold: float) -> Step:
    """Sort the blocks together that cover any key which at least this many cover.

    Source: `min-overlap-depth` of apache/iceberg#17504. A partition's files are one group up to 100 GB.
    """

    def step(table: Table) -> None:
        *_, greatest = _sweep(table.lower, table.upper)
        members = np.flatnonzero(greatest >= threshold)
        if len(members):
            table.merge_sets([(members.tolist(), 0)])

    return step


def level_bands(threshold: float) -> Step:
    """In each band of levels, 0, 1 to 3, 4 to 8 and above, merge the blocks over each range deeper than the threshold.

    A band is left alone unless its average depth exceeds the threshold, or its greatest depth twice that. Source:
    `RECLUSTER FINAL` of Databend since databend#19989, with the option that it sets on new tables.
    """

    def sets_of(table: Table) -> list[tuple[list[int], int]]:
        sets = []
        levels = np.array(table.level)
        bands = np.where(levels < 32, np.searchsorted([1, 4, 9], levels, "right"), -1)
        for band in range(4):
            place = np.flatnonzero(bands == band)
            if len(place) < 2 or (len(place) == 2 and levels[place].min() >= 2):
                continue
            depth, begin, end, greatest = _sweep(table.lower[place], table.upper[place])
            most = 2 * threshold if threshold > 1 else threshold
            if greatest.mean() <= threshold and depth.max() <= most:
                continue
            edges = np.flatnonzero(np.diff(np.concatenate([[0], depth > threshold, [0]])))
            for first, last in edges.reshape(-1, 2):
                members = place[(begin < last) & (end > first)]
                level, _ = Counter(np.sort(levels[members]).tolist()).most_common(1)[0]
                sets.append((members.tolist(), level + 1))
            if sets:
                break
        return sets

    def step(table: Table) -> None:
        while sets := sets_of(table):
            table.merge_sets(sets)

    return step


def cubes(loads: float, every: int = 1) -> Step:
    """Every few loads, put new blocks and cubes smaller than some loads together into new cubes.

    Source: `OPTIMIZE` of Delta's liquid clustering. A cube is sealed once it reaches a least size, and gets at most 1.5
    times that.
    """
    calls = 0

    def step(table: Table) -> None:
        nonlocal calls
        calls += 1
        if calls % every:
            return
        run, is_new = np.array(table.run), np.array(table.level) == 0
        rows = np.array([len(keys) for keys in table.keys])
        members = np.flatnonzero(is_new | (np.bincount(run, rows)[run] < loads * LOAD_ROWS))
        if is_new.any():
            bins = (np.cumsum(rows[members]) - 1) // (1.5 * loads * LOAD_ROWS)
            parts = np.split(members, np.flatnonzero(np.diff(bins)) + 1)
            table.merge_sets([(part.tolist(), 1) for part in parts])

    return step


def boundary(threshold: float) -> Step:
    """Merge the blocks over every end of a query that more than this many blocks are over: only these.

    This is the rule of WAIR (arXiv 2602.23289) as far as its abstract and summaries tell: boundary blocks of a sliding
    window of queries, at the ends where most blocks are wasted. They leave open its cost model, and what is merged at
    once.
    """

    def step(table: Table) -> None:
        if table.reads is None:
            return
        ends = np.unique(np.concatenate([table.reads.lower, table.reads.upper]))
        while True:
            lower, upper = table.lower, table.upper
            over = (lower[:, None] < ends) & (upper[:, None] > ends)
            deep = over.sum(axis=0) > threshold
            members = np.flatnonzero(over[:, deep].any(axis=1))
            if len(members) == 0:
                return
            table.merge_sets([(part.tolist(), 0) for part in _overlapping(table, members)])

    return step


def _overlapping(table: Table, members: IntArray) -> list[IntArray]:
    """Split blocks where none is over a key."""
    order = members[np.argsort(table.lower[members])]
    reach = np.maximum.accumulate(table.upper[order])
    return np.split(order, np.flatnonzero(table.lower[order][1:] > reach[:-1]) + 1)


def _merge_runs(table: Table, runs: set[int], level: int) -> None:
    """Merge runs into one of a level; blocks that overlap no other are moved there as they are."""
    parts = _overlapping(table, np.flatnonzero(np.isin(table.run, list(runs))))
    table.runs += 1
    run = table.runs
    for part in parts:
        if len(part) == 1:
            table.level[part[0]], table.run[part[0]] = level, run
    sets = [(part.tolist(), level) for part in parts if len(part) > 1]
    kept = len(table.keys) - sum(len(members) for members, _ in sets)
    table.merge_sets(sets)
    table.run[kept:] = [run] * (len(table.run) - kept)


def _sweep(lower: FloatArray, upper: FloatArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return the depth at the sorted bounds of blocks, each block's begin and end there, and its greatest depth."""
    points = np.unique(np.concatenate([lower, upper]))
    depth = np.searchsorted(np.sort(lower), points, "right") - np.searchsorted(np.sort(upper), points)
    begin, end = np.searchsorted(points, lower), np.searchsorted(points, upper, "right")
    greatest = np.maximum.reduceat(np.append(depth, 0), np.column_stack([begin, end]).ravel())[::2]
    return depth, begin, end, greatest
