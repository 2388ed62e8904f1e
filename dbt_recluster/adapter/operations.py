"""Operations in dbt: the nodes that they are for, what they work with, and what dbt prints of their answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dbt_recluster.adapter.connections.session_methods import SessionMethods
from dbt_recluster.adapter.dbt_errors import ConfigurationError, failure, logger
from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.declaration import FORMAT, TABLE, Answer, Ending, Operation, RunBudget
from dbt_recluster.operations.runner import (
    failure_line,
    metrics_path,
    operation_named,
    record_metrics,
    run_operation,
)
from dbt_recluster.operations.tables import Node, Target, choose, labelled, project_queries
from dbt_recluster.report.recluster_text import RESUME_WITH_DBT, ProgressLines


@dataclass
class DbtContext:
    """Where operations run in dbt (:class:`dbt_recluster.operations.declaration.Context`)."""

    adapter: SessionMethods
    budget: RunBudget
    trigger: str = "manual"
    resume: str = RESUME_WITH_DBT
    absent: str = "not built yet"
    records_options: bool = False

    def open(self, relation: str) -> ClusteredTable:
        """Open a table."""
        return self.adapter.open_table(relation)

    def exists(self, target: Target) -> bool:
        """Whether a table is built."""
        return self.adapter.is_built(target.relation)

    def queries(self, unique_id: str) -> Mapping[str, str]:
        """Return the compiled SQL of everything that reads the table of a node, by name."""
        manifest: Any = self.adapter.get_macro_resolver()
        target_path = self.adapter.config.project_target_path

        def compiled(node: Node) -> str | None:
            of_dbt = manifest.nodes[node["unique_id"]]
            if text := getattr(of_dbt, "compiled_code", None):
                return str(text)
            try:  # what an earlier run compiled
                return Path(of_dbt.get_target_write_path(target_path, "compiled")).read_text("utf-8")
            except (OSError, ValueError):
                return None

        return project_queries(manifest.flat_graph["nodes"], unique_id, compiled)

    def progress(self) -> ProgressCallback | None:
        """Return what shows the progress of one recluster."""
        # Lines of several threads would mix with one that is overwritten.
        is_run = self.trigger == "run"
        return ProgressLines(logger.debug) if is_run else ProgressLines(logger.info, sys.stderr)

    def explain(self, error: Exception) -> str:
        """Return an error in one line; its traceback goes to dbt's log."""
        return failure(error)


def operate(name: str, given: Mapping[str, Any], macros: Mapping[str, Any], context: DbtContext) -> None:
    """Run an operation on the tables that are chosen."""
    operation = operation_named(name)
    for argument in operation.arguments:
        value = macros["var"](argument.var, None) if argument.var else None
        if value is not None and given.get(argument.name) is None:
            given = {**given, argument.name: argument.parse(f"var {argument.var}", value)}
    arguments = operation.read((TABLE, FORMAT), given)
    table = arguments[TABLE.name]
    if operation.needs_choice and table is None:
        raise OptionError(f"{name} needs a table: --args '{{table: schema.name}}'")
    adapter, graph = context.adapter, macros["graph"]
    nodes = labelled(graph["nodes"], graph.get("groups", {})).values()
    with adapter.cancellable():
        targets = choose(nodes, table, adapter.names, operation.eligible)
        run_and_print(operation, targets, arguments, context, macros)


def run_and_print(
    operation: Operation,
    targets: list[Target],
    arguments: Mapping[str, Any],
    context: DbtContext,
    macros: Mapping[str, Any],
) -> None:
    """Run an operation and print each answer as soon as it is known: numbered lines of rewrites in dbt's log."""
    as_json = arguments["format"] == "json"
    answers: list[Answer] = []
    above = ""
    for answer, number, count in run_operation(operation, targets, arguments, context):
        text = answer.text
        if operation.is_rewrite:
            macros["log"](f"{number} of {count} {answer.text or answer.values['reason']}", info=True)
            text = answer.detail
        elif text:
            is_apart = above and "\n" in above + text
            text, above = f"\n{text}" if is_apart else text, text
        answers.append(answer)
        if text and not as_json:
            macros["print"](text)
        for warning in answer.warnings:
            macros["exceptions"]["warn"](f"{answer.table}: {warning}")
    for warning in record_metrics(answers, metrics_path(operation, arguments)):
        macros["exceptions"]["warn"](warning)
    ending = _end(operation, answers, arguments)
    if ending.text:
        macros["print"](ending.text)
    failed = [answer for answer in answers if answer.error is not None]
    if failed and operation.is_rewrite:
        names = ", ".join(answer.table for answer in failed)
        what = f"{len(failed)} of {len(answers)} tables" if len(answers) > 1 else "the table"
        raise ConfigurationError(f"{what} failed: {names}")
    if failed or ending.error:
        raise ConfigurationError("\n".join(filter(None, [*map(failure_line, failed), ending.error])))


def _end(operation: Operation, answers: list[Answer], arguments: Mapping[str, Any]) -> Ending:
    """Return what is printed after all tables had their turn."""
    if operation.finish is not None:
        ending = operation.finish(answers, arguments)
    else:
        values = [answer.values for answer in answers]
        is_single = isinstance(arguments["table"], str) and len(values) == 1
        ending = Ending("", values[0] if is_single else values)
    if arguments["format"] == "json":
        return replace(ending, text=json.dumps(ending.values, indent=2, ensure_ascii=False))
    return ending if answers else replace(ending, text="No table of this project is built yet.")
