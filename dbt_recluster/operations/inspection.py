"""The operations that measure tables, their reads and their keys, and those that record the reads."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from dbt_recluster.advice.cost_model import CostEstimate, CostModel, ReclusterEstimate
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
from dbt_recluster.clustering.history import HistoryEntry, table_history
from dbt_recluster.clustering.information import (
    ReadsInformation,
    count_blocks_opened,
    reads_information,
    table_information,
)
from dbt_recluster.clustering.options import PlanningOptions, Unpack
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import (
    Queries,
    parse_event_log,
    parse_logged_as,
    parse_number,
    parse_queries,
    parse_queries_by_name,
    parser,
)
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations import table_changes
from dbt_recluster.operations.declaration import (
    METRICS,
    Answer,
    Argument,
    Branch,
    Call,
    Key,
    MeasuredKey,
    Operation,
    OperationTable,
    Prices,
    Since,
    Summary,
    Where,
    table_function,
)
from dbt_recluster.report import result_text
from dbt_recluster.text import did_you_mean

# Every operation by name: those that change tables, and those that are declared here.
OPERATIONS = OperationTable(table_changes.OPERATIONS)
_REPORT = Path("target/clustering_report.html")


def _verdicts(value: Any) -> tuple[str, ...] | None:
    words = value.split(",") if isinstance(value, str) else value
    verdicts = tuple(str(word).strip().lower().replace("-", " ") for word in words)
    return verdicts if verdicts and all(verdict in VERDICTS for verdict in verdicts) else None


@OPERATIONS.declare(lambda values, _: result_text.information(values), short="information")
def clustering_information(
    call: Call,
    cluster_by: MeasuredKey = None,
    where: Where = None,
    branch: Branch = None,
    *,
    block_rows: int | None = None,
) -> dict[str, Any]:
    """Print how well tables are clustered, under their own key or any other: depth, threshold and verdict, every other
    metric, and how many blocks have which depth. Changes nothing.

    Args:
        block_rows: Rows in a full block, for what counts as a small one.
    """
    return information_of(call.table, call.options, where, block_rows or _block_rows(call))


def _block_rows(call: Call) -> int | None:
    return None if call.target.options is None else call.target.options.recluster.block_rows


def _measure(call: Call, figure: str, where: str | None) -> dict[str, Any]:
    """Return one figure of :func:`clustering_information`, and what it is of."""
    information = table_information(call.table, where, _block_rows(call))
    return {key: information[key] for key in ("table", "cluster_key", "suspended", "suspension", figure)}


@OPERATIONS.declare(lambda values, _: result_text.measure(values, "average_depth"), short="depth")
def clustering_depth(call: Call, cluster_by: MeasuredKey = None, where: Where = None) -> dict[str, Any]:
    """Print the average depth of tables, under their own key or any other. Changes nothing."""
    return _measure(call, "average_depth", where)


@OPERATIONS.declare(lambda values, _: result_text.measure(values, "clustering_ratio"), short="ratio")
def clustering_ratio(call: Call, cluster_by: MeasuredKey = None, where: Where = None) -> dict[str, Any]:
    """Print the clustering ratio of tables, 0 to 100 and 100 for no overlap, under their own key or any other. Changes
    nothing.
    """
    return _measure(call, "clustering_ratio", where)


def _limit(value: Any, least: float, greatest: float) -> float | None:
    limit = parse_number(value)
    return limit if limit is not None and least <= limit <= greatest else None


Limit = Annotated[float | None, Argument(parser("a number of at least 1", lambda v: _limit(v, 1, math.inf)))]
Percentage = Annotated[float | None, Argument(parser("a number from 0 to 100", lambda v: _limit(v, 0, 100)))]


def well_clustered(
    open_table: Callable[[], ClusteredTable],
    max_average_depth: Limit = None,
    max_p95_depth: Limit = None,
    max_fragmentation: Limit = None,
    min_ratio: Percentage = None,
    cluster_by: MeasuredKey = None,
    predicate: Where = None,
) -> list[dict[str, Any]]:
    """A generic test, for models, seeds, snapshots and sources: fails when an Iceberg table is clustered worse than the
    limits given, of which there must be one. Reads the table's metadata, not its rows.

    Args:
        max_average_depth: The greatest average depth that passes, at least 1.
        max_p95_depth: The greatest depth that 95 % of the blocks may have, at least 1.
        max_fragmentation: How many blocks there may be for each full one that their rows and bytes would make, in the
            worst partition; at least 1.
        min_ratio: The least reducible ratio that passes, 0 to 100.

    Returns:
        The limits that are exceeded, each with ``limit``, ``allowed``, ``measured`` and ``text``.
    """
    limits = {
        "max_average_depth": ("average_depth", max_average_depth),
        "max_p95_depth": ("p95_depth", max_p95_depth),
        "max_fragmentation": ("max_fragmentation", max_fragmentation),
        "min_ratio": ("reducible_ratio", min_ratio),
    }
    if all(allowed is None for _, allowed in limits.values()):
        raise OptionError(f"well_clustered needs a limit: {', '.join(limits)}")
    table = open_table()
    information = table_information(table if cluster_by is None else table.under(cluster_by), predicate)
    broken = []
    for name, (figure, allowed) in limits.items():
        value = float(information[figure])
        if allowed is not None and (value < allowed if name == "min_ratio" else value > allowed):
            text = (
                f"{table.name} by {information['cluster_key']}: {name} is {allowed:g}, and it has {value:g}"
            )
            broken.append({"limit": name, "allowed": allowed, "measured": value, "text": text})
    return broken


@table_function
def blocks_opened(call: Call, where: str) -> int:
    """Return how many blocks a query with this predicate opens, by Iceberg's own scan planning."""
    return count_blocks_opened(call.opened, where)


