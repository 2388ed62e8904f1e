"""The least write amplification for a mean number of sorted runs, when every load covers all keys."""

from __future__ import annotations

import numpy as np


def optimum(loads: int, prices: int = 60) -> list[tuple[float, float]]:
    """The lower convex hull of what any schedule of merges can reach.

    A schedule decides, after each load, how many of the youngest runs to merge. Let C(n) be the least cost of n
    loads on top of an older run, where a run costs its price after each load and a merge its rows. The oldest of
    these runs was last merged at some load s, when it held s loads; what came after is n - s loads on top of
    it, again C(n - s). Dynamic programming over s, as in Mathieu, Staelin, Young and Yousefi, "Bigtable merge
    compaction" (2014), with a price for runs instead of a limit.

    Args:
        loads: number of loads, of one size.
        prices: how many prices to try.

    Returns:
        (mean number of runs, rows rewritten for each row loaded), ascending by runs.
    """
    found = set()
    for price in np.geomspace(0.01, 2.0 * loads, prices):
        cost, work, runs = np.zeros(loads + 1), np.zeros(loads + 1), np.zeros(loads + 1)
        # The same for an oldest run that was merged at exactly this load, from the loads before it.
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
        found.add((float(runs[loads] / loads), float(work[loads] / loads)))
    return sorted(found)


def optimum_at(points: list[tuple[float, float]], scan: float) -> float:
    """Write amplification of the optimum at this mean number of runs: linear between schedules.

    Switching from one schedule to another part of the way reaches about what lies between them.
    """
    runs, work = zip(*points, strict=True)
    return float(np.interp(scan, runs, work))
