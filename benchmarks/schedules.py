"""Ours beside schedules of merges that know how many uniform loads will come, and beside one that does not.

    python benchmarks/schedules.py

For series of 12 to 40 loads: mean rows rewritten for each row loaded by `payback`, by the best schedule for 400 loads
cut off after the series, and by the best schedule for the series itself (`frontier_report.optimum`), each at the scan
that `payback` reaches.
"""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
from frontier import strategy
from frontier_report import followed, optimum, optimum_at, schedule
from workloads import simulate

ENDS = (12, 14, 16, 18, 20, 22, 24, 28, 32, 40)
LONG = 400


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
