"""Ours beside schedules of merges that know how many uniform loads will come, and beside one that does not.

    python benchmarks/schedules.py

For series of 12 to 40 loads: mean rows rewritten for each row loaded by `payback`, by the best schedule for 400 loads
cut off after the series, and by the best schedule for the series itself (`frontier_report.optimum`), each at the scan
that `payback` reaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

import numpy as np
from frontier import strategy
from frontier_report import optimum, optimum_at
from workloads import simulate

ENDS = (12, 14, 16, 18, 20, 22, 24, 28, 32, 40)
LONG = 400


def schedule(loads: int, price: float) -> dict[int, int]:
    """Return the merges of the cheapest schedule at a price of a run: after which load, from which load on."""
    cost, merged = np.zeros(loads + 1), np.full(loads + 1, np.inf)
    merged[1], before, newest = 0.0, [0] * (loads + 1), [0] * (loads + 1)
    for n in range(1, loads + 1):
        earlier = np.arange(1, n)
        if n > 1:
            total = merged[earlier] + cost[n - earlier - 1] + n
            before[n], merged[n] = int(earlier[total.argmin()]), float(total.min())
        last = np.arange(1, n + 1)
        total = merged[last] + cost[n - last]
        newest[n], cost[n] = int(last[total.argmin()]), price * n + float(total.min())
    merges: dict[int, int] = {}
    # Series of so many loads after an offset, which may end with a merge of them all.
    open_series = [(loads, 0, False)]
    while open_series:
        n, offset, is_merged = open_series.pop()
        if is_merged and n > 1:
            merges[offset + n] = offset + 1
            open_series += [(before[n], offset, True), (n - before[n] - 1, offset + before[n], False)]
        elif not is_merged and n:
            open_series += [(newest[n], offset, True), (n - newest[n], offset + newest[n], False)]
    return merges


def followed(merges: Mapping[int, int], loads: int) -> tuple[float, float]:
    """Return the mean number of runs, and the loads rewritten for each load, of a schedule cut off after a load."""
    runs: list[int] = []  # the first load of each
    total = work = 0
    for load in range(1, loads + 1):
        runs.append(load)
        if load in merges:
            work += load + 1 - merges[load]
            runs = [*(run for run in runs if run < merges[load]), merges[load]]
        total += len(runs)
    return total / loads, work / loads


def main() -> None:
    """Print a line for each depth."""
    schedules = [schedule(LONG, price) for price in np.geomspace(0.1, 40, 50)]
    points = {loads: sorted(followed(merges, loads) for merges in schedules) for loads in ENDS}
    best = {loads: optimum(loads) for loads in ENDS}
    print("depth   scan   ours   400 loads   this series   ours / 400   400 / this   ours / this")
    for depth in (3, 4, 5, 6, 8):
        rows = []
        for loads in ENDS:
            _, scan, ours = astuple(simulate("uniform, sorted", depth, strategy("payback")(depth), loads, 0))
            rows.append((scan, ours, optimum_at(points[loads], scan), optimum_at(best[loads], scan)))
        scan, ours, long, known = np.mean(rows, axis=0)
        print(
            f"{depth:5} {scan:6.2f} {ours:6.2f} {long:11.2f} {known:13.2f} {ours / long:12.2f} {long / known:12.2f} "
            f"{ours / known:13.2f}"
        )


if __name__ == "__main__":
    main()
