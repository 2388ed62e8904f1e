"""Policy: what to do with blocks that overlap, and how much of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dbt_recluster.planner.errors import PolicyError

STRATEGIES = ("payback", "peak", "above_average", "width")


@dataclass(frozen=True)
class Policy:
    """How `plan` chooses. Every field is checked when the policy is made.

    Attributes:
        depth: the threshold. At least 1: that depth. Between 0 and 1: that part of the number of blocks (but
            at least 1).
        strategy: one of `STRATEGIES`.
        max_bytes: no plan reads more than this many bytes; None for no limit.
        max_merge_bytes: no block set holds more than this many bytes; None for no limit.
        max_blocks: no block set holds more than this many blocks; None for no limit.
        block_rows: rows that a full block holds, at least 1. A constant block of at least half of it is level
            -1 and stays.
        max_level: blocks of this level or above are never rewritten. Databend's is 32 (databend#20002); of
            strategy `payback` a level stands for loads, and 64 for three million.
        overlap_threshold: where this many blocks meet, or fewer, a block set neither starts nor widens; at
            least 1.
    """

    depth: float = 4.0
    strategy: str = "payback"
    max_bytes: int | None = None
    max_merge_bytes: int | None = None
    max_blocks: int | None = None
    block_rows: int = 1_000_000
    max_level: int = 64
    overlap_threshold: int = 1
    fan_out: int = 4

    def __post_init__(self) -> None:
        if (
            isinstance(self.depth, bool)
            or not isinstance(self.depth, int | float)
            or not math.isfinite(self.depth)
        ):
            raise PolicyError(f"depth must be a number, not {self.depth!r}")
        if self.depth <= 0:
            raise PolicyError(
                f"depth must be at least 1, or between 0 and 1 for a part of the blocks, not {self.depth}"
            )
        if self.strategy not in STRATEGIES:
            raise PolicyError(f"strategy must be one of {', '.join(STRATEGIES)}, not {self.strategy!r}")
        for name, least in (
            ("block_rows", 1),
            ("max_level", 1),
            ("overlap_threshold", 1),
            ("fan_out", 2),
        ):
            _check_count(name, getattr(self, name), least)
        for name, least in (("max_bytes", 0), ("max_merge_bytes", 1), ("max_blocks", 2)):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), least)


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(f"{name} must be a whole number of at least {least}, not {value!r}")