@dataclass(frozen=True)
class History:
    """The history of a table.

    Attributes:
        table: The table.
        since: Older entries are omitted; ISO 8601, or None.
        spent: Money for the rounds among them, or None if their seconds are not all recorded, or without prices.
        assumption: What money stands for, in one line; None without prices.
        entries: The entries, oldest first.
    """

    table: str
    since: str | None
    spent: float | None
    assumption: str | None
    entries: list[HistoryEntry]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**vars(self), "entries": [entry.as_dict() for entry in self.entries]}


@OPERATIONS.declare(
    lambda found, call: result_text.history(found.as_dict(), call.arguments["prices"]), short="history"
)
def clustering_history(call: Call, since: Since = None, prices: Prices = None) -> History:
    """Print what happened to tables, oldest first: every round of reclustering with its trigger, levels, blocks, bytes,
    rows, depths, seconds and conflicts, and the commits of other writers between. It is read from the tables' own
    snapshots, so it goes as far back as those are kept. Changes nothing.
    """
    entries, spent = table_history(call.opened, since), None
    if prices is not None:
        entries = [replace(e, spent=prices.of_seconds(e.seconds)) if e.is_recluster else e for e in entries]
        spent = prices.of_seconds(*(entry.seconds for entry in entries if entry.is_recluster))
    start = since.isoformat() if since else None
    return History(call.target.relation, start, spent, prices.assumption if prices else None, entries)


def _without_result(answer: Answer) -> Overview:
    verdict, reason = ("failing", answer.error) if answer.error else ("missing", answer.text)
    return Overview(answer.table, verdict, reason.removeprefix(f"{answer.table}: "), labels=answer.labels)


