"""One invocation of dbt: what its vars say for all tables, and what follows the builds of its models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dbt_recluster.adapter.after_build import failure_of_build, note_of, respond, warnings_of
from dbt_recluster.adapter.connections.submission import RunSubmission
from dbt_recluster.adapter.dbt_errors import as_dbt_errors, failure, logger
from dbt_recluster.adapter.operations import DbtContext
from dbt_recluster.adapter.relations.table_methods import TableMethods
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
from dbt_recluster.report.recluster_text import few_blocks

AUTOMATIC_CLUSTERING_VAR = "automatic_clustering"
AUTOMATIC_CLUSTERING_ENV = "DBT_RECLUSTER_AUTOMATIC_CLUSTERING"
BUDGET_VAR = "recluster_max_bytes"
METRICS_VAR = METRICS.var


def run_vars(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the vars that apply to a whole run, from what dbt's macros have."""
    return {name: context["var"](name, None) for name in (AUTOMATIC_CLUSTERING_VAR, BUDGET_VAR, METRICS_VAR)}


def clustering_turned_off(
    variables: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return the setting that turns automatic clustering off for this run, or None."""
    given = {
        f"var {AUTOMATIC_CLUSTERING_VAR}": variables.get(AUTOMATIC_CLUSTERING_VAR),
        f"environment variable {AUTOMATIC_CLUSTERING_ENV}": environment.get(AUTOMATIC_CLUSTERING_ENV) or None,
    }
    known = ((name, value) for name, value in given.items() if value is not None)
    return next((name for name, value in known if not parse_boolean(name, value)), None)


def run_budget(variables: Mapping[str, Any]) -> int | None:
    """Return the bytes that reclustering may rewrite in this run over all tables, or None for no limit."""
    value = variables.get(BUDGET_VAR)
    return None if value is None else parse_bytes(f"var {BUDGET_VAR}", value)


def metrics_file(variables: Mapping[str, Any]) -> Path | None:
    """Return the file that the tables' metrics go to at the end of this run, or None."""
    value = variables.get(METRICS_VAR)
    return None if value is None else METRICS.parse(f"var {METRICS_VAR}", value)


def check_vars(variables: Mapping[str, Any]) -> None:
    """Raise an OptionError if one of these variables is wrong."""
    run_budget(variables)
    clustering_turned_off(variables)
    metrics_file(variables)


class DbtRun:
    """What the builds of an invocation share: a budget, what is submitted at its end, and warnings that come once."""

    def __init__(self, adapter: TableMethods) -> None:
        self._adapter = adapter
        self._budget = RunBudget()
        self._warned: set[str] = set()
        self._few_blocks: list[str] = []
        self._done: list[Answer] = []
        self._metrics: Path | None = None
        self.submission: RunSubmission | None = None
        if adapter.credentials.recluster_submit is not None:
            target = Path(adapter.config.project_target_path)
            self.submission = RunSubmission(adapter.credentials, target)

    def first_time(self, subject: str) -> bool:
        """Whether this is the first call with ``subject`` in this invocation, so that warnings come once."""
        if subject in self._warned:
            return False
        self._warned.add(subject)
        return True

    def context(self, variables: Mapping[str, Any], trigger: str = "manual") -> DbtContext:
        """Return where operations run, under the budget of the vars."""
        self._budget.total = run_budget(variables)
        return DbtContext(self._adapter, self._budget, trigger)

    def end(self) -> None:
        """At the end of dbt's run, whether it went well or not: submit what it has built (``recluster_submit``)."""
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
        """Recluster, unless a hook does, and maintain the table of a model that was just built.

        ``former_key`` is the key that the build took from the table, if any.
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
        """Recluster a table unless that is off or impossible; what fails is the answer's error."""
        name, variables = macros["this"].render(), run_vars(macros)
        with as_dbt_errors():
            if macros["flags"].EMPTY or clustering_turned_off(variables):
                return Answer(name, {})
        if self.submission is None and not self._is_possible("reclustered", macros["exceptions"]["warn"]):
            return Answer(name, {})
        target = Target(name, options, unique_id=macros["model"]["unique_id"])
        call = Call(target, arguments, self.context(variables, "run"))
        try:
            self._metrics = metrics_file(variables)
            if self.submission is not None:
                return self._submit(name, self.submission, arguments)
            with self._adapter.cancellable():
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
        if int(self._adapter.ask(f"select count(*) from {name}.data_files")[0][0]) < 2:
            return Answer(name, {})
        submission.tables.append(name)
        return Answer(name, {}, "reclustered at the end of the run")

    def _is_possible(self, what: str, warn: Callable[[str], Any]) -> bool:
        """Whether there is a session to work on tables with; otherwise, warn once in a run."""
        reason = self._adapter.cannot_recluster()
        if reason and self.first_time(f"cannot be {what}"):
            warn(f"Tables are not {what} in this run: {reason}")
        return reason is None

    def _maintain(self, name: str, warn: Callable[[str], Any]) -> None:
        """Do the maintenance that is due for a table."""
        try:
            with self._adapter.cancellable():
                maintained = TableMaintenance(self._adapter.open_table(name).iceberg).maintain()
        except Exception as e:
            warn(f"{name} was built but not maintained: {failure(e)}")
            return
        if maintained.done:
            logger.info(maintained_text(maintained.as_dict()))

    def _key_note(
        self, name: str, former_key: str, options: ModelOptions, result: ReclusterResult | None
    ) -> str:
        """Return what a model's line says of a key that changed; of a recluster it has the depth already."""
        if options.cluster_by is None:
            return f"cluster_by removed, was {former_key}: no longer sorted or reclustered"
        depth = result.depth_after if result is not None else None
        if result is not None and result.rounds:
            return f"cluster_by was {former_key}"
        if depth is None and not self._adapter.cannot_recluster():
            try:
                with self._adapter.cancellable():
                    depth = table_information(self._adapter.open_table(name))["average_depth"]
            except Exception as e:  # the build is done
                logger.debug(f"no depth of {name}: {failure(e)}")
        return f"cluster_by was {former_key}" + ("" if depth is None else f", depth now {depth:.1f}")


def _is_last_batch(macros: Mapping[str, Any]) -> bool:
    """Whether this is no microbatch, or the one that reaches the end of the run's time range: dbt does not tell."""
    batch = macros["model"].get("batch")
    if not batch:
        return True
    end = macros["invocation_args_dict"].get("event_time_end") or macros["run_started_at"]
    return parse_iso_time(str(batch["event_time_end"])) >= parse_iso_time(str(end))
