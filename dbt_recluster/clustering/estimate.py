"""The cost and gain of reclustering a table to the end, by simulation. Nothing is changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from dbt_recluster.clustering.auto_depth import with_depth
from dbt_recluster.clustering.cost_model import MOST_ROUNDS, CostEstimate, CostModel
from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.planner import clustering_information
from dbt_recluster.planner.simulation import simulate_final


@dataclass(frozen=True)
class ReclusterEstimate:
    """The cost and gain of reclustering a table until nothing is left to do.

    Attributes:
        table: The table's identifier.
        cluster_key: The key, as users write it.
        blocks: Blocks now.
        depth: Average depth now.
        expected_depth: Average depth at the end.
        rounds: Rounds until the end.
        bytes: Bytes that they read.
        rows: Rows that they rewrite.
        estimated_seconds: Their duration at the speed of this table's own rounds, or None if there were none.
        gain: How many blocks fewer a query for one key opens on average.
    """

    table: str
    cluster_key: str
    blocks: int
    depth: float
    expected_depth: float
    rounds: int
    bytes: int
    rows: int
    estimated_seconds: float | None

    @property
    def gain(self) -> float:
        """How many blocks fewer a query for one key opens on average."""
        return max(0.0, self.depth - self.expected_depth)

    @property
    def gain_per_byte(self) -> float:
        """The gain for each byte rewritten, by which a budget is best spent."""
        return self.gain / self.bytes if self.bytes else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**asdict(self), "gain": round(self.gain, 4)}


def estimate_recluster(table: ClusteredTable, options: ReclusterOptions) -> ReclusterEstimate:
    """Simulate a recluster with ``final`` and these options; ``max_bytes`` is ignored.

    Raises:
        ClusterKeyError, PredicateError: Bad input.
    """
    table.reads.follow(options.reads)
    options = with_depth(table, options)[0]
    snapshot = table.blocks(options.where)
    blocks = snapshot.blocks
    policy = replace(options.policy, max_bytes=None, block_bytes=table.block_bytes)
    end = simulate_final(snapshot.planned, policy, rounds=MOST_ROUNDS)
    eligible = end.blocks.take(np.flatnonzero(~end.blocks.fixed))
    speed = rewrite_speed(table)
    return ReclusterEstimate(
        table=table.name,
        cluster_key=str(table.key),
        blocks=len(blocks),
        depth=clustering_information(blocks).average_depth,
        expected_depth=clustering_information(eligible).average_depth,
        rounds=len(end.plans),
        bytes=end.bytes,
        rows=end.rows,
        estimated_seconds=None if speed is None else round(end.bytes / speed, 1),
    )


def estimate_cost(
    table: ClusteredTable, options: ReclusterOptions, now: datetime | None = None
) -> CostEstimate:
    """Estimate the cost of the first clustering, and of each day of loads like those of the past week.

    Args:
        table: The table under the key to cluster by.
        options: The threshold, strategy, block size and reads.
        now: The end of the week, by default now.

    Raises:
        ClusterKeyError, OptionError: Bad input.
    """
    table.reads.follow(options.reads)
    return CostModel(table, with_depth(table, options)[0].policy, now).estimate()
