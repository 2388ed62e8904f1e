"""One invocation of dbt: its vars and budget, and what follows the build of a node's table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.spark.impl import SparkAdapter

from dbt_recluster.adapter.connections.submission import RunSubmission, failure_of_build, warnings_of
from dbt_recluster.adapter.dbt_errors import as_dbt_errors, failure, logger
from dbt_recluster.adapter.operations import DbtContext
from dbt_recluster.adapter.relations.tables import Tables
from dbt_recluster.advice.suggest import LEAST_BLOCKS
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.clustering.values import parse_boolean, parse_bytes, parse_iso_time
from dbt_recluster.exceptions import BudgetSpentError
from dbt_recluster.operations.declaration import METRICS, Answer, Call, RunBudget
from dbt_recluster.operations.model_options import ModelOptions
from dbt_recluster.operations.reclustering import recluster
from dbt_recluster.operations.runner import record_metrics
from dbt_recluster.operations.tables import Target
from dbt_recluster.report.operation_text import maintained as maintained_text
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
    """The settings of a whole run; reading them raises an OptionError if one is wrong.

    Attributes:
        is_off: Whether tables are not reclustered after their builds.
        budget: The bytes that reclustering may rewrite over all tables, or None.
        metrics: The file for the tables' metrics at the end of the run, or None.
    """

    is_off: bool
    budget: int | None
    metrics: Path | None

    @classmethod
    def of(cls, var: Callable[..., Any], environment: Mapping[str, str] = os.environ) -> RunVars:
        """Read the project's vars and the environment."""
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
        self._tables = tables
        self._session = tables.session
        self._budget = RunBudget()
        self._warned: set[str] = set()
        self._few_blocks: list[str] = []
        self._done: list[Answer] = []
        self._metrics: Path | None = None
        self.submission: RunSubmission | None = None
        if self._session.credentials.recluster_submit is not None:
            target = Path(adapter.config.project_target_path)
            self.submission = RunSubmission(self._session.credentials, target)

    def first_time(self, subject: str) -> bool:
        """Return whether this is the first call with ``subject`` in this invocation, to warn once."""
        is_first = subject not in self._warned
        self._warned.add(subject)
        return is_first

    def context(self, macros: Mapping[str, Any], trigger: str = "manual") -> DbtContext:
        """Return where operations run, under the budget of the vars."""
        self._budget.total = RunVars.of(macros["var"]).budget
        return DbtContext(self._adapter, self._tables, self._budget, trigger)

    def end(self) -> None:
        """End dbt's run, whether it went well or not: write the metrics, and submit the tables that it built."""
        for warning in record_metrics(self._done, self._metrics):
            logger.warning(warning)
        self._done.clear()
        if self._few_blocks:
            logger.info(few_blocks(sorted(set(self._few_blocks)), LEAST_BLOCKS))
            self._few_blocks.clear()
        if self.submission is not None:
            self.submission.submit_at_end()

    def finish_build(
        self, macros: Mapping[str, Any], options: ModelOptions, former_key: str | None, *, by_hook: bool
    ) -> None:
        """Recluster the table of a model that was just built, unless a hook does, and maintain it.

        ``former_key`` is the key that the build replaced, if any.
        """
        is_last = not macros["flags"].EMPTY and _is_last_batch(macros)
        is_due = is_last and options.cluster_by is not None and options.automatic_clustering and not by_hook
        self.recluster(macros, options, former_key, {} if is_due else None)
        warn = macros["exceptions"]["warn"]
        if is_last and options.maintain and self._is_possible("maintained", warn):
            self._maintain(macros["this"].render(), warn)

    def recluster(
        self,
        macros: Mapping[str, Any],
        options: ModelOptions,
        former_key: str | None,
        arguments: Mapping[str, Any] | None,
    ) -> None:
        """Recluster the table of a model that was just built, unless ``arguments`` is None; complete dbt's response."""
        name, warn = macros["this"].render(), macros["exceptions"]["warn"]
        answer = Answer(name, {}) if arguments is None else self._recluster(macros, options, arguments)
        key = None if former_key is None else self._key_note(name, former_key, options, answer.result)
        notes = list(filter(None, [answer.text, note_of(answer.result), key]))
        main = macros["load_result"]("main")
        if main is not None and (answer.result is not None or notes):
            macros["store_result"]("main", response=respond(main.response, answer.result, notes))
        # The data is in place, so these are warnings; they respect --warn-error.
        for warning in filter(None, [answer.error, *answer.warnings]):
            warn(warning)

    def _recluster(
        self, macros: Mapping[str, Any], options: ModelOptions, arguments: Mapping[str, Any]
    ) -> Answer:
        """Recluster a table unless that is off or impossible; a failure is the answer's error."""
        name = macros["this"].render()
        with as_dbt_errors():
            settings = RunVars.of(macros["var"])
        if macros["flags"].EMPTY or settings.is_off:
            return Answer(name, {})
        if self.submission is None and not self._is_possible("reclustered", macros["exceptions"]["warn"]):
            return Answer(name, {})
        self._metrics = settings.metrics
        target = Target(name, options, unique_id=macros["model"]["unique_id"])
        call = Call(target, arguments, self.context(macros, "run"))
        try:
            if self.submission is not None:
                return self._submit(name, self.submission, arguments)
            with self._session.cancellable():
                result = recluster.run(call)
        except BudgetSpentError as e:
            logger.info(f"{name} was built but not reclustered: {e}")
            answer = Answer(name, {}, call=call)
        except Exception as e:  # recluster_session or the command does not start, or the connection is lost
            answer = Answer(name, {}, error=failure_of_build(name, e), call=call)
        else:
            if result.rounds and result.blocks_before < LEAST_BLOCKS:
                self._few_blocks.append(name)
            answer = Answer(name, {}, result=result, warnings=warnings_of(name, result), call=call)
        if self._metrics is not None:
            self._done.append(answer)
        return answer

    def _submit(self, name: str, submission: RunSubmission, arguments: Mapping[str, Any]) -> Answer:
        if given := [option for option in RECLUSTER_OPTIONS if arguments.get(option) is not None]:
            logger.warning(f"{name}: recluster_submit goes by the model's configs, not by its hook's {given}")
        if int(self._tables.catalogs.ask(f"select count(*) from {name}.data_files")[0][0]) < 2:
            return Answer(name, {})
        submission.tables.append(name)
        return Answer(name, {}, "reclustered at the end of the run")

    def _is_possible(self, what: str, warn: Callable[[str], Any]) -> bool:
        """Return whether there is a session to recluster with; otherwise, warn once in a run."""
        reason = self._session.missing_reason
        if reason and self.first_time(f"cannot be {what}"):
            warn(f"Tables are not {what} in this run: {reason}")
        return reason is None

    def _maintain(self, name: str, warn: Callable[[str], Any]) -> None:
        """Do a table's maintenance that is due; its failure is a warning, since the table is built."""
        try:
            with self._session.cancellable():
                maintained = TableMaintenance(self._session.open(name).iceberg).maintain()
        except Exception as e:  # as above
            warn(f"{name} was built but not maintained: {failure(e)}")
            return
        if maintained.done:
            logger.info(maintained_text(maintained.as_dict()))

    def _key_note(
        self, name: str, former_key: str, options: ModelOptions, result: ReclusterResult | None
    ) -> str:
        """Return the note on a model's line about a changed key, with the depth by the new one."""
        if options.cluster_by is None:
            return f"cluster_by removed, was {former_key}: no longer sorted or reclustered"
        depth = result.depth_after if result is not None else None
        if result is not None and result.rounds:
            return f"cluster_by was {former_key}"  # the recluster's note has the depth
        if depth is None and not self._session.missing_reason:
            try:
                with self._session.cancellable():
                    depth = table_information(self._session.open(name))["average_depth"]
            except Exception as e:  # as above; the note does without
                logger.debug(f"no depth of {name}: {failure(e)}")
        return f"cluster_by was {former_key}" + ("" if depth is None else f", depth now {depth:.1f}")


def _is_last_batch(macros: Mapping[str, Any]) -> bool:
    """Return whether this is no microbatch, or the one that reaches the end of the run's time range."""
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


def respond(response: Any, result: ReclusterResult | None, notes: Sequence[str]) -> AdapterResponse:
    """Return dbt's response for a build, with notes on the model's line and the figures of a recluster."""
    plain = response if isinstance(response, AdapterResponse) else AdapterResponse(str(response))
    if notes:
        plain = replace(plain, _message=f"{plain._message} ({'; '.join(notes)})")
    if result is None:
        return plain
    figures = result.as_dict()
    completed: AdapterResponse = _Response(
        **{**vars(plain), **{name: figures[figure] for name, figure in FIGURES.items()}}
    )
    return completed
