"""Policy: the strategy, the threshold and the limits of a plan; and the threshold at which a table costs least.

A lower threshold rewrites more, and reads waste less. The curve of one against the other is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from dbt_recluster.exceptions import PolicyError
from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.blocks import Blocks, FullBlock
from dbt_recluster.planner.candidates import Candidates, SetLimits
from dbt_recluster.planner.strategies import BY_NAME, STRATEGIES

# Of strategy `payback` over sorted loads, 100 of a plain key and 30 along a curve: thresholds, rows rewritten for each
# row loaded (geometric mean of the workloads), and blocks that a read opens (mean), by the columns on a curve.
# Workloads in order rewrite almost nothing and are left out. Those of a plain key, 0, are of the workloads of
# benchmarks/results/frontier.json. Blocks along a curve are multiples of those that the read opens in a table sorted at
# once ("What a threshold means" in docs/design/curves.md).
THRESHOLDS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
REWRITTEN = {
    0: (25.85, 6.14, 2.35, 1.45, 0.80, 0.63, 0.45, 0.35),
    2: (6.09, 3.73, 2.84, 2.02, 1.40, 1.18),
    3: (5.04, 3.59, 2.24, 1.76, 1.32, 1.19),
    4: (5.40, 3.20, 2.54, 1.62, 1.28, 0.88),
}
SCAN = {
    0: (1.40, 1.82, 2.58, 3.25, 4.42, 5.50, 7.49, 9.23),
    2: (1.16, 1.28, 1.44, 1.63, 1.84, 2.05),
    3: (1.13, 1.17, 1.33, 1.42, 1.51, 1.67),
    4: (1.07, 1.16, 1.24, 1.38, 1.43, 1.55),
}

# Bounds of a table's rewriting relative to the curve. More than four times the mean is a first clustering or a backlog.
LEAST, MOST = 0.1, 4.0
# A table keeps its threshold unless another one saves this share, so that it does not move back and forth.
_LEAST_GAIN = 0.1


@dataclass(frozen=True)
class Policy:
    """The strategy, the threshold and the limits of a plan, None for no limit. Construction checks every field."""

    # Threshold for the average depth of a partition. A value between 0 and 1 is a share of the partition's blocks, and
    # stands for a depth of at least 1.
    depth: float = 4.0
    strategy: str = "payback"  # one of `STRATEGIES`
    max_bytes: int | None = None  # most bytes that a plan may read
    max_merge_bytes: int | None = None  # most bytes in one block set
    # Most blocks in one merge of overlapping blocks, at least 2. With `width` also the base of its buckets of widths.
    max_merge_blocks: int | None = None
    block_rows: int = 1_000_000  # in a full block; a constant block with at least half of them is never rewritten
    # Blocks of this level or above are never rewritten. With `payback`, level 64 stands for three million loads.
    # Databend stops after 32 rewrites (databend#20002).
    max_level: int = 64
    block_bytes: int | None = None  # in a full block, if known; decides only which blocks are small, and how full
    # Share of a block's rows, above 0, that must be deleted for a rewrite of the block alone. Reads fetch deleted rows
    # and drop them. At 0.3, about twenty full scans pay for a rewrite.
    deleted_share: float = 0.3
    tolerance: float = 1.0  # depths are this many times too large, at least 1 (`CURVE_TOLERANCE`)

    @property
    def set_limits(self) -> SetLimits:
        """Limits of one block set."""
        limits = (limit for limit in (self.max_bytes, self.max_merge_bytes) if limit is not None)
        return SetLimits(min(limits, default=None), self.max_merge_blocks)

    @property
    def full_block(self) -> FullBlock:
        """Capacity of a full block."""
        return FullBlock(self.block_rows, self.block_bytes)

    def candidates(self, blocks: Blocks) -> Candidates:
        """Return the blocks that a plan may rewrite."""
        return Candidates.of(blocks, self.full_block, self.max_level, self.deleted_share)

    @property
    def by_level(self) -> bool:
        """Whether the strategy compares the depth of each level with the threshold."""
        return BY_NAME[self.strategy].by_level

    @property
    def threshold(self) -> float | None:
        """Greatest average depth of any partition, as set; None if it depends on the number of blocks."""
        return float(self.depth) if self.depth >= 1 else None

    def thresholds(self, count: IntArray) -> FloatArray:
        """Greatest average depth of each partition, float64 (partitions,), given its number of blocks."""
        depths = np.maximum(1.0, self.depth * (count if self.depth < 1 else np.ones(len(count))))
        return depths * self.tolerance

    def __post_init__(self) -> None:
        if not _is_finite(self.depth):
            raise PolicyError(f"depth must be a number, not {self.depth!r}")
        if self.depth <= 0:
            raise PolicyError(
                f"depth must be at least 1, or between 0 and 1 for a part of the blocks, not {self.depth}"
            )
        if self.strategy not in STRATEGIES:
            raise PolicyError(f"strategy must be one of {', '.join(STRATEGIES)}, not {self.strategy!r}")
        if not 0 < self.deleted_share <= 1:
            raise PolicyError(f"deleted_share must be above 0 and at most 1, not {self.deleted_share!r}")
        if not _is_finite(self.tolerance) or self.tolerance < 1:
            raise PolicyError(f"tolerance must be a number of at least 1, not {self.tolerance!r}")
        for f in fields(self):
            value, least = getattr(self, f.name), {"max_bytes": 0, "max_merge_blocks": 2}.get(f.name, 1)
            if f.type == "int | None" and value is None:
                continue
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if f.type in ("int", "int | None") and not (is_number and value >= least):
                raise PolicyError(f"{f.name} must be a whole number of at least {least}, not {value!r}")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def relative_rewriting(loaded: float, rewritten: float, threshold: float, columns: int = 0) -> float:
    """Return a table's rewriting relative to the measured workloads.

    Args:
        loaded: Bytes loaded in some time.
        rewritten: Bytes rewritten in the same time.
        threshold: The threshold of that time.
        columns: Columns on a curve; 0 for a plain key.
    """
    work = REWRITTEN[columns]
    usual = loaded * float(np.interp(np.log(threshold), np.log(THRESHOLDS[: len(work)]), work))
    return float(np.clip(rewritten / usual, LEAST, MOST)) if usual else 1.0


def costs_by_threshold(
    loaded: float, rewriting: float, wasted_per_depth: float, columns: int = 0
) -> dict[float, float]:
    """Estimate the bytes that each threshold costs: bytes rewritten, and bytes that reads waste.

    Args:
        loaded: Bytes loaded in some time.
        rewriting: How much the table rewrites, relative to what was measured (`relative_rewriting`).
        wasted_per_depth: Bytes that reads of the same time waste for each unit of read depth above 1. On a curve, bytes
            that they open in a table sorted at once.
        columns: Columns on a curve; 0 for a plain key.

    Returns:
        The cost of each of `THRESHOLDS` that was measured.
    """
    return {
        threshold: rewriting * loaded * work + wasted_per_depth * (scan - 1)
        for threshold, work, scan in zip(THRESHOLDS, REWRITTEN[columns], SCAN[columns], strict=False)
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