def _overview(
    answers: list[Answer],
    fail_on: Annotated[
        tuple[str, ...] | None,
        Argument(parser(f"verdicts, separated by commas, of {', '.join(VERDICTS)}", _verdicts), "VERDICTS"),
    ] = None,
    metrics: Annotated[Path | None, METRICS] = None,
    prices: Prices = None,
    by: Annotated[
        str | None,
        Argument(
            parser(
                "tag, group or owner", lambda value: value if value in ("tag", "group", "owner") else None
            ),
            "LABEL",
        ),
    ] = None,
) -> Summary:
    """Return the overview of all tables.

    Args:
        fail_on: Fail, after showing all, if a table has one of these verdicts, such as deep,failing, and name it.
        by: Totals for each tag, group or owner of the models, too; the owner is meta.owner, else that of the group.
    """
    rows = [replace(a.result, labels=a.labels) if a.result else _without_result(a) for a in answers]
    rows.sort(key=lambda row: row.rank)
    failed = [f"{row.table} is {row.verdict}" for row in rows if row.verdict in (fail_on or ())]
    failed += _write(rows, metrics)  # the overview is shown all the same
    sums = totals(rows)
    if by is not None:
        sums["by"] = totals_by(rows, by)
    if prices is not None:
        sums["assumption"] = prices.assumption
    values = {"tables": [row.as_dict() for row in rows], "totals": sums}
    return Summary(result_text.overview(rows, sums, prices), values, ", ".join(failed) or None)


@OPERATIONS.declare(lambda *_: "", short="overview", finish=_overview)
def clustering_overview(call: Call) -> Overview:
    """Print one line for each table, the worst first, and totals: verdict, depth, threshold, bytes of the past week,
    last recluster, and what a recluster gains for each GB; format: json has more. Fails, after showing all, if a table
    cannot be read. Changes nothing.
    """
    return table_overview(call.table, call.options(), prices=call.arguments.get("prices"))


def _write_report(
    answers: list[Answer],
    path: Annotated[
        Path,
        Argument(
            parser(
                f"the name of an HTML file, such as {_REPORT}",
                lambda value: Path(value) if re.search(r"\.html?$", value, re.IGNORECASE) else None,
            ),
            "FILE",
        ),
    ] = _REPORT,
) -> Summary:
    """Write the report.

    Args:
        path: The HTML file to write.
    """
    results: list[ReportData] = [answer.result for answer in answers if answer.result is not None]
    if not results:
        return Summary("", {"files": []})
    from dbt_recluster.report.html import write_report  # matplotlib takes a second

    failing = [_without_result(answer) for answer in answers if answer.result is None]
    files = [str(path) for path in write_report(results, path, failing)]
    return Summary("\n".join(files), {"files": files})


@OPERATIONS.declare(lambda *_: "", short="report", finish=_write_report)
def clustering_report(call: Call, prices: Prices = None) -> ReportData:
    """Write one HTML file that shows how well tables are clustered: their overview, and of each the depth along the
    key now and around the last recluster, the depths and key ranges of the blocks, the history, and what reads open
    in a day with reclustering and without. It needs no network. A picture of the same name, written beside it, is
    for a terminal or a chat. Needs the extra dbt-recluster[report].
    """
    return report_data(call.table, call.options(), prices)


@OPERATIONS.declare(
    lambda cost, call: result_text.cost(cost.as_dict(), call.arguments["prices"]), short="estimate"
)
def estimate_clustering_cost(
    call: Call,
    cluster_by: Key = None,
    *,
    prices: Prices = None,
    now: datetime | None = None,
    **options: Unpack[PlanningOptions],
) -> CostEstimate:
    """Print what clustering tables by their own key or any other would cost: bytes and seconds of the first clustering,
    and of each day of loads like those of the past seven days, which the planner replays on the bounds of the blocks.
    With reads also the balance: bytes that reclustering has rewritten each day, and bytes that reads did not open
    because of it. Changes nothing.

    Args:
        cluster_by: The key to estimate for; the table keeps its own: columns or expressions, a list or separated by
            commas.
        now: The end of the past seven days, by default now.
    """
    return CostModel.of(call.table, call.options(), now).estimate().priced(prices)


