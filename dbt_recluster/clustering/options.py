"""The options of a recluster."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dbt_recluster.clustering.due_conditions import DueConditions
from dbt_recluster.clustering.known_reads import KnownRead, parse_reads
from dbt_recluster.clustering.progress import ProgressCallback
from dbt_recluster.clustering.values import (
    AUTO,
    MAX_BLOCK_ROWS,
    MAX_BYTES,
    Depth,
    parse_bytes,
    parse_predicate,
)
from dbt_recluster.exceptions import OptionError
from dbt_recluster.planner import Policy, PolicyError

DEFAULT_BLOCK_ROWS = 1_000_000
TRIGGERS = ("run", "manual")

_ALWAYS = DueConditions()

# The most bytes in one block set, which is what a failed merge loses. A larger set is split along the key.
_MAX_SET_BYTES = 100 * 2**30


@dataclass(frozen=True)
class ReclusterOptions:
    """How to recluster a table. Every value is checked when the options are made.

    Attributes:
        final: Repeat rounds until nothing is left to do. Otherwise one round.
        where: A predicate. Only blocks that may hold a matching row are considered, and rewritten as a whole.
        max_bytes: The most bytes to rewrite over all rounds, given as a number or a size such as ``10 GB``, or None
            for no limit.
        depth: The average depth up to which a table counts as well clustered; below 1, a share of the number of
            blocks; ``auto`` is that of :mod:`dbt_recluster.clustering.auto_depth`. None is the planner's default.
        strategy: How block sets are selected, one of ``planner.STRATEGIES``. None is the planner's default.
        block_rows: The most rows in a new block.
        dry_run: Plan and report; change nothing.
        trigger: What started it, for the history: ``run`` after a build, otherwise ``manual``.
        progress: Callback for the progress of each round, or None.
        reads: Queries that read the table, or predicates of them, given as
            :func:`dbt_recluster.clustering.known_reads.parse_reads` takes them: blocks are merged where they end. None
            stands for the reads that the model declares, or else for those that the table records.
        due_conditions: When a recluster with the trigger ``run`` is due; others always are.

    Raises:
        OptionError: A value has the wrong type or range.
    """

    final: bool = False
    where: str | None = None
    max_bytes: int | None = None
    depth: Depth | None = None
    strategy: str | None = None
    block_rows: int = DEFAULT_BLOCK_ROWS
    dry_run: bool = False
    trigger: str = "manual"
    progress: ProgressCallback | None = None
    reads: tuple[KnownRead, ...] | None = None
    due_conditions: DueConditions = _ALWAYS

    def __post_init__(self) -> None:
        check_block_rows(self.block_rows)
        if isinstance(self.max_bytes, str):
            object.__setattr__(self, "max_bytes", parse_bytes("max_bytes", self.max_bytes))
        if self.max_bytes is not None:
            _check_whole_number("max_bytes", self.max_bytes, MAX_BYTES)
        for name in ("final", "dry_run"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if self.trigger not in TRIGGERS:
            raise OptionError(f"trigger must be one of {', '.join(TRIGGERS)}, not {self.trigger!r}")
        parse_predicate("where", self.where)
        object.__setattr__(self, "reads", parse_reads("reads", self.reads))
        if self.progress is not None and not callable(self.progress):
            raise OptionError(f"progress must be a function, not {self.progress!r}")
        if self.depth is not None:
            _check_finite("depth", self.depth)
        _ = self.policy

    @property
    def policy(self) -> Policy:
        """The planner's policy; ``max_bytes`` is that of the whole recluster, and ``auto`` stands for the default."""
        given: dict[str, Any] = {
            "depth": None if self.depth == AUTO else self.depth,
            "strategy": self.strategy,
        }
        given = {name: value for name, value in given.items() if value is not None}
        try:
            return Policy(
                max_bytes=self.max_bytes,
                max_merge_bytes=_MAX_SET_BYTES,
                block_rows=self.block_rows,
                **given,
            )
        except PolicyError as e:
            raise OptionError(str(e)) from e


def check_block_rows(value: object) -> None:
    """Check the most rows in a block.

    Raises:
        OptionError: It is not a whole number in its range.
    """
    _check_whole_number("block_rows", value, MAX_BLOCK_ROWS)


def _check_whole_number(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
        raise OptionError(f"{name} must be a whole number from 1 to {most}, not {value!r}")


def _check_finite(name: str, value: object) -> None:
    try:
        if isinstance(value, (int, float)) and not math.isfinite(value):
            raise OptionError(f"{name} must be a finite number, not {value!r}")
    except OverflowError:
        raise OptionError(
            f"{name} must be a finite number, and this one has {len(str(value))} digits"
        ) from None
