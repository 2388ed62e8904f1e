"""Runs the operations of ``dbt run-operation`` on the tables that a user chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dbt_recluster.adapter.arguments import CHOICE_ARGUMENTS, Parser, parse_arguments, parse_format
from dbt_recluster.adapter.dbt_errors import failure
from dbt_recluster.adapter.targets import CLUSTERED, Choice, Eligible, Node, Target, targets
from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.session.interruption import stop_if_interrupted
from dbt_recluster.table_names import NameResolution

if TYPE_CHECKING:
    from dbt_recluster.clustering.table import ClusteredTable

T = TypeVar("T")

# Returns the table of a relation under a key, or under its own.
Open = Callable[[str, ClusterKey | None], "ClusteredTable"]
# Whether a relation exists.
Exists = Callable[[str], bool]
# Returns the unique ids of the nodes that dbt's selectors admit: those of select, and of exclude.
Selected = Callable[[list[str] | None, list[str] | None], frozenset[str]]
# Returns the compiled SQL of what reads a node's table, by name.
Queries = Callable[[str], Mapping[str, str]]


def _no_queries(_: str) -> Mapping[str, str]:
    return {}


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
        needs_choice: Whether tables have to be chosen: an operation that changes tables does not change all by default.
        eligible: Which of the project's tables it is for.
        parsers: The arguments besides those that choose tables, and ``format``.
        takes_project: Whether ``run`` takes the project's queries of the table by name, as ``project``.
        shared: Returns further arguments of ``run``, once for all tables.
    """

    run: Callable[..., Any]
    text: Callable[[Any], str]
    needs_choice: bool = False
    eligible: Eligible = CLUSTERED
    parsers: Mapping[str, Parser] = field(default_factory=dict)
    takes_project: bool = False
    shared: Callable[[], Mapping[str, Any]] = dict

    @property
    def arguments(self) -> dict[str, Parser]:
        """All arguments."""
        return {**CHOICE_ARGUMENTS, **self.parsers, "format": parse_format}


@dataclass(frozen=True)
class OperationRunner:
    """Runs operations on the tables of a project.

    Attributes:
        open: Opens a table.
        exists: Tells whether a table is built.
        selected: Resolves dbt's selectors.
        names: Which table a name means.
        queries: Returns the project's queries of a table.
    """

    open: Open
    exists: Exists
    selected: Selected
    names: NameResolution
    queries: Queries = _no_queries

    def choice(self, table: Any, select: list[str] | None, exclude: list[str] | None) -> Choice:
        """Return which tables the arguments choose.

        Raises:
            OptionError: Tables are both named and selected, or a selector is wrong.
        """
        if select is None and exclude is None:
            return Choice(table)
        if table is not None:
            raise OptionError("name tables, or choose them by select and exclude, not both")
        return Choice(selected=self.selected(select, exclude))

    def targets(self, choice: Choice, nodes: Iterable[Node], eligible: Eligible = CLUSTERED) -> list[Target]:
        """Return the tables that an operation works on (:func:`dbt_recluster.adapter.targets.targets`)."""
        return targets(choice, nodes, self.names, eligible)

    def run(self, name: str, operation: Operation, given: Mapping[str, Any], nodes: Iterable[Node]) -> Answer:
        """Run an operation on every table that it names. A table that fails does not stop the others.

        Raises:
            OptionError, ClusterKeyError: An argument is wrong.
        """
        arguments = parse_arguments(name, operation.arguments, given)
        choice = self.choice(*map(arguments.pop, CHOICE_ARGUMENTS))
        output = arguments.pop("format")
        arguments |= operation.shared()
        if operation.needs_choice and not choice.is_given:
            raise OptionError(
                f"{name} needs a table: --args '{{table: schema.name}}', or a selector: --args '{{select: tag:name}}'"
            )

        def run(target: Target) -> Any:
            if not operation.takes_project:
                return operation.run(self.open, target, **arguments)
            project = self.queries(target.unique_id) if target.unique_id else {}
            return operation.run(self.open, target, **arguments, project=project)

        answers, failures = self.for_all(self.targets(choice, nodes, operation.eligible), run)
        if output == "json":
            single = choice.is_single and len(answers) == 1
            text = json.dumps(answers[0] if single else answers, indent=2, ensure_ascii=False)
        else:
            texts = list(map(operation.text, answers))
            text = ("\n\n" if any("\n" in text for text in texts) else "\n").join(texts)
            text = text or ("" if failures else _not_built(choice))
        return Answer(text, "\n".join(failures) or None)

    def report(self, choice: Choice, path: Path, nodes: Iterable[Node]) -> Answer:
        """Write the report of the tables chosen, and return its path. A table that fails is left out and named.

        Raises:
            OptionError, ReportError: There is no such table, or the report cannot be written.
        """
        from dbt_recluster.report.html import write_report

        data, failures = self.for_all(
            self.targets(choice, nodes),
            lambda target: self.open(target.relation, target.config.cluster_by).report_data(
                target.config.options()
            ),
        )
        if not data:
            return Answer("", "\n".join(failures) or _not_built(choice))
        written = write_report(data, path)
        return Answer("\n".join(map(str, written)), "\n".join(failures) or None)

    def for_all(self, selected: Iterable[Target], work: Callable[[Target], T]) -> tuple[list[T], list[str]]:
        """Work on every target that is built; return the results, and the failures in words."""
        results: list[T] = []
        failures: list[str] = []
        for target in selected:
            stop_if_interrupted()
            error = target.error
            try:
                if self.is_passed_over(target):
                    continue
                if error is None:
                    results.append(work(target))
                    continue
            except Exception as e:
                error = failure(e)
            failures.append(error if target.relation in error else f"{target.relation}: {error}")
        return results, failures

    def is_passed_over(self, target: Target) -> bool:
        """Whether a target is not built yet and the user did not name it."""
        return not target.required and not self.exists(target.relation)


def _not_built(choice: Choice) -> str:
    if choice.is_given:
        return "None of the tables chosen is built yet."
    return "No table of this project is built yet."
