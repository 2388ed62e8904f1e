"""One invocation of dbt: what its vars say for all tables, and what follows the builds of its models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse

from dbt_recluster.adapter.after_build import KeyChange, answer_of_build, failure_of_build, respond
from dbt_recluster.adapter.connections.submission import RunSubmission
from dbt_recluster.adapter.dbt_errors import as_dbt_errors, failure, logger
from dbt_recluster.adapter.operations import DbtContext
from dbt_recluster.adapter.relations.table_methods import TableMethods
from dbt_recluster.clustering.costs.suggest import LEAST_BLOCKS
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.clustering.values import parse_boolean, parse_bytes, parse_iso_time
from dbt_recluster.exceptions import BudgetSpentError
from dbt_recluster.operations.declaration import Call, RunBudget
from dbt_recluster.operations.model_options import ModelOptions
from dbt_recluster.operations.reclustering import recluster_target
from dbt_recluster.operations.runner import Answer
from dbt_recluster.operations.tables import Target
from dbt_recluster.report.operation_text import maintained as maintained_text
from dbt_recluster.report.recluster_text import few_blocks

AUTOMATIC_CLUSTERING_VAR = "automatic_clustering"
AUTOMATIC_CLUSTERING_ENV = "DBT_RECLUSTER_AUTOMATIC_CLUSTERING"
BUDGET_VAR = "recluster_max_bytes"


def run_vars(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the vars that apply to a whole run, from what dbt's macros have."""
    return {name: context["var"](name, None) for name in (AUTOMATIC_CLUSTERING_VAR, BUDGET_VAR)}


