"""Policy: the strategy, the threshold and the limits of a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dbt_recluster.exceptions import PolicyError

STRATEGIES = ("payback", "peak", "above_average", "width")


@dataclass(frozen=True)
class Policy:
    """The strategy, the threshold and the limits of a plan. Every field is checked on construction.

    Attributes:
        depth: Threshold for the average depth of a partition. A value of at least 1 is a depth; a value between 0 and
            1 is a share of the partition's blocks, and stands for a depth of at least 1.
        strategy: One of `STRATEGIES`.
        max_bytes: Most bytes that a plan may read, or None for no limit.
        max_merge_bytes: Most bytes in one block set, or None for no limit.
        block_rows: Rows in a full block, at least 1. A constant block with at least half of them is never rewritten.
        max_level: Blocks of this level or above are never rewritten. With `payback`, level 64 stands for three million
            loads. Databend stops after 32 rewrites (databend#20002).
        block_bytes: Bytes in a full block, at least 1, or None if unknown. Only what counts as a small block, and how
            full blocks are, depends on it.
        deleted_share: Share of a block's rows, above 0, that must be deleted for a rewrite of the block alone. Reads
            take deleted rows and drop them. At 0.3, about twenty full scans pay for a rewrite (benchmarks/deletes.py).
    """

    depth: float = 4.0
    strategy: str = "payback"
    max_bytes: int | None = None
    max_merge_bytes: int | None = None
    block_rows: int = 1_000_000
    max_level: int = 64
    block_bytes: int | None = None
    deleted_share: float = 0.3

    @property
    def limits_bytes(self) -> bool:
        """Whether a plan or a block set may have so many bytes only."""
        return self.max_bytes is not None or self.max_merge_bytes is not None

    def __post_init__(self) -> None:
        number = isinstance(self.depth, int | float) and not isinstance(self.depth, bool)
        if not number or not math.isfinite(self.depth):
            raise PolicyError(f"depth must be a number, not {self.depth!r}")
        if self.depth <= 0:
            raise PolicyError(
                f"depth must be at least 1, or between 0 and 1 for a part of the blocks, not {self.depth}"
            )
        if self.strategy not in STRATEGIES:
            raise PolicyError(f"strategy must be one of {', '.join(STRATEGIES)}, not {self.strategy!r}")
        if not 0 < self.deleted_share <= 1:
            raise PolicyError(f"deleted_share must be above 0 and at most 1, not {self.deleted_share!r}")
        _check_whole("block_rows", self.block_rows, 1)
        _check_whole("max_level", self.max_level, 1)
        if self.block_bytes is not None:
            _check_whole("block_bytes", self.block_bytes, 1)
        if self.max_bytes is not None:
            _check_whole("max_bytes", self.max_bytes, 0)
        if self.max_merge_bytes is not None:
            _check_whole("max_merge_bytes", self.max_merge_bytes, 1)


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(f"{name} must be a whole number of at least {least}, not {value!r}")