@table_function
def estimate_recluster(
    call: Call, cluster_by: Key = None, *, where: Where = None, **options: Unpack[PlanningOptions]
) -> ReclusterEstimate:
    """Estimate what :func:`recluster` with ``final`` and the same arguments would cost and gain."""
    given = call.options()
    return CostModel.of(call.table, given).recluster(call.table.predicate(given.where))


@OPERATIONS.declare(
    lambda suggestion, _: result_text.suggestion(suggestion.as_dict()), short="suggest", needs_choice=True
)
def suggest_cluster_by(
    call: Call,
    queries: Annotated[Queries | None, Argument(parse_queries, "SQL", is_list=True)] = None,
    **options: Unpack[PlanningOptions],
) -> Suggestion:
    """Suggest a cluster key, or that the table should not be clustered at all. Prints what share of a table's blocks
    queries skip now and would skip under other keys, by a sample of its rows, and what clustering by them costs: the
    bytes of the first clustering and those of each day after it. Changes nothing.

    Args:
        queries: Predicates of the table's queries or whole queries, a string or a list. Only columns that they restrict
            are tried, and pairs of them. By default, the compiled SQL of the project that reads the table, else its
            most frequent reads, else every column with queries for one value of it.

    Raises:
        ClusterKeyError: No column, or none that the queries name, can be a key.
    """
    return suggest_key(call.opened, queries or call.queries, call.options())


@OPERATIONS.declare(lambda reads, _: result_text.reads(reads.as_dict()), short="reads")
def clustering_reads(call: Call, cluster_by: MeasuredKey = None) -> ReadsInformation:
    """Print the reads of tables, declared or recorded: the range of each, how often it is read, the blocks that it
    opens, and how many of them are wasted. Changes nothing.
    """
    own = call.target.options
    call.table.reads.follow(own.recluster.reads if own else None)
    return reads_information(call.table)


@OPERATIONS.declare(lambda imported, _: result_text.imported(imported.as_dict()), needs_choice=True)
def import_reads(
    call: Call,
    event_log: Annotated[str | None, Argument(parse_event_log, "PATH")] = None,
    since: Since = None,
    logged_as: Annotated[str | None, Argument(parse_logged_as, "NAME")] = None,
    *,
    queries: Mapping[str, str] | None = None,
) -> ImportedReads:
    """Record the reads of tables, which every recluster then follows: ranges and counts, never the text of a query.
    They come from the compiled SQL of this project's models, snapshots, tests and analyses (none is run; analyses
    are compiled by dbt compile alone), or from the event logs of any Spark application.

    Args:
        event_log: A directory of Spark's event logs, or one log, on any file system that Spark reads. By default, the
            project's compiled SQL.
        logged_as: The table's full name in the logs, if other applications give its catalog another name. By default,
            its name here.
        queries: SQL queries by name, of which each counts once. They replace those of an earlier call.

    Raises:
        EventLogError: There are no logs.
    """
    if event_log is not None and queries is not None:
        raise OptionError("import_reads takes event_log or queries, not both")
    if event_log is not None:
        return import_event_logs(call.opened, event_log, since, logged_as)
    if since is not None or logged_as is not None:
        raise OptionError("since and logged_as are about Spark's event logs: name them with event_log")
    if queries is not None:
        return record_queries(call.opened, parse_queries_by_name("queries", queries))
    if not call.queries:
        is_model = bool(call.target.unique_id)
        advice = "run dbt compile first, or name" if is_model else "it is no model of this project; name"
        raise OptionError(
            f"{call.target.relation}: nothing of this project that reads it is compiled; {advice} Spark's event logs "
            "with event_log"
        )
    return record_queries(call.opened, call.queries)


@OPERATIONS.declare(lambda values, _: result_text.forgotten(values), needs_choice=True)
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
            line: Overview = OPERATIONS["clustering_overview"].run(answer.call)
            return line
    except Exception as e:  # whatever fails, the metrics of the other tables are written
        error = answer.call.context.explain(e)
    return Overview(answer.table, "failing", error)
