"""Least write amplification for a mean number of sorted runs, when every load covers all keys."""

from __future__ import annotations

import numpy as np


def optimum(loads: int, prices: int = 60) -> list[tuple[float, float]]:
    """Lower convex hull of the figures that any schedule of merges can reach.

    After each load a schedule decides how many of the youngest runs to merge. Let C(n) be the least cost of n loads on
    top of an older run, where a merge costs its rows and every run costs a price after each load. The oldest of these
    runs was last merged at some load s, when it held s loads. The n - s loads after it cost C(n - s). The least cost
    is found by dynamic programming over s, as in Mathieu, Staelin, Young and Yousefi, "Bigtable merge compaction"
    (2014), with a price for runs instead of a limit on them.

    Args:
        loads: Number of loads, all of one size.
        prices: Number of prices to try.

    Returns:
        (mean number of runs, rows rewritten for each row loaded), ascending by runs.
    """
    schedules = set()
    for price in np.geomspace(0.01, 2.0 * loads, prices):
        cost, work, runs = np.zeros(loads + 1), np.zeros(loads + 1), np.zeros(loads + 1)
        # The same if the oldest run was merged at exactly this load.
        merged = np.full(loads + 1, np.inf)
        merged_work, merged_runs = np.zeros(loads + 1), np.zeros(loads + 1)
        merged[1] = 0.0
        for n in range(1, loads + 1):
            if n > 1:
                last = np.arange(1, n)
                total = merged[last] + cost[n - last - 1] + n
                best = int(total.argmin())
                merged[n] = total[best]
                merged_work[n] = merged_work[last[best]] + work[n - last[best] - 1] + n
                merged_runs[n] = merged_runs[last[best]] + runs[n - last[best] - 1]
            last = np.arange(1, n + 1)
            total = merged[last] + cost[n - last]
            best = int(total.argmin())
            cost[n] = price * n + total[best]
            work[n] = merged_work[last[best]] + work[n - last[best]]
            runs[n] = n + merged_runs[last[best]] + runs[n - last[best]]
        schedules.add((float(runs[loads] / loads), float(work[loads] / loads)))
    return sorted(schedules)


def optimum_at(points: list[tuple[float, float]], scan: float) -> float:
    """Write amplification of the optimum at a mean number of runs.

    It is linear between two schedules, because switching from one to the other reaches about the points between them.
    """
    runs, work = zip(*points, strict=True)
    return float(np.interp(scan, runs, work))
