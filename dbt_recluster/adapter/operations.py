"""``dbt run-operation``: the operations that look at tables, and the arguments of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dbt_recluster.adapter.arguments import (
    CHOICE_ARGUMENTS,
    RECLUSTER_ARGUMENTS,
    Parser,
    parse_key,
    parse_table,
    parse_where,
)
from dbt_recluster.adapter.housekeeping_operations import HOUSEKEEPING
from dbt_recluster.adapter.operation_runner import Open, Operation
from dbt_recluster.adapter.reads_operations import READS
from dbt_recluster.adapter.targets import Target
from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.clustering.values import parse_queries, parse_since
from dbt_recluster.exceptions import OptionError
from dbt_recluster.report import operation_text

DEFAULT_REPORT = "target/clustering_report.html"


def _parse_path(value: Any) -> Path:
    """``path``: the HTML file to write."""
    text = DEFAULT_REPORT if value is None else value
    if not isinstance(text, str) or not text.lower().endswith((".html", ".htm")):
        raise OptionError(f"path must be the name of an HTML file, such as {DEFAULT_REPORT}, not {value!r}")
    return Path(text)


def _information(open_table: Open, target: Target, cluster_by: ClusterKey | None, where: str | None) -> Any:
    table = open_table(target.relation, cluster_by or target.config.cluster_by)
    return table.information(where, target.config.options().block_rows)


def _measure(name: str) -> Callable[..., dict[str, Any]]:
    def measure(
        open_table: Open, target: Target, cluster_by: ClusterKey | None, where: str | None
    ) -> dict[str, Any]:
        information = _information(open_table, target, cluster_by, where)
        return {key: information[key] for key in ("table", "cluster_key", "suspended", name)}

    return measure


def _history(open_table: Open, target: Target, since: datetime | None) -> dict[str, Any]:
    entries = open_table(target.relation, None).history(since)
    return {
        "table": target.relation,
        "since": since.isoformat() if since else None,
        "entries": [entry.as_dict() for entry in entries],
    }


def _suspend(open_table: Open, target: Target) -> dict[str, Any]:
    return {"table": target.relation, "suspended": open_table(target.relation, None).suspend()}


def _resume(open_table: Open, target: Target) -> dict[str, Any]:
    was_suspended = open_table(target.relation, None).resume()
    return {"table": target.relation, "suspended": None, "was_suspended": was_suspended}


def _cost(open_table: Open, target: Target, cluster_by: ClusterKey | None) -> dict[str, Any]:
    table = open_table(target.relation, cluster_by or target.config.cluster_by)
    return table.estimate_cost(target.config.options()).as_dict()


def _suggest(
    open_table: Open,
    target: Target,
    queries: Sequence[str] | Mapping[str, str],
    project: Mapping[str, str],
) -> dict[str, Any]:
    return open_table(target.relation, None).suggest(queries or project, target.config.options()).as_dict()


_MEASURED: dict[str, Parser] = {"cluster_by": parse_key, "where": parse_where}

OPERATIONS: dict[str, Operation] = {
    "clustering_information": Operation(_information, operation_text.information, parsers=_MEASURED),
    "clustering_depth": Operation(
        _measure("average_depth"), operation_text.measure("average_depth"), parsers=_MEASURED
    ),
    "clustering_ratio": Operation(
        _measure("clustering_ratio"), operation_text.measure("clustering_ratio"), parsers=_MEASURED
    ),
    "clustering_history": Operation(_history, operation_text.history, parsers={"since": parse_since}),
    "estimate_clustering_cost": Operation(_cost, operation_text.cost, parsers={"cluster_by": parse_key}),
    "suggest_cluster_by": Operation(
        _suggest,
        operation_text.suggestion,
        needs_choice=True,
        parsers={"queries": parse_queries},
        takes_project=True,
    ),
    **READS,
    **HOUSEKEEPING,
    "suspend_recluster": Operation(_suspend, operation_text.suspended, needs_choice=True),
    "resume_recluster": Operation(_resume, operation_text.resumed, needs_choice=True),
}

# The arguments of every operation.
ARGUMENTS: dict[str, Mapping[str, Parser]] = {
    **{name: operation.arguments for name, operation in OPERATIONS.items()},
    "clustering_report": {
        **CHOICE_ARGUMENTS,
        "path": _parse_path,
        "tables": parse_table,
    },
    "recluster": RECLUSTER_ARGUMENTS,
}
