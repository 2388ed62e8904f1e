"""Who else selects blocks to rewrite, each from its public description: used by frontier.py and reads.py.

A step reclusters a table after a load. Steps have no limits of memory or time, so each policy shows its best curve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from workloads import BLOCK_ROWS, LOAD_ROWS, FloatArray, IntArray, Table

from dbt_recluster.planner import Policy, plan

Step = Callable[[Table], None]


def strategy(
    name: str, repeat: bool = True, blocks_of_set: int | None = None, with_reads: bool = False
) -> Callable[[float], Step]:
    """Return a step that plans and merges, once or until the plan is empty, with limited sets or not."""

    def at(threshold: float) -> Step:
        policy = Policy(depth=threshold, strategy=name, block_rows=BLOCK_ROWS, max_merge_blocks=blocks_of_set)

        def step(table: Table) -> None:
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


def sort_every(loads: float) -> Step:
    """Rewrite the whole table every few loads, as `rewrite_data_files` with `rewrite-all` does."""
    calls = 0

    def step(table: Table) -> None:
        nonlocal calls
        calls += 1
        if calls % loads == 0:
            table.merge_sets([(list(range(len(table.keys))), 0)])

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
            order = members[np.argsort(lower[members])]
            reach = np.maximum.accumulate(upper[order])
            start = np.flatnonzero(np.append(True, lower[order][1:] > reach[:-1]))
            table.merge_sets([(part.tolist(), 0) for part in np.split(order, start[1:])])

    return step


def _sweep(lower: FloatArray, upper: FloatArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return the depth at the sorted bounds of blocks, each block's begin and end there, and its greatest depth."""
    points = np.unique(np.concatenate([lower, upper]))
    depth = np.searchsorted(np.sort(lower), points, "right") - np.searchsorted(np.sort(upper), points)
    begin, end = np.searchsorted(points, lower), np.searchsorted(points, upper, "right")
    greatest = np.maximum.reduceat(np.append(depth, 0), np.column_stack([begin, end]).ravel())[::2]
    return depth, begin, end, greatest
