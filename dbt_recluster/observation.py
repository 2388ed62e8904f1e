"""A table's blocks at one moment, as the planner takes them: what every measure and every plan starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbt_recluster.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg.blocks import BlockMetadata, IntArray, read_blocks
from dbt_recluster.iceberg.levels import levels_and_runs
from dbt_recluster.iceberg.predicates import may_match
from dbt_recluster.iceberg.sorting import table_cluster_key
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.planner import Blocks


@dataclass(frozen=True)
class Observation:
    """The table's blocks at one moment, and those of them that a plan may choose from.

    Attributes:
        metadata: All blocks.
        eligible: Positions in ``metadata`` of the blocks that ``where`` admits.
        blocks: The eligible blocks as the planner takes them, in the order of ``eligible``.
    """

    metadata: BlockMetadata
    eligible: IntArray
    blocks: Blocks


def observe(
    table: IcebergTable, key: ClusterKey, where: str | None = None, snapshot_id: int | None = None
) -> Observation:
    """Read the blocks of the current snapshot, or of an older one that the table still keeps.

    The levels of an older snapshot's blocks are those that the table knows today: 0 where the level was
    dropped because no live block has it.

    Raises:
        PredicateError: ``where`` cannot choose blocks.
    """
    metadata = read_blocks(table, key, snapshot_id)
    eligible = (
        np.arange(len(metadata)) if where is None else np.flatnonzero(may_match(table, metadata, where))
    )
    chosen = metadata if where is None else metadata.take(eligible)
    return Observation(metadata, eligible, planner_blocks(chosen, *levels_and_runs(table, chosen, key)))


def planner_blocks(blocks: BlockMetadata, level: IntArray, run: IntArray) -> Blocks:
    """Return blocks as the planner takes them, with these levels and runs, int64 (n,) each."""
    return Blocks.build(
        lower=blocks.lower,
        upper=blocks.upper,
        rows=blocks.rows,
        bytes=blocks.bytes,
        level=level,
        run=run,
        partition=blocks.partition,
        unbounded=blocks.unbounded,
    )


def resolve_key(table: IcebergTable, cluster_by: str | Sequence[str] | None) -> ClusterKey:
    """Return the key that ``cluster_by`` names, checked against the table; None takes the table's sort order.

    Raises:
        ClusterKeyError: It is not a key, names an unknown column, or the table has no sort order.
    """
    if cluster_by is not None:
        return parse_cluster_key(cluster_by).check(table.columns())
    key = table_cluster_key(table)
    if key is None:
        raise ClusterKeyError(f"{table.name} has no sort order; name a cluster key with cluster_by")
    return key
