"""``dbt run-operation``: the operations that read tables, their arguments, and their output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dbt_recluster.adapter.arguments import (
    RECLUSTER_ARGUMENTS,
    Parser,
    parse_arguments,
    parse_format,
    parse_key,
    parse_queries,
    parse_table,
    parse_where,
)
from dbt_recluster.adapter.targets import Node, Target, targets
from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.clustering.values import parse_since
from dbt_recluster.exceptions import OptionError, ReclusterError
from dbt_recluster.report import operation_text

if TYPE_CHECKING:
    from dbt_recluster.clustering.table import ClusteredTable

T = TypeVar("T")

# Returns the table of a relation under a key, or under its own.
Open = Callable[[str, ClusterKey | None], "ClusteredTable"]
# Whether a relation exists.
Exists = Callable[[str], bool]

DEFAULT_REPORT = "target/clustering_report.html"


@dataclass(frozen=True)
class Answer:
    """What an operation prints, and why it failed, if it did."""

    text: str
    error: str | None = None


@dataclass(frozen=True)
class Operation:
    """An operation that looks at tables, one after the other.

    Attributes:
        run: Takes a function that opens tables, the target and the parsed arguments by name; returns JSON values.
        text: Writes the result for one table for people.
        needs_table: Whether a table has to be named: an operation that changes tables does not change all by default.
        parsers: The arguments besides ``table`` and ``format``.
    """

    run: Callable[..., Any]
    text: Callable[[Any], str]
    needs_table: bool = False
    parsers: Mapping[str, Parser] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Parser]:
        """All arguments."""
        return {"table": parse_table, **self.parsers, "format": parse_format}


@dataclass(frozen=True)
class OperationRunner:
    """Runs operations on the tables of a project.

    Attributes:
        open: Opens a table.
        exists: Tells whether a table is built.
    """

    open: Open
    exists: Exists

    def run(self, name: str, given: Mapping[str, Any], nodes: Iterable[Node]) -> Answer:
        """Run an operation on every table that it names. A table that fails does not stop the others.

        Raises:
            OptionError, ClusterKeyError: An argument is wrong.
        """
        operation = OPERATIONS[name]
        arguments = parse_arguments(name, operation.arguments, given)
        table, output = arguments.pop("table"), arguments.pop("format")
        if operation.needs_table and table is None:
            raise OptionError(f"{name} needs a table: --args '{{table: schema.name}}'")
        answers, failures = self.for_all(
            targets(table, nodes), lambda target: operation.run(self.open, target, **arguments)
        )
        if output == "json":
            single = isinstance(table, str) and len(answers) == 1
            text = json.dumps(answers[0] if single else answers, indent=2, ensure_ascii=False)
        else:
            text = "\n\n".join(map(operation.text, answers))
            text = text or ("" if failures else "No table of this project is built yet.")
        return Answer(text, "\n".join(failures) or None)

    def report(self, given: Mapping[str, Any], nodes: Iterable[Node]) -> Answer:
        """Write the report of the tables named, and return its path. A table that fails is left out and named.

        Raises:
            OptionError, ReportError: An argument is wrong, or the report cannot be written.
        """
        from dbt_recluster.report.html import write_report

        arguments = parse_arguments("clustering_report", ARGUMENTS["clustering_report"], given)
        data, failures = self.for_all(
            targets(arguments["tables"], nodes),
            lambda target: self.open(target.relation, target.config.cluster_by).report_data(
                target.config.options()
            ),
        )
        if not data:
            return Answer("", "\n".join(failures) or "No table of this project is built yet.")
        written = write_report(data, arguments["path"])
        return Answer("\n".join(map(str, written)), "\n".join(failures) or None)

    def for_all(self, selected: Iterable[Target], work: Callable[[Target], T]) -> tuple[list[T], list[str]]:
        """Work on every target that is built; return the results, and the failures in words."""
        results: list[T] = []
        failures: list[str] = []
        for target in selected:
            if self.is_passed_over(target):
                continue
            error = target.error
            if error is None:
                try:
                    results.append(work(target))
                    continue
                except ReclusterError as e:
                    error = str(e)
            failures.append(error if target.relation in error else f"{target.relation}: {error}")
        return results, failures

    def is_passed_over(self, target: Target) -> bool:
        """Whether a target is not built yet and the user did not name it."""
        return not target.required and not self.exists(target.relation)


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
        return {key: information[key] for key in ("table", "cluster_key", name)}

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


def _suggest(open_table: Open, target: Target, queries: list[str]) -> dict[str, Any]:
    return open_table(target.relation, None).suggest(queries, target.config.options()).as_dict()


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
        _suggest, operation_text.suggestion, needs_table=True, parsers={"queries": parse_queries}
    ),
    "suspend_recluster": Operation(_suspend, operation_text.suspended, needs_table=True),
    "resume_recluster": Operation(_resume, operation_text.resumed, needs_table=True),
}

# The arguments of every operation.
ARGUMENTS: dict[str, Mapping[str, Parser]] = {
    **{name: operation.arguments for name, operation in OPERATIONS.items()},
    "clustering_report": {"tables": parse_table, "path": _parse_path},
    "recluster": RECLUSTER_ARGUMENTS,
}
