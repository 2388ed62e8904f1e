"""What reclustering a table to its end would cost and gain, played through by the planner. Nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dbt_recluster.history import speed
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.observation import observe, resolve_key
from dbt_recluster.options import planning_policy
from dbt_recluster.planner import clustering_information as planner_information
from dbt_recluster.planner.simulation import simulate_final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Forecast:
    """What repeated rounds would come to.

    Attributes:
        table: The table's identifier.
        cluster_key: The key, as users write it.
        blocks: Blocks now.
        depth: Average depth now.
        expected_depth: Average depth at the end.
        rounds: Rounds until there is nothing left to do.
        bytes: Bytes that all of them read.
        rows: Rows that all of them rewrite.
        estimated_seconds: How long, at the speed of this table's own rounds; None where none is known.
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
        """How many blocks fewer a query for one key opens, on average."""
        return max(0.0, self.depth - self.expected_depth)

    @property
    def gain_per_byte(self) -> float:
        """The gain for each byte that is rewritten: what a budget is best spent on."""
        return self.gain / self.bytes if self.bytes else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**asdict(self), "gain": round(self.gain, 4)}


def forecast(
    spark: SparkSession,
    table: str,
    cluster_by: str | Sequence[str] | None = None,
    *,
    where: str | None = None,
    depth: float | None = None,
    strategy: str | None = None,
    block_rows: int = 1_000_000,
) -> Forecast:
    """Play through what ``recluster(..., final=True)`` with the same arguments would do.

    Raises:
        NotAnIcebergTableError, ClusterKeyError, OptionError, PredicateError: Bad input.
    """
    policy = planning_policy(depth, strategy, None, block_rows)
    target = IcebergTable.load(spark, table)
    key = resolve_key(target, cluster_by)
    blocks = observe(target, key, where).blocks
    end = simulate_final(blocks, policy, rounds=100)
    rate = speed(target)
    return Forecast(
        table=table,
        cluster_key=str(key),
        blocks=len(blocks),
        depth=planner_information(blocks).average_depth,
        expected_depth=planner_information(end.blocks).average_depth,
        rounds=len(end.plans),
        bytes=end.bytes,
        rows=end.rows,
        estimated_seconds=None if rate is None else round(end.bytes / rate, 1),
    )
