"""What the next round would do: its block sets by their keys, and how long it would take by this table's history."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.history import speed
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.key_values import lower_text, upper_text
from dbt_recluster.observation import Observation
from dbt_recluster.planner import Plan, Policy
from dbt_recluster.planner import clustering_information as planner_information
from dbt_recluster.planner.simulation import simulate


@dataclass(frozen=True)
class PlannedSet:
    """One block set of a plan.

    Attributes:
        level: The greatest level of the blocks it reads.
        new_level: The level of the blocks it writes.
        blocks: Blocks it reads.
        expected_blocks: Blocks it writes.
        rows: Rows it rewrites.
        bytes: Bytes it reads.
        lower, upper: Its least and greatest key.
        depth: The most of its blocks over one key.
        expected_depth: The greatest depth over its keys after the round.
    """

    level: int
    new_level: int
    blocks: int
    expected_blocks: int
    rows: int
    bytes: int
    lower: str
    upper: str
    depth: int
    expected_depth: int


@dataclass(frozen=True)
class DryRun:
    """What a round would do.

    Attributes:
        sets: Its block sets, best first.
        bytes: Bytes they hold.
        rows: Rows they hold.
        expected_depth: The table's average depth after it, as the planner expects it.
        estimated_seconds: What it would take at the speed of this table's own rounds, None where none is known.
    """

    sets: tuple[PlannedSet, ...]
    bytes: int
    rows: int
    expected_depth: float
    estimated_seconds: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**asdict(self), "sets": [asdict(each) for each in self.sets]}


def dry_run(table: IcebergTable, key: ClusterKey, seen: Observation, chosen: Plan, policy: Policy) -> DryRun:
    """Describe a plan."""
    types = table.columns().types
    sets = tuple(
        PlannedSet(
            level=int(seen.blocks.level[task.blocks].max()),
            new_level=task.level,
            blocks=len(task.blocks),
            expected_blocks=task.expected_blocks,
            rows=task.rows,
            bytes=task.bytes,
            lower=lower_text(seen.metadata, int(seen.eligible[task.lower_block]), key, types),
            upper=upper_text(seen.metadata, int(seen.eligible[task.upper_block]), key, types),
            depth=task.depth,
            expected_depth=task.expected_depth,
        )
        for task in chosen.tasks
    )
    rate = speed(table)
    return DryRun(
        sets,
        chosen.bytes,
        chosen.rows,
        planner_information(simulate(seen.blocks, chosen, policy)).average_depth,
        None if rate is None else round(chosen.bytes / rate, 1),
    )
