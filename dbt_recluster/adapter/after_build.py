"""What dbt says of a model whose table was reclustered after its build: its line, its response and its warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import make_dataclass, replace
from typing import Any

from dbt.adapters.contracts.connection import AdapterResponse

from dbt_recluster.adapter.dbt_errors import failure, logger
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.exceptions import CommitMismatchError, CommitStateUnknownError
from dbt_recluster.report.recluster_text import not_reclustered, recluster_line, standing, summary

# What dbt stores of a recluster in run_results.json, and the figures of its result that these are.
FIGURES = {
    "blocks_rewritten": "blocks_in",
    "blocks_written": "blocks_out",
    "bytes_rewritten": "bytes_in",
    "bytes_written": "bytes_out",
    "rows_rewritten": "rows",
    "block_count": "blocks_after",
    "average_depth_before": "depth_before",
    "average_depth": "depth_after",
    "read_depth_before": "read_depth_before",
    "read_depth": "read_depth_after",
    "reducible_depth": "reducible_depth",
    **{
        f"recluster_{name}": name
        for name in ("rounds", "conflicts", "seconds", "reason", "condition_met", "suspended", "loss")
    },
}
# dbt's response with these figures.
_Response: type[Any] = make_dataclass(
    "ReclusterResponse", [(name, Any, None) for name in FIGURES], bases=(AdapterResponse,)
)


def note_of(result: ReclusterResult | None) -> str:
    """Return what a model's line says of a recluster: its summary, or what kept a table from one that needs it."""
    if result is None:
        return ""
    if result.rounds:
        return summary(result)
    if result.suspended:
        return not_reclustered(result)
    if result.limited:
        return "not reclustered, see the warning"
    waits = "" if result.waits_for is None else f"next recluster after {result.waits_for}"
    return "; ".join(filter(None, [standing(result), waits]))


def respond(response: Any, result: ReclusterResult | None, notes: Sequence[str]) -> AdapterResponse:
    """Return dbt's response for a build, completed by notes on the model's line and the figures of a recluster."""
    plain = response if isinstance(response, AdapterResponse) else AdapterResponse(str(response))
    message = f"{plain._message} ({'; '.join(notes)})" if notes else plain._message
    if result is None:
        return replace(plain, _message=message)
    figures = result.as_dict()
    completed: AdapterResponse = _Response(
        _message=message,
        code=plain.code,
        rows_affected=plain.rows_affected,
        query_id=plain.query_id,
        **{name: figures[figure] for name, figure in FIGURES.items()},
    )
    return completed


def warnings_of(table: str, result: ReclusterResult) -> list[str]:
    """Return what the user should know of a recluster after a build, and log the rest."""
    warnings = [f"{table}: {warning}" for warning in result.warnings]
    if result.limited and not result.rounds:
        warnings.append(f"{table} was built but {not_reclustered(result)}")
    if result.condition_met is not None:
        log = logger.info if result.rounds else logger.debug
        log(f"{table}: recluster condition met, {result.condition_met}")
    # Unused files cost money until somebody removes them; everything else is on the model's line.
    (logger.warning if result.orphans else logger.debug)(recluster_line(result))
    return warnings


def failure_of_build(table: str, error: Exception) -> str:
    """Return what the user should know of a recluster that failed after a build: the data is in place."""
    is_committed = isinstance(error, (CommitMismatchError, CommitStateUnknownError))  # or may be
    what = "was built, and its recluster failed" if is_committed else "was built but not reclustered"
    return f"{table} {what}: {failure(error)}"