def clustering_turned_off(
    variables: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return the setting that turns automatic clustering off for this run, or None."""
    value = variables.get(AUTOMATIC_CLUSTERING_VAR)
    if value is not None and not parse_boolean(f"var {AUTOMATIC_CLUSTERING_VAR}", value):
        return f"var {AUTOMATIC_CLUSTERING_VAR}"
    value = environment.get(AUTOMATIC_CLUSTERING_ENV)
    if value and not parse_boolean(AUTOMATIC_CLUSTERING_ENV, value):
        return f"environment variable {AUTOMATIC_CLUSTERING_ENV}"
    return None


def run_budget(variables: Mapping[str, Any]) -> int | None:
    """Return the bytes that reclustering may rewrite in this run over all tables, or None for no limit."""
    value = variables.get(BUDGET_VAR)
    return None if value is None else parse_bytes(f"var {BUDGET_VAR}", value)


class DbtRun:
    """What the builds of an invocation share: a budget, what is submitted at its end, and warnings that come once."""

    def __init__(self, adapter: TableMethods) -> None:
        self._adapter = adapter
        self._budget = RunBudget()
        self._warned: set[str] = set()
        self._few_blocks: list[str] = []
        self.submission: RunSubmission | None = None
        credentials = adapter.credentials
        if credentials.recluster_submit is not None:
            target = Path(adapter.config.project_target_path)
            self.submission = RunSubmission(
                credentials.recluster_submit, credentials.recluster_submit_timeout, target
            )

    def first_time(self, subject: str) -> bool:
        """Whether this is the first call with ``subject`` in this invocation, so that warnings come once."""
        if subject in self._warned:
            return False
        self._warned.add(subject)
        return True

    def context(self, variables: Mapping[str, Any], *, is_run: bool = False) -> DbtContext:
        """Return where operations run, under the budget of the vars."""
        self._budget.total = run_budget(variables)
        return DbtContext(self._adapter, self._budget, is_run)

    def end(self) -> None:
        """At the end of dbt's run, whether it went well or not: submit what it has built (``recluster_submit``)."""
        if self._few_blocks:
            logger.info(few_blocks(sorted(set(self._few_blocks)), LEAST_BLOCKS))
            self._few_blocks.clear()
        if self.submission is not None:
            self.submission.submit_at_end()

    def finish_build(
        self, macros: Mapping[str, Any], options: ModelOptions, key_change: KeyChange | None
    ) -> None:
        """Recluster and maintain the table of a model that was just built, and complete dbt's response for it."""
        relation, warn = macros["this"], macros["exceptions"]["warn"]
        is_wanted = options.cluster_by is not None and options.automatic_clustering
        is_last = not macros["flags"].EMPTY and _is_last_batch(macros)
        answer = self._recluster(macros, options) if is_wanted and is_last else None
        if response := self._response(macros["load_result"]("main"), relation, answer, key_change):
            macros["store_result"]("main", response=response)
        # The data is in place, so these are warnings; they respect --warn-error.
        for warning in [] if answer is None else [answer.error, *answer.warnings]:
            if warning:
                warn(warning)
        if not options.maintain or not is_last:
            return
        if reason := self._adapter.cannot_recluster():
            if self.first_time("cannot maintain"):
                warn(f"Tables are not maintained in this run: {reason}")
        elif error := self._maintain(relation.render()):
            warn(error)

    def _recluster(self, macros: Mapping[str, Any], options: ModelOptions) -> Answer | None:
        """Recluster the table of a model that was just built; None if that is off, or impossible."""
        variables = run_vars(macros)
        with as_dbt_errors():
            if clustering_turned_off(variables):
                return None
        reason = None if self.submission is not None else self._adapter.cannot_recluster()
        if reason:
            if self.first_time("cannot recluster"):
                macros["exceptions"]["warn"](f"Tables are not reclustered in this run: {reason}")
            return None
        name = macros["this"].render()
        try:
            if self.submission is not None:
                return self._submit(name, self.submission)
            context = self.context(variables, is_run=True)
            with self._adapter.cancellable():
                target = Target(name, options, unique_id=macros["model"]["unique_id"])
                answer = answer_of_build(name, recluster_target(Call(target, {}, context)))
        except BudgetSpentError as e:
            logger.info(f"{name} was built but not reclustered: {e}")
            return Answer(name, {})
        except Exception as e:  # recluster_session or the command does not start, or the connection is lost
            return failure_of_build(name, e)
        result = answer.result
        if result is not None and result.rounds and result.blocks_before < LEAST_BLOCKS:
            self._few_blocks.append(name)
        return answer

    def _submit(self, name: str, submission: RunSubmission) -> Answer:
        if int(self._adapter.ask(f"select count(*) from {name}.data_files")[0][0]) < 2:
            return Answer(name, {})
        submission.tables.append(name)
        return Answer(name, {}, "reclustered at the end of the run")

    def _maintain(self, name: str) -> str | None:
        """Do the maintenance that is due for a table; return why it failed."""
        try:
            with self._adapter.cancellable():
                maintained = TableMaintenance(self._adapter.open_table(name).iceberg).maintain()
        except Exception as e:
            return f"{name} was built but not maintained: {failure(e)}"
        if maintained.done:
            logger.info(maintained_text(maintained.as_dict()))
        return None

    def _response(
        self, main: Any, relation: BaseRelation, answer: Answer | None, change: KeyChange | None
    ) -> AdapterResponse | None:
        """Return dbt's response, completed, or None if there is nothing to add to that of the build."""
        result = None if answer is None else answer.result
        note = "" if answer is None else answer.text
        if main is None or (result is None and change is None and not note):
            return None
        depth = None if result is None else result.depth_after
        if change is not None and change.after is not None and depth is None:
            depth = self._depth(relation.render())
        response = main.response
        plain = response if isinstance(response, AdapterResponse) else AdapterResponse(str(response))
        return respond(plain, result, change, depth, note)

    def _depth(self, name: str) -> float | None:
        """Return the average depth of a table, or None where it cannot be seen."""
        if self._adapter.cannot_recluster():
            return None
        try:
            with self._adapter.cancellable():
                return float(table_information(self._adapter.open_table(name))["average_depth"])
        except Exception as e:  # the build is done
            logger.debug(f"no depth of {name}: {failure(e)}")
            return None


def _is_last_batch(macros: Mapping[str, Any]) -> bool:
    """Whether this is no microbatch, or the one that reaches the end of the run's time range: dbt does not tell."""
    batch = macros["model"].get("batch")
    if not batch:
        return True
    end = macros["invocation_args_dict"].get("event_time_end") or macros["run_started_at"]
    return parse_iso_time(str(batch["event_time_end"])) >= parse_iso_time(str(end))
