"""The operations that change nothing: how well tables are clustered, what it would cost, and by which key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt_recluster.clustering.costs.cost_model import CostEstimate, CostModel
from dbt_recluster.clustering.costs.suggest import Suggestion, suggest_key
from dbt_recluster.clustering.history import table_history
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.report_data import report_data
from dbt_recluster.clustering.values import parse_queries
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.arguments import PLANNING, SINCE, WHERE, key_argument
from dbt_recluster.operations.declaration import Argument, Operation
from dbt_recluster.report import operation_text

if TYPE_CHECKING:
    from dbt_recluster.clustering.report_data import ReportData
    from dbt_recluster.operations.call import Call

DEFAULT_REPORT = "target/clustering_report.html"
_MEASURED = (key_argument("The key to measure by; the table keeps its own"), WHERE)


def parse_path(name: str, value: Any) -> Path:
    """Read the path of an HTML file.

    Raises:
        OptionError: It is none.
    """
    if not isinstance(value, str) or not value.lower().endswith((".html", ".htm")):
        raise OptionError(f"{name} must be the name of an HTML file, such as {DEFAULT_REPORT}, not {value!r}")
    return Path(value)


def _information(call: Call) -> dict[str, Any]:
    own = call.target.options  # of a table's other options, one may be wrong
    block_rows = None if own is None else own.recluster.block_rows
    return table_information(call.table, call.arguments["where"], block_rows)


def _measure(metric: str, short: str, meaning: str) -> Operation:
    def run(call: Call) -> dict[str, Any]:
        information = _information(call)
        return {key: information[key] for key in ("table", "cluster_key", "suspended", metric)}

    write = operation_text.measure(metric)
    return Operation(f"clustering_{short}", short, meaning, run, lambda values, _: write(values), _MEASURED)


def _history(call: Call) -> dict[str, Any]:
    """Return the history of a table.

    Returns:
        table: The table.
        since: The time before which entries are left out, ISO 8601, or None.
        entries: The entries, oldest first.
    """
    since = call.arguments["since"]
    return {
        "table": call.target.relation,
        "since": since.isoformat() if since else None,
        "entries": [entry.as_dict() for entry in table_history(call.opened, since)],
    }


def _report(call: Call) -> ReportData:
    return report_data(call.table, call.options())


def _write_report(results: list[ReportData], arguments: Mapping[str, Any]) -> list[str]:
    from dbt_recluster.report.html import write_report  # matplotlib takes a second

    return [str(path) for path in write_report(results, arguments["path"])]


def _estimate(call: Call) -> CostEstimate:
    return CostModel.of(call.table, call.options()).estimate()


def _suggest(call: Call) -> Suggestion:
    return suggest_key(call.opened, call.arguments["queries"] or call.queries, call.options())


INFORMATION = Operation(
    "clustering_information",
    "information",
    "Print how well tables are clustered, under their own key or any other: every metric, and how many blocks have "
    "which depth. Changes nothing.",
    _information,
    lambda values, _: operation_text.information(values),
    _MEASURED,
)
DEPTH = _measure(
    "average_depth",
    "depth",
    "Print the average depth of tables, under their own key or any other. Changes nothing.",
)
RATIO = _measure(
    "clustering_ratio",
    "ratio",
    "Print the clustering ratio of tables, 0 to 100 and 100 for no overlap, under their own key or any other. Changes "
    "nothing.",
)
HISTORY = Operation(
    "clustering_history",
    "history",
    "Print what happened to tables, oldest first: every round of reclustering with its trigger, levels, blocks, bytes, "
    "rows, depths, seconds and conflicts, and the commits of everybody else between. It is read from the tables' own "
    "snapshots, so it goes as far back as those are kept. Changes nothing.",
    _history,
    lambda values, _: operation_text.history(values),
    (SINCE,),
)
REPORT = Operation(
    "clustering_report",
    "report",
    "Write one HTML file that shows how well tables are clustered: the depth along the key before and after the last "
    "recluster, the depths and key ranges of the blocks, the history, and which table would gain most. It needs no "
    "network. A picture of the same name, written beside it, is for a terminal or a chat. Needs the extra "
    "dbt-recluster[report].",
    _report,
    lambda _, __: "",
    (Argument("path", parse_path, "The HTML file to write.", Path(DEFAULT_REPORT), DEFAULT_REPORT, "FILE"),),
    renamed={"tables": "table"},
    finish=_write_report,
)
ESTIMATE = Operation(
    "estimate_clustering_cost",
    "estimate",
    "Print what clustering tables by their own key or any other would cost: bytes and seconds of the first clustering, "
    "and of each day of loads like those of the past seven days, played through by the planner on the bounds of the "
    "blocks. With reads also the balance: bytes that reclustering has rewritten each day, and bytes that the reads did "
    "not open because of it. Changes nothing.",
    _estimate,
    lambda cost, _: operation_text.cost(cost.as_dict()),
    (key_argument("The key to estimate for; the table keeps its own"), *PLANNING),
)
SUGGEST = Operation(
    "suggest_cluster_by",
    "suggest",
    "Suggest a cluster key, or that the table should not be clustered at all. Prints what share of a table's blocks "
    "queries skip now and would skip under other keys, by a sample of its rows, and what clustering by them costs: the "
    "bytes of the first clustering and those of each day after it. Changes nothing.",
    _suggest,
    lambda suggestion, _: operation_text.suggestion(suggestion.as_dict()),
    (
        Argument(
            "queries",
            parse_queries,
            "Predicates of the table's queries or whole queries, a string or a list. Only columns that they restrict "
            "are tried, and pairs of them.",
            otherwise="the compiled SQL of the project that reads the table, else its most frequent reads, else every "
            "column with queries for one value of it",
            metavar="SQL",
            is_list=True,
        ),
        *PLANNING,
    ),
    needs_choice=True,
)
