"""What dbt says of a model whose table was reclustered after its build: its line, its response and its warnings."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass, replace
from typing import Any

from dbt.adapters.contracts.connection import AdapterResponse

from dbt_recluster.adapter.dbt_errors import failure, logger
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.exceptions import CommitMismatchError, CommitStateUnknownError
from dbt_recluster.operations.runner import Answer
from dbt_recluster.report.recluster_text import not_reclustered, recluster_line, summary

# What dbt stores of a recluster in run_results.json: the figure, its name in the result, and its meaning.
FIGURES = {
    "blocks_rewritten": ("blocks_in", "Blocks that the recluster removed from the table."),
    "blocks_written": ("blocks_out", "Blocks that it added to the table."),
    "bytes_rewritten": ("bytes_in", "Bytes of the blocks removed."),
    "bytes_written": ("bytes_out", "Bytes of the blocks added."),
    "rows_rewritten": ("rows", "Rows of the blocks removed."),
    "block_count": ("blocks_after", "Blocks of the table at the end."),
    "average_depth_before": ("depth_before", "Average depth after the build."),
    "average_depth": ("depth_after", "Average depth at the end."),
    "read_depth_before": ("read_depth_before", "Read depth after the build, if that decides."),
    "read_depth": ("read_depth_after", "Read depth at the end, if that decides."),
    "reducible_depth": (
        "reducible_depth",
        "What was compared with the threshold in the end, as far as merges can reduce it.",
    ),
    "recluster_rounds": ("rounds", "Committed rounds."),
    "recluster_conflicts": (
        "conflicts",
        "How often work was planned or committed again because another writer was faster.",
    ),
    "recluster_seconds": ("seconds", "Wall time of the recluster."),
    "recluster_reason": ("reason", "Why it ended."),
    "recluster_condition_met": (
        "condition_met",
        "The condition that was met, of `recluster_after` and `recluster_when`.",
    ),
    "recluster_suspended": ("suspended", "Since when reclustering is suspended, if that ended it."),
    "recluster_loss": (
        "loss",
        "Bytes a day by which the past week's reclustering cost more than it saved reads.",
    ),
}
# dbt's response with these figures.
_Response: type[Any] = make_dataclass(
    "ReclusterResponse", [(name, Any, None) for name in FIGURES], bases=(AdapterResponse,)
)


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
    figures = result.as_dict()
    answered: AdapterResponse = _Response(
        _message=message,
        code=response.code,
        rows_affected=response.rows_affected,
        query_id=response.query_id,
        **{name: figures[of_result] for name, (of_result, _) in FIGURES.items()},
    )
    return answered


def answer_of_build(relation: str, result: ReclusterResult | None) -> Answer:
    """Return what the user should know of a recluster after a build; None if nothing is known of it."""
    if result is None:
        return Answer(relation, {})
    warnings = [f"{relation}: {warning}" for warning in result.warnings]
    if result.limited and not result.rounds:
        warnings.append(f"{relation} was built but {not_reclustered(result)}")
    if result.condition_met is not None:
        log = logger.info if result.rounds else logger.debug
        log(f"{relation}: recluster condition met, {result.condition_met}")
    # Unused files cost money until somebody removes them; everything else is on the model's line.
    (logger.warning if result.orphans else logger.debug)(recluster_line(result))
    return Answer(relation, {}, result=result, warnings=warnings)


def failure_of_build(relation: str, error: Exception) -> Answer:
    """Return what the user should know of a recluster that failed after a build: the data is in place."""
    is_committed = isinstance(error, (CommitMismatchError, CommitStateUnknownError))  # or may be
    what = "was built, and its recluster failed" if is_committed else "was built but not reclustered"
    return Answer(relation, {}, error=f"{relation} {what}: {failure(error)}")
