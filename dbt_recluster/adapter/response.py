"""What dbt shows and stores of a model that was reclustered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbt.adapters.contracts.connection import AdapterResponse

from dbt_recluster.report.text import summary

if TYPE_CHECKING:
    from dbt_recluster.maintenance import ReclusterReport


@dataclass
class ReclusterResponse(AdapterResponse):
    """dbt's answer for a model, with the figures of its recluster; they end up in ``run_results.json``."""

    blocks_rewritten: int | None = None
    blocks_written: int | None = None
    bytes_rewritten: int | None = None
    bytes_written: int | None = None
    rows_rewritten: int | None = None
    block_count: int | None = None
    average_depth_before: float | None = None
    average_depth: float | None = None
    recluster_rounds: int | None = None
    recluster_conflicts: int | None = None
    recluster_seconds: float | None = None


def respond(response: AdapterResponse, report: ReclusterReport) -> ReclusterResponse:
    """Return ``response`` with the figures of ``report``; its message changes only when something was rewritten."""
    message = response._message
    if report.rounds:
        message = f"{message} ({summary(report)})"
    return ReclusterResponse(
        _message=message,
        code=response.code,
        rows_affected=response.rows_affected,
        query_id=response.query_id,
        blocks_rewritten=report.blocks_in,
        blocks_written=report.blocks_out,
        bytes_rewritten=report.bytes_in,
        bytes_written=report.bytes_out,
        rows_rewritten=report.rows,
        block_count=report.blocks_after,
        average_depth_before=report.depth_before,
        average_depth=report.depth_after,
        recluster_rounds=len(report.rounds),
        recluster_conflicts=report.conflicts,
        recluster_seconds=round(report.seconds, 3),
    )
