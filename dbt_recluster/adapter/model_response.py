"""dbt's response for a clustered model: what became of its table and its key, beside the build."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dbt.adapters.contracts.connection import AdapterResponse

from dbt_recluster.report.recluster_text import not_reclustered, summary

if TYPE_CHECKING:
    from dbt_recluster.clustering.result import ReclusterResult


@dataclass
class ReclusterResponse(AdapterResponse):
    """dbt's response with the figures of the recluster, which dbt stores in ``run_results.json``.

    Attributes:
        blocks_rewritten, blocks_written: Blocks that the recluster removed from and added to the table.
        bytes_rewritten, bytes_written: Their bytes.
        rows_rewritten: Rows in them.
        block_count: Blocks of the table at the end.
        average_depth_before, average_depth: Average depth after the build, and at the end.
        read_depth_before, read_depth: Read depth likewise, if that decides.
        reducible_depth: What was compared with the threshold in the end, as far as merges can reduce it.
        recluster_rounds: Committed rounds.
        recluster_conflicts: How often work was planned or committed again because another writer was faster.
        recluster_seconds: Wall time of the recluster.
        recluster_reason: Why it ended.
        recluster_condition_met: The condition that was met, of ``recluster_after`` and ``recluster_when``.
        recluster_suspended: Since when reclustering is suspended, if that ended it.
        recluster_loss: Bytes a day by which the past week's reclustering cost more than it saved reads.
    """

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
    recluster_condition_met: str | None = None
    recluster_suspended: str | None = None
    recluster_loss: int | None = None


@dataclass(frozen=True)
class KeyChange:
    """A key that a build took from a table, and the one that it gave it; None is no key."""

    before: str
    after: str | None

    def text(self, depth: float | None) -> str:
        """Return it in words; ``depth`` is that under the new key, if it is known and not said beside it."""
        if self.after is None:
            return f"cluster_by removed, was {self.before}: no longer sorted or reclustered"
        return f"cluster_by was {self.before}" + ("" if depth is None else f", depth now {depth:.1f}")


def respond(
    response: AdapterResponse,
    result: ReclusterResult | None,
    change: KeyChange | None = None,
    depth: float | None = None,
    note: str = "",
) -> AdapterResponse:
    """Return ``response`` with the figures of a recluster.

    Its message says what else happened to the table: what was rewritten, or what kept a table from being reclustered
    that needs it, and that its key is another one.

    Args:
        response: dbt's own.
        result: The result of the recluster, or None without one.
        change: The change of the key, or None.
        depth: The average depth under the new key, if nothing was rewritten and it is known.
        note: What else there is to say.
    """
    notes = [note] if note else []
    if result is not None and result.rounds:
        notes.append(summary(result))
    elif result is not None and result.suspended:
        notes.append(not_reclustered(result))
    elif result is not None and result.limited:
        notes.append("not reclustered, see the warning")
    if change is not None:
        notes.append(change.text(None if result is not None and result.rounds else depth))
    message = f"{response._message} ({'; '.join(notes)})" if notes else response._message
    if result is None:
        return replace(response, _message=message)
    return ReclusterResponse(
        _message=message,
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
        recluster_condition_met=result.condition_met,
        recluster_suspended=result.suspended,
        recluster_loss=result.loss,
    )
