"""Operations in dbt: what they work with, and what dbt prints of their answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dbt.adapters.events.logging import AdapterLogger

from dbt_recluster.adapter.dbt_errors import ConfigurationError, failure
from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.exceptions import BudgetSpentError, CommitMismatchError, CommitStateUnknownError
from dbt_recluster.operations.declaration import Call, Operation, RunBudget
from dbt_recluster.operations.model_options import ModelOptions
from dbt_recluster.operations.reclustering import recluster_target
from dbt_recluster.operations.runner import Answer, failure_line, run_operation
from dbt_recluster.operations.tables import Choice, Target
from dbt_recluster.report.recluster_text import (
    RESUME_WITH_DBT,
    ProgressLines,
    not_reclustered,
    recluster_line,
)

if TYPE_CHECKING:
    from dbt_recluster.clustering.result import ReclusterResult
    from dbt_recluster.clustering.table import ClusteredTable

logger = AdapterLogger("Recluster")


@dataclass(frozen=True)
class DbtContext:
    """Where operations run in dbt (:class:`dbt_recluster.operations.declaration.Context`).

    Attributes:
        open: Opens a table.
        is_built: Tells whether a table is built.
        queries: Returns the project's queries of a node's table.
        budget: The budget of this invocation.
        is_run: Whether a build is followed by it. Lines of several threads would mix with one that is overwritten.
    """

    open: Callable[[str], ClusteredTable]
    is_built: Callable[[str], bool]
    queries: Callable[[str], Mapping[str, str]]
    budget: RunBudget
    is_run: bool = False
    resume: str = RESUME_WITH_DBT
    absent: str = "not built yet"

    @property
    def trigger(self) -> str:
        """What reclusters."""
        return "run" if self.is_run else "manual"

    def exists(self, target: Target) -> bool:
        """Whether a table is built."""
        return self.is_built(target.relation)

    def progress(self) -> ProgressCallback | None:
        """Return what shows the progress of one recluster."""
        return ProgressLines(logger.debug) if self.is_run else ProgressLines(logger.info, sys.stderr)

    def explain(self, error: Exception) -> str:
        """Return an error in one line; its traceback goes to dbt's log."""
        return failure(error)


@dataclass(frozen=True)
class Output:
    """Something to print.

    Attributes:
        line: For dbt's log.
        text: For standard output.
        warnings: As dbt's warnings.
    """

    line: str = ""
    text: str = ""
    warnings: list[str] = field(default_factory=list)


def outputs(
    operation: Operation,
    choice: Choice,
    targets: list[Target],
    arguments: Mapping[str, Any],
    context: DbtContext,
) -> Iterator[Output]:
    """Run an operation and yield what to print, as soon as it is known.

    Args:
        operation: The operation.
        choice: What the user chose.
        targets: The tables.
        arguments: Its arguments, checked, with ``format``.
        context: Where it runs.

    Raises:
        ConfigurationError: It failed for a table, after the others were tried.
    """
    as_json = arguments["format"] == "json"
    answers: list[Answer] = []
    above = ""
    for answer, number, count in run_operation(operation, choice, targets, arguments, context):
        warnings = [f"{answer.table}: {warning}" for warning in answer.warnings]
        text = answer.text
        if operation.is_rewrite:
            yield Output(f"{number} of {count} {answer.text or answer.values['reason']}")
            text = answer.detail
        elif text:
            is_apart = above and "\n" in above + text
            text, above = f"\n{text}" if is_apart else text, text
        answers.append(answer)
        yield Output(text="" if as_json else text, warnings=warnings)
    yield Output(text=_end(operation, choice, answers, arguments))
    failed = [answer for answer in answers if answer.error is not None]
    if failed and operation.is_rewrite:
        names = ", ".join(answer.table for answer in failed)
        what = f"{len(failed)} of {len(answers)} tables" if len(answers) > 1 else "the table"
        raise ConfigurationError(f"{what} failed: {names}")
    if failed:
        raise ConfigurationError("\n".join(map(failure_line, failed)))


def _end(operation: Operation, choice: Choice, answers: list[Answer], arguments: Mapping[str, Any]) -> str:
    """Return what is printed after all tables had their turn."""
    if operation.finish is not None:
        results = [answer.result for answer in answers if answer.error is None]
        if results:
            written = operation.finish(results, arguments)
            return json.dumps(written) if arguments["format"] == "json" else "\n".join(written)
    elif arguments["format"] == "json":
        values = [answer.values for answer in answers]
        single = choice.is_single and len(values) == 1
        return json.dumps(values[0] if single else values, indent=2, ensure_ascii=False)
    if answers:
        return ""
    return f"{'None of the tables chosen' if choice.is_given else 'No table of this project'} is built yet."


def recluster_after_build(
    relation: str, options: ModelOptions, unique_id: str, context: DbtContext
) -> Answer:
    """Recluster after a build; what the run's budget does not allow is left for the next run."""
    try:
        result = recluster_target(Call(Target(relation, options, unique_id=unique_id), {}, context))
    except BudgetSpentError as e:
        logger.info(f"{relation} was built but not reclustered: {e}")
        return Answer(relation, {})
    return answer_of_build(relation, result)


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
