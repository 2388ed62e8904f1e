"""The threshold at which rewriting and reading cost least together.

A lower threshold rewrites more, and reads waste less. The curve of one against the other is measured.
"""

from __future__ import annotations

import numpy as np

# Of strategy `payback` over 100 sorted loads, by the workloads of benchmarks/results/frontier.json but the one without
# overlap: thresholds, rows rewritten for each row loaded (geometric mean), and depth of a read of one key (mean).
THRESHOLDS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
REWRITTEN = (25.85, 6.14, 2.35, 1.45, 0.80, 0.63, 0.45, 0.35)
SCAN = (1.40, 1.82, 2.58, 3.25, 4.42, 5.50, 7.49, 9.23)

# How far a table may lie from the curve. No workload rewrites four times the mean; more is the first clustering of a
# table, or the backlog of a pause.
LEAST, MOST = 0.1, 4.0
# A table keeps its threshold unless another one saves this share, so that it does not move back and forth.
_LEAST_GAIN = 0.1


def relative_rewriting(loaded: float, rewritten: float, threshold: float) -> float:
    """Return how much a table rewrites, relative to the curve.

    Args:
        loaded: Bytes loaded in some time.
        rewritten: Bytes rewritten in the same time.
        threshold: The threshold of that time.
    """
    usual = loaded * float(np.interp(np.log(threshold), np.log(THRESHOLDS), REWRITTEN))
    return float(np.clip(rewritten / usual, LEAST, MOST)) if usual else 1.0


def costs_by_threshold(loaded: float, rewriting: float, wasted_per_depth: float) -> dict[float, float]:
    """Estimate the bytes that each threshold costs: bytes rewritten, and bytes that reads waste.

    Args:
        loaded: Bytes loaded in some time.
        rewriting: How much the table rewrites, relative to the curve (`relative_rewriting`).
        wasted_per_depth: Bytes that reads of the same time waste for each unit of read depth above 1.

    Returns:
        The cost of each of `THRESHOLDS`.
    """
    return {
        threshold: rewriting * loaded * work + wasted_per_depth * (scan - 1)
        for threshold, work, scan in zip(THRESHOLDS, REWRITTEN, SCAN, strict=True)
    }


def best_threshold(costs: dict[float, float], current: float | None = None) -> float:
    """Return the threshold of least cost, or the current one where no other is cheaper by a tenth.

    Args:
        costs: The costs of `costs_by_threshold`.
        current: The threshold now, or None if there is none to keep.
    """
    best = min(costs, key=lambda threshold: (costs[threshold], threshold))
    if current in costs and costs[best] > (1 - _LEAST_GAIN) * costs[current]:
        return current
    return best
