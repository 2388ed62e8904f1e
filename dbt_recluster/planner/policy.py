"""Policy: the strategy, the threshold and the limits of a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from dbt_recluster.exceptions import PolicyError
from dbt_recluster.planner.arrays import FloatArray, IntArray
from dbt_recluster.planner.blocks import Blocks, FullBlock
from dbt_recluster.planner.candidates import Candidates, SetLimits
from dbt_recluster.planner.strategies.strategy import BY_NAME, STRATEGIES

# Below it, a share of few blocks is exceeded by every load, and each rewrites them all.
LEAST_SHARE = 4.0
# A table with fewer full blocks has little to skip.
LEAST_FULL_BLOCKS = 8
# Small blocks of such a table that are worth a compaction. Measured, a file costs a read 5 ms of processor time, and a
# merge 0.5 s: at one read a load, they cost least together at 14, at 0.1 and 10 reads at 44 and 4.
MANY_SMALL = 16


@dataclass(frozen=True)
class Policy:
    """The strategy, the threshold and the limits of a plan, None for no limit. Construction checks every field."""

    # Threshold for the average depth of a partition. A value between 0 and 1 is a share of the partition's blocks, and
    # stands for a depth of at least `LEAST_SHARE`.
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
    # Whether the blocks are of a table too small to be merged for its depth, which is compacted only from `MANY_SMALL`
    # small ones on. In the policy of options, whether such a table is left alone at all.
    is_small_table: bool = False
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
        return Candidates.from_blocks(blocks, self.full_block, self.max_level, self.deleted_share)

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
        is_share = self.depth < 1
        depths = np.maximum(LEAST_SHARE, self.depth * count) if is_share else np.full(len(count), float(self.depth))
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
