"""``dbt run-operation``: the operations on the known reads of tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dbt_recluster.adapter.arguments import parse_key
from dbt_recluster.adapter.operation_runner import Open, Operation
from dbt_recluster.adapter.targets import Target
from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.clustering.values import parse_event_log, parse_logged_as, parse_since
from dbt_recluster.exceptions import OptionError
from dbt_recluster.report import reads_text


def _reads(open_table: Open, target: Target, cluster_by: ClusterKey | None) -> dict[str, Any]:
    table = open_table(target.relation, cluster_by or target.config.cluster_by)
    return table.clustering_reads(target.config.reads).as_dict()


def _import(
    open_table: Open,
    target: Target,
    event_log: str | None,
    since: datetime | None,
    logged_as: str | None,
    project: Mapping[str, str],
) -> dict[str, Any]:
    if event_log is not None:
        return open_table(target.relation, None).import_event_logs(event_log, since, logged_as).as_dict()
    if since is not None or logged_as is not None:
        raise OptionError("since and logged_as are about Spark's event logs: name them with event_log")
    if not project:
        advice = (
            "run dbt compile first, or name" if target.unique_id else "it is no model of this project; name"
        )
        raise OptionError(
            f"{target.relation}: nothing of this project that reads it is compiled; {advice} Spark's event logs with "
            "event_log"
        )
    return open_table(target.relation, None).learn_from_project(project).as_dict()


def _forget(open_table: Open, target: Target) -> dict[str, Any]:
    return {"table": target.relation, "forgotten": open_table(target.relation, None).forget_reads()}


READS: dict[str, Operation] = {
    "clustering_reads": Operation(_reads, reads_text.reads, parsers={"cluster_by": parse_key}),
    "import_reads": Operation(
        _import,
        reads_text.learned,
        needs_choice=True,
        parsers={"event_log": parse_event_log, "since": parse_since, "logged_as": parse_logged_as},
        takes_project=True,
    ),
    "forget_reads": Operation(_forget, reads_text.forgotten, needs_choice=True),
}
