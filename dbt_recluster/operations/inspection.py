"""The operations that measure tables, their reads and their keys, and those that record the reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dbt_recluster.advice.cost_model import CostEstimate, CostModel
from dbt_recluster.advice.imported_reads import ImportedReads, import_event_logs, record_queries
from dbt_recluster.advice.overview import (
    VERDICTS,
    Overview,
    information_of,
    table_overview,
    totals,
    totals_by,
    write_metrics,
)
from dbt_recluster.advice.report_data import ReportData, report_data
from dbt_recluster.advice.suggest import Suggestion, suggest_key
from dbt_recluster.clustering.history import table_history
from dbt_recluster.clustering.information import ReadsInformation, reads_information, table_information
from dbt_recluster.clustering.values import parse_event_log, parse_logged_as, parse_queries, parser
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations import table_changes
from dbt_recluster.operations.declaration import (
    BRANCH,
    MEASURED_KEY,
    METRICS,
    PLANNING,
    PRICES,
    SINCE,
    WHERE,
    Answer,
    Argument,
    Call,
    Ending,
    Operation,
    OperationTable,
    key_argument,
)
from dbt_recluster.report import operation_text, recluster_text
from dbt_recluster.text import did_you_mean

# Every operation by name: those that change tables, and those that are declared here.
OPERATIONS = OperationTable(table_changes.OPERATIONS)
_REPORT = "target/clustering_report.html"


def _verdicts(value: Any) -> tuple[str, ...] | None:
    words = value.split(",") if isinstance(value, str) else value
    verdicts = tuple(str(word).strip().lower().replace("-", " ") for word in words)
    return verdicts if verdicts and all(verdict in VERDICTS for verdict in verdicts) else None


@OPERATIONS.declare(
    lambda values, _: operation_text.information(values), MEASURED_KEY, WHERE, BRANCH, short="information"
)
def clustering_information(call: Call) -> dict[str, Any]:
    """Print how well tables are clustered, under their own key or any other: depth, threshold and verdict, every other
    metric, and how many blocks have which depth. Changes nothing.
    """
    return information_of(call.table, call.options, call.arguments["where"], _block_rows(call))


def _block_rows(call: Call) -> int | None:
    return None if call.target.options is None else call.target.options.recluster.block_rows


def _declare_metric(short: str, figure: str, meaning: str) -> None:
    """Declare an operation that prints one figure of :func:`clustering_information`."""

    def run(call: Call) -> dict[str, Any]:
        information = table_information(call.table, call.arguments["where"], _block_rows(call))
        return {key: information[key] for key in ("table", "cluster_key", "suspended", "suspension", figure)}

    OPERATIONS.declare(
        lambda values, _: operation_text.measure(values, figure),
        *(MEASURED_KEY, WHERE),
        short=short,
        name=f"clustering_{short}",
        meaning=f"Print the {meaning}, under their own key or any other. Changes nothing.",
    )(run)


_declare_metric("depth", "average_depth", "average depth of tables")
_declare_metric("ratio", "clustering_ratio", "clustering ratio of tables, 0 to 100 and 100 for no overlap")


@OPERATIONS.declare(
    lambda values, call: recluster_text.history(values, call.arguments[PRICES.name]),
    *(SINCE, PRICES),
    short="history",
)
def clustering_history(call: Call) -> dict[str, Any]:
    """Print what happened to tables, oldest first: every round of reclustering with its trigger, levels, blocks, bytes,
    rows, depths, seconds and conflicts, and the commits of other writers between. It is read from the tables' own
    snapshots, so it goes as far back as those are kept. Changes nothing.

    Returns:
        table: The table.
        since: Older entries are omitted; ISO 8601, or None.
        spent: Money for the rounds among them, or None if their seconds are not all recorded, or without prices.
        assumption: What money stands for, in one line; None without prices.
        entries: The entries, oldest first.
    """
    since, prices = call.arguments["since"], call.arguments[PRICES.name]
    entries = table_history(call.opened, since)
    if prices is not None:
        entries = [replace(e, spent=prices.of_seconds(e.seconds)) if e.is_recluster else e for e in entries]
    return {
        "table": call.target.relation,
        "since": since.isoformat() if since else None,
        "spent": prices and prices.of_seconds(*(e.seconds for e in entries if e.is_recluster)),
        "assumption": prices and prices.assumption,
        "entries": [entry.as_dict() for entry in entries],
    }


def _without_result(answer: Answer) -> Overview:
    verdict, reason = ("failing", answer.error) if answer.error else ("missing", answer.text)
    return Overview(answer.table, verdict, reason.removeprefix(f"{answer.table}: "), labels=answer.labels)


def _overview(answers: list[Answer], arguments: Mapping[str, Any]) -> Ending:
    rows = [replace(a.result, labels=a.labels) if a.result else _without_result(a) for a in answers]
    rows.sort(key=lambda row: row.rank)
    failed = [f"{row.table} is {row.verdict}" for row in rows if row.verdict in (arguments["fail_on"] or ())]
    failed += _write(rows, arguments[METRICS.name])  # the overview is shown all the same
    prices, label, sums = arguments[PRICES.name], arguments["by"], totals(rows)
    if label is not None:
        sums["by"] = totals_by(rows, label)
    if prices is not None:
        sums["assumption"] = prices.assumption
    values = {"tables": [row.as_dict() for row in rows], "totals": sums}
    return Ending(operation_text.overview(rows, sums, prices), values, ", ".join(failed) or None)


@OPERATIONS.declare(
    lambda *_: "",
    Argument(
        "fail_on",
        parser(f"verdicts, separated by commas, of {', '.join(VERDICTS)}", _verdicts),
        "Fail, after showing all, if a table has one of these verdicts, such as deep,failing, and name it.",
        "VERDICTS",
    ),
    METRICS,
    PRICES,
    Argument(
        "by",
        parser("tag, group or owner", lambda value: value if value in ("tag", "group", "owner") else None),
        "Totals for each tag, group or owner of the models, too; the owner is meta.owner, else that of the group.",
        "LABEL",
    ),
    short="overview",
    finish=_overview,
)
def clustering_overview(call: Call) -> Overview:
    """Print one line for each table, the worst first, and totals: verdict, depth, threshold, bytes of the past week,
    last recluster, and what a recluster gains for each GB; format: json has more. Fails, after showing all, if a table
    cannot be read. Changes nothing.
    """
    return table_overview(call.table, call.options(), prices=call.arguments.get(PRICES.name))


def _write_report(answers: list[Answer], arguments: Mapping[str, Any]) -> Ending:
    results: list[ReportData] = [answer.result for answer in answers if answer.result is not None]
    if not results:
        return Ending("", {"files": []})
    from dbt_recluster.report.html import write_report  # matplotlib takes a second

    failing = [_without_result(answer) for answer in answers if answer.result is None]
    files = [str(path) for path in write_report(results, arguments["path"], failing)]
    return Ending("\n".join(files), {"files": files})


@OPERATIONS.declare(
    lambda *_: "",
    Argument(
        "path",
        parser(
            f"the name of an HTML file, such as {_REPORT}",
            lambda value: Path(value) if re.search(r"\.html?$", value, re.IGNORECASE) else None,
        ),
        *("The HTML file to write.", "FILE", _REPORT, Path(_REPORT)),
    ),
    PRICES,
    short="report",
    finish=_write_report,
)
def clustering_report(call: Call) -> ReportData:
    """Write one HTML file that shows how well tables are clustered: their overview, and of each the depth along the
    key now and around the last recluster, the depths and key ranges of the blocks, the history, and what reads open
    in a day with reclustering and without. It needs no network. A picture of the same name, written beside it, is
    for a terminal or a chat. Needs the extra dbt-recluster[report].
    """
    return report_data(call.table, call.options(), call.arguments[PRICES.name])


@OPERATIONS.declare(
    lambda cost, call: operation_text.cost(cost.as_dict(), call.arguments[PRICES.name]),
    key_argument("The key to estimate for; the table keeps its own"),
    *(*PLANNING, PRICES),
    short="estimate",
)
def estimate_clustering_cost(call: Call) -> CostEstimate:
    """Print what clustering tables by their own key or any other would cost: bytes and seconds of the first clustering,
    and of each day of loads like those of the past seven days, which the planner replays on the bounds of the blocks.
    With reads also the balance: bytes that reclustering has rewritten each day, and bytes that reads did not open
    because of it. Changes nothing.
    """
    return CostModel.of(call.table, call.options()).estimate().priced(call.arguments[PRICES.name])


@OPERATIONS.declare(
    lambda suggestion, _: operation_text.suggestion(suggestion.as_dict()),
    Argument(
        "queries",
        parse_queries,
        "Predicates of the table's queries or whole queries, a string or a list. Only columns that they restrict "
        "are tried, and pairs of them.",
        "SQL",
        "the compiled SQL of the project that reads the table, else its most frequent reads, else every column with "
        "queries for one value of it",
        is_list=True,
    ),
    *PLANNING,
    short="suggest",
    needs_choice=True,
)
def suggest_cluster_by(call: Call) -> Suggestion:
    """Suggest a cluster key, or that the table should not be clustered at all. Prints what share of a table's blocks
    queries skip now and would skip under other keys, by a sample of its rows, and what clustering by them costs: the
    bytes of the first clustering and those of each day after it. Changes nothing.
    """
    return suggest_key(call.opened, call.arguments["queries"] or call.queries, call.options())


@OPERATIONS.declare(lambda reads, _: operation_text.reads(reads.as_dict()), MEASURED_KEY, short="reads")
def clustering_reads(call: Call) -> ReadsInformation:
    """Print the reads of tables, declared or recorded: the range of each, how often it is read, the blocks that it
    opens, and how many of them are wasted. Changes nothing.
    """
    own = call.target.options
    call.table.reads.follow(own.recluster.reads if own else None)
    return reads_information(call.table)


@OPERATIONS.declare(
    lambda imported, _: operation_text.imported(imported.as_dict()),
    Argument(
        "event_log",
        parse_event_log,
        "A directory of Spark's event logs, or one log, on any file system that Spark reads.",
        "PATH",
        "the project's compiled SQL",
    ),
    SINCE,
    Argument(
        "logged_as",
        parse_logged_as,
        "The table's full name in the logs, if other applications give its catalog another name.",
        "NAME",
        "its name here",
    ),
    needs_choice=True,
)
def import_reads(call: Call) -> ImportedReads:
    """Record the reads of tables, which every recluster then follows: ranges and counts, never the text of a query.
    They come from the compiled SQL of this project's models, snapshots, tests and analyses (none is run; analyses
    are compiled by dbt compile alone), or from the event logs of any Spark application.
    """
    event_log, since, logged_as = (call.arguments[name] for name in ("event_log", "since", "logged_as"))
    if event_log is not None:
        return import_event_logs(call.opened, event_log, since, logged_as)
    if since is not None or logged_as is not None:
        raise OptionError("since and logged_as are about Spark's event logs: name them with event_log")
    if not call.queries:
        is_model = bool(call.target.unique_id)
        advice = "run dbt compile first, or name" if is_model else "it is no model of this project; name"
        raise OptionError(
            f"{call.target.relation}: nothing of this project that reads it is compiled; {advice} Spark's event logs "
            "with event_log"
        )
    return record_queries(call.opened, call.queries)


@OPERATIONS.declare(lambda values, _: operation_text.forgotten(values), needs_choice=True)
def forget_reads(call: Call) -> dict[str, Any]:
    """Drop the recorded reads of tables, those of import_reads and of recluster_reads: project.

    Returns:
        table: The table.
        forgotten: Ranges that it recorded.
    """
    return {"table": call.target.relation, "forgotten": call.opened.reads.forget()}


# --- by name, and their metrics ---


def operation_named(name: str) -> Operation:
    """Return an operation, or raise OptionError."""
    if name in OPERATIONS:
        return OPERATIONS[name]
    raise OptionError(f"there is no operation {name}; {did_you_mean(name, OPERATIONS, 'there are')}")


def metrics_path(operation: Operation, arguments: Mapping[str, Any]) -> Path | None:
    """Return the file for the metrics of the tables that an operation changes, or None."""
    is_change = operation.finish is None and not arguments.get("dry_run")
    return arguments.get(METRICS.name) if is_change else None


def record_metrics(answers: Sequence[Answer], path: Path | None) -> list[str]:
    """Write each table's line in the overview to a metrics file, if there is one; return why that failed."""
    return [] if path is None or not answers else _write(list(map(_line, answers)), path)


def _write(rows: Sequence[Overview], path: Path | None) -> list[str]:
    try:
        if path is not None:
            write_metrics(rows, path)
    except OptionError as e:
        return [str(e)]
    return []


def _line(answer: Answer) -> Overview:
    assert answer.call is not None
    error = answer.error
    try:
        if error is None:
            line: Overview = clustering_overview.run(answer.call)
            return line
    except Exception as e:  # whatever fails, the metrics of the other tables are written
        error = answer.call.context.explain(e)
    return Overview(answer.table, "failing", error)
