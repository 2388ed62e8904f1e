"""dbt's response for a model that was reclustered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt.adapters.contracts.connection import AdapterResponse

from dbt_recluster.report.text import not_reclustered, summary

if TYPE_CHECKING:
    from dbt_recluster.clustering.result import ReclusterResult


@dataclass
class ReclusterResponse(AdapterResponse):
    """dbt's response with the figures of the recluster, which dbt stores in ``run_results.json``."""

    blocks_rewritten: int | None = None
    blocks_written: int | None = None
    bytes_rewritten: int | None = None
    bytes_written: int | None = None
    rows_rewritten: int | None = None
    block_count: int | None = None
    average_depth_before: float | None = None
    average_depth: float | None = None
    read_depth_before: float | None = None
    read_depth: float | None = None
    reducible_depth: float | None = None
    recluster_rounds: int | None = None
    recluster_conflicts: int | None = None
    recluster_seconds: float | None = None
    recluster_reason: str | None = None
    recluster_fired: str | None = None


def respond(response: AdapterResponse, result: ReclusterResult) -> ReclusterResponse:
    """Return ``response`` with the figures of a recluster.

    Its message changes if something was rewritten, or if a limit kept a table from being reclustered that needs it.
    """
    note = summary(result) if result.rounds else not_reclustered(result) if result.limited else ""
    return ReclusterResponse(
        _message=f"{response._message} ({note})" if note else response._message,
        code=response.code,
        rows_affected=response.rows_affected,
        query_id=response.query_id,
        blocks_rewritten=result.blocks_in,
        blocks_written=result.blocks_out,
        bytes_rewritten=result.bytes_in,
        bytes_written=result.bytes_out,
        rows_rewritten=result.rows,
        block_count=result.blocks_after,
        average_depth_before=result.depth_before,
        average_depth=result.depth_after,
        read_depth_before=result.read_depth_before,
        read_depth=result.read_depth_after,
        reducible_depth=result.reducible_depth,
        recluster_rounds=len(result.rounds),
        recluster_conflicts=result.conflicts,
        recluster_seconds=round(result.seconds, 3),
        recluster_reason=result.reason,
        recluster_fired=result.fired,
    )
