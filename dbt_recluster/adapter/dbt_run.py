"""One invocation of dbt: its vars and budget, and what follows the build of a node's table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.spark.impl import SparkAdapter

from dbt_recluster.adapter.dbt_errors import failure, logger
from dbt_recluster.adapter.existing_tables import Tables
from dbt_recluster.adapter.operations import DbtContext
from dbt_recluster.adapter.submission import RunSubmission, failure_of_build, warnings_of
from dbt_recluster.advice.suggest import LEAST_BLOCKS
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.clustering.values import parse_boolean, parse_bytes, parse_iso_time
from dbt_recluster.exceptions import BudgetSpentError
from dbt_recluster.operations.declaration import METRICS, Answer, Call, RunBudget
from dbt_recluster.operations.inspection import record_metrics
from dbt_recluster.operations.table_changes import recluster
from dbt_recluster.operations.tables import ModelOptions, Target
from dbt_recluster.report.operation_text import maintained
from dbt_recluster.report.recluster_text import few_blocks, not_reclustered, standing, summary

AUTOMATIC_CLUSTERING_VAR = "automatic_clustering"
AUTOMATIC_CLUSTERING_ENV = "DBT_RECLUSTER_AUTOMATIC_CLUSTERING"
BUDGET_VAR = "recluster_max_bytes"

# The fields of dbt's response after a recluster, in run_results.json, and the figures of its result.
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
_Response: type[Any] = make_dataclass(
    "ReclusterResponse", [(name, Any, None) for name in FIGURES], bases=(AdapterResponse,)
)


@dataclass(frozen=True)
class RunVars:
    """The settings of a whole run."""

    is_off: bool = False  # whether tables are not reclustered after their builds
    budget: int | None = None  # the bytes that reclustering may rewrite over all tables
    metrics: Path | None = None  # the file for the tables' metrics at the end of the run

    @classmethod
    def of(cls, var: Callable[..., Any], environment: Mapping[str, str] = os.environ) -> RunVars:
        """Read the project's vars and the environment; raise OptionError if one is wrong."""
        budget, metrics = var(BUDGET_VAR, None), var(METRICS.var, None)
        switches = {
            f"var {AUTOMATIC_CLUSTERING_VAR}": var(AUTOMATIC_CLUSTERING_VAR, None),
            f"environment variable {AUTOMATIC_CLUSTERING_ENV}": environment.get(AUTOMATIC_CLUSTERING_ENV)
            or None,
        }
        given = [parse_boolean(name, value) for name, value in switches.items() if value is not None]
        return cls(
            not all(given),
            None if budget is None else parse_bytes(f"var {BUDGET_VAR}", budget),
            None if metrics is None else METRICS.parse(f"var {METRICS.var}", metrics),
        )


class DbtRun:
    """The state that the builds of an invocation share: a budget, tables to submit, and warnings given once."""

    def __init__(self, adapter: SparkAdapter, tables: Tables) -> None:
        self._adapter = adapter
        self.tables = tables
        self.budget = RunBudget()
        self._warned: set[str] = set()
        self.few_blocks: set[str] = set()
        self.metrics: Path | None = None
        self.done: list[Answer] = []
        self.submission: RunSubmission | None = None
        if (credentials := tables.session.credentials).recluster_submit is not None:
            self.submission = RunSubmission(credentials, Path(adapter.config.project_target_path))

    def first_time(self, subject: str) -> bool:
        """Return whether this is the first call with ``subject`` in this invocation, to warn once."""
        is_first = subject not in self._warned
        self._warned.add(subject)
        return is_first

    def context(self, settings: RunVars, trigger: str = "manual") -> DbtContext:
        """Return where operations run, under the budget of the settings."""
        self.budget.total = settings.budget
        return DbtContext(self._adapter, self.tables, self.budget, trigger)

    def end(self) -> None:
        """End dbt's run, whether it went well or not: write the metrics, and submit the tables that it built."""
        for warning in record_metrics(self.done, self.metrics):
            logger.warning(warning)
        if self.few_blocks:
            logger.info(few_blocks(sorted(self.few_blocks), LEAST_BLOCKS))
        self.done, self.few_blocks = [], set()
        if self.submission is not None:
            self.submission.submit_at_end()


@dataclass
class AfterBuild:
    """What follows the build of a node's table: a recluster, maintenance, and dbt's response.

    The data is in place, so failures are warnings; they respect ``--warn-error``.
    """

    run: DbtRun
    macros: Mapping[str, Any]  # the context of the node's macros
    settings: RunVars
    options: ModelOptions  # of the node
    former_key: str | None  # that the build replaced

    def __post_init__(self) -> None:
        self._session = self.run.tables.session
        self._name = self.macros["this"].render()
        self._warn = self.macros["exceptions"]["warn"]

    def finish(self, *, by_hook: bool) -> None:
        """Recluster the table if the node's options say so and no hook does, and maintain it."""
        options = self.options
        is_last = not self.macros["flags"].EMPTY and self._is_last_batch()
        is_due = is_last and options.cluster_by is not None and options.automatic_clustering and not by_hook
        self._respond(self._recluster({}) if is_due else Answer(self._name, {}))
        if is_last and options.maintain and self._is_possible("maintained"):
            try:
                with self._session.cancellable():
                    done = TableMaintenance(self._session.open(self._name).iceberg).maintain()
            except Exception as e:  # whatever Spark, Java and the catalog raise
                self._warn(f"{self._name} was built but not maintained: {failure(e)}")
            else:
                if done.done:
                    logger.info(maintained(done.as_dict()))

    def recluster(self, arguments: Mapping[str, Any]) -> None:
        """Recluster the table and complete dbt's response."""
        self._respond(self._recluster(arguments))

    def _respond(self, answer: Answer) -> None:
        """Complete dbt's response for the node, and log warnings."""
        notes = list(filter(None, [answer.text, note_of(answer.result), self._key_note(answer.result)]))
        main = self.macros["load_result"]("main")
        if main is not None and (answer.result is not None or notes):
            self.macros["store_result"]("main", response=respond(main.response, answer.result, notes))
        for warning in filter(None, [answer.error, *answer.warnings]):
            self._warn(warning)

    def _recluster(self, arguments: Mapping[str, Any]) -> Answer:
        """Recluster the table unless that is off or impossible; a failure is the answer's error."""
        name, run, settings = self._name, self.run, self.settings
        if self.macros["flags"].EMPTY or settings.is_off:
            return Answer(name, {})
        if run.submission is None and not self._is_possible("reclustered"):
            return Answer(name, {})
        target = Target(name, self.options, unique_id=self.macros["model"]["unique_id"])
        call = Call(target, arguments, run.context(settings, "run"))
        try:
            if run.submission is not None:
                return self._submit(run.submission, arguments)
            with self._session.cancellable():
                result = recluster.run(call)
        except BudgetSpentError as e:
            logger.info(f"{name} was built but not reclustered: {e}")
            answer = Answer(name, {}, call=call)
        except Exception as e:  # recluster_session or the command does not start, or the connection is lost
            answer = Answer(name, {}, error=failure_of_build(name, e), call=call)
        else:
            if result.rounds and result.blocks_before < LEAST_BLOCKS:
                run.few_blocks.add(name)
            answer = Answer(name, {}, result=result, warnings=warnings_of(name, result), call=call)
        if settings.metrics is not None:
            run.metrics = settings.metrics
            run.done.append(answer)
        return answer

    def _submit(self, submission: RunSubmission, arguments: Mapping[str, Any]) -> Answer:
        name = self._name
        if given := [option for option in RECLUSTER_OPTIONS if arguments.get(option) is not None]:
            logger.warning(f"{name}: recluster_submit goes by the model's configs, not by its hook's {given}")
        if int(self.run.tables.catalogs.ask(f"select count(*) from {name}.data_files")[0][0]) < 2:
            return Answer(name, {})
        submission.tables.append(name)
        return Answer(name, {}, "reclustered at the end of the run")

    def _is_possible(self, what: str) -> bool:
        """Return whether there is a session to recluster with; otherwise, warn once in a run."""
        reason = self._session.missing_reason
        if reason and self.run.first_time(f"cannot be {what}"):
            self._warn(f"Tables are not {what} in this run: {reason}")
        return reason is None

    def _key_note(self, result: ReclusterResult | None) -> str:
        """Return the note on a model's line about a changed key, with the depth by the new one."""
        if self.former_key is None:
            return ""
        if self.options.cluster_by is None:
            return f"cluster_by removed, was {self.former_key}: no longer sorted or reclustered"
        note, depth = f"cluster_by was {self.former_key}", result.depth_after if result else None
        if result is not None and result.rounds:
            return note  # the recluster's own note has the depth
        if depth is None and not self._session.missing_reason:
            try:
                with self._session.cancellable():
                    depth = table_information(self._session.open(self._name))["average_depth"]
            except Exception as e:  # as in finish(); the note does without
                logger.debug(f"no depth of {self._name}: {failure(e)}")
        return note if depth is None else f"{note}, depth now {depth:.1f}"

    def _is_last_batch(self) -> bool:
        """Return whether this is no microbatch, or the one that reaches the end of the run's time range."""
        macros = self.macros
        batch = macros["model"].get("batch")
        if not batch:
            return True
        end = macros["invocation_args_dict"].get("event_time_end") or macros["run_started_at"]
        return parse_iso_time(str(batch["event_time_end"])) >= parse_iso_time(str(end))


def note_of(result: ReclusterResult | None) -> str:
    """Return the note on a model's line about a recluster: its summary, or why there was none."""
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


def respond(response: Any, result: ReclusterResult | None, notes: Sequence[str]) -> Any:
    """Return dbt's response for a build, with notes on the model's line and the figures of a recluster."""
    plain = response if isinstance(response, AdapterResponse) else AdapterResponse(str(response))
    if notes:
        plain = replace(plain, _message=f"{plain._message} ({'; '.join(notes)})")
    if result is None:
        return plain
    figures = result.as_dict()
    return _Response(**{**vars(plain), **{name: figures[figure] for name, figure in FIGURES.items()}})
