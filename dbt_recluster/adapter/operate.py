"""``dbt run-operation``: for each operation its arguments, what it does to one table, and how its answer is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available

from dbt_recluster.adapter.arguments import (
    Parser,
    parse_arguments,
    parse_candidate_key,
    parse_format,
    parse_queries,
    parse_since,
    parse_where,
)
from dbt_recluster.adapter.errors import as_dbt_errors
from dbt_recluster.adapter.mixin import TableMixin
from dbt_recluster.adapter.operations import Node, Target, targets
from dbt_recluster.exceptions import OptionError
from dbt_recluster.report import cost as show_cost
from dbt_recluster.report import history as show_history
from dbt_recluster.report import information as show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Operation:
    """One operation that looks at tables, one after the other.

    Attributes:
        run: Takes the session, a table and the checked arguments by name; returns what JSON can hold.
        text: Shows what ``run`` returned for one table.
        needs_table: Whether a table has to be named: what changes tables does not change all of them by default.
        parsers: The arguments beside ``table`` and ``format``.
    """

    run: Callable[..., Any]
    text: Callable[[Any], str]
    needs_table: bool = False
    parsers: Mapping[str, Parser] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What an operation prints, and why it failed, if it did."""

    text: str
    error: str | None = None


class Operations(TableMixin):
    """The adapter's method behind the macros of ``macros/operations``."""

    @available.parse_none
    def operate(self, name: str, arguments: Mapping[str, Any], nodes: Iterable[Node]) -> Answer:
        """Check the arguments, run the operation on every table they name, and return what to print.

        A table that fails does not keep the next one from its turn.
        """
        operation = OPERATIONS[name]
        table = arguments.get("table")
        with as_dbt_errors():
            form = parse_format(arguments.get("format"))
            if operation.needs_table and table is None:
                raise OptionError(f"{name} needs a table: --args '{{table: schema.name}}'")
            checked = parse_arguments(operation.parsers, arguments)
            chosen = targets(table, nodes)
        answers, failures = self._each(chosen, lambda target: operation.run(self.spark, target, **checked))
        if form == "json":
            single = isinstance(table, str) and len(answers) == 1
            text = json.dumps(answers[0] if single else answers, indent=2, ensure_ascii=False)
        else:
            text = "\n\n".join(map(operation.text, answers))
            text = text or ("" if failures else "No table of this project is built yet.")
        return Answer(text, "\n".join(failures) or None)


def _key(target: Target, cluster_by: list[str] | None) -> list[str] | None:
    """Return the key asked for, else the model's; None leaves it to the table's sort order."""
    return cluster_by or target.config.key


def _information(
    spark: SparkSession, target: Target, cluster_by: list[str] | None, where: str | None
) -> dict[str, Any]:
    from dbt_recluster.information import clustering_information

    return clustering_information(spark, target.relation, _key(target, cluster_by), where)


def _measure(name: str) -> Callable[..., dict[str, Any]]:
    def measure(
        spark: SparkSession, target: Target, cluster_by: list[str] | None, where: str | None
    ) -> dict[str, Any]:
        found = _information(spark, target, cluster_by, where)
        return {key: found[key] for key in ("table", "cluster_key", name)}

    return measure


def _history(spark: SparkSession, target: Target, since: datetime | None) -> dict[str, Any]:
    from dbt_recluster.history import clustering_history

    entries = clustering_history(spark, target.relation, since)
    return {
        "table": target.relation,
        "since": since.isoformat() if since else None,
        "entries": [entry.as_dict() for entry in entries],
    }


def _suspend(spark: SparkSession, target: Target) -> dict[str, Any]:
    from dbt_recluster.suspension import suspend_recluster

    return {"table": target.relation, "suspended": suspend_recluster(spark, target.relation)}


def _resume(spark: SparkSession, target: Target) -> dict[str, Any]:
    from dbt_recluster.suspension import resume_recluster

    return {
        "table": target.relation,
        "suspended": None,
        "was_suspended": resume_recluster(spark, target.relation),
    }


def _cost(spark: SparkSession, target: Target, cluster_by: list[str] | None) -> dict[str, Any]:
    from dbt_recluster.cost import estimate_clustering_cost

    config = target.config
    return estimate_clustering_cost(
        spark,
        target.relation,
        _key(target, cluster_by),
        depth=config.depth,
        strategy=config.strategy,
        block_rows=config.block_rows,
    ).as_dict()


def _suggest(spark: SparkSession, target: Target, queries: list[str]) -> dict[str, Any]:
    from dbt_recluster.suggestion import suggest_cluster_by

    config = target.config
    return suggest_cluster_by(
        spark,
        target.relation,
        queries,
        depth=config.depth,
        strategy=config.strategy,
        block_rows=config.block_rows,
    ).as_dict()


_CANDIDATE: dict[str, Parser] = {"cluster_by": parse_candidate_key, "where": parse_where}

OPERATIONS: dict[str, Operation] = {
    "clustering_information": Operation(_information, show.information, parsers=_CANDIDATE),
    "clustering_depth": Operation(
        _measure("average_depth"), show.measure("average_depth"), parsers=_CANDIDATE
    ),
    "clustering_ratio": Operation(
        _measure("clustering_ratio"), show.measure("clustering_ratio"), parsers=_CANDIDATE
    ),
    "clustering_history": Operation(_history, show_history.history, parsers={"since": parse_since}),
    "estimate_clustering_cost": Operation(_cost, show_cost.cost, parsers={"cluster_by": parse_candidate_key}),
    "suggest_cluster_by": Operation(
        _suggest, show_cost.suggestion, needs_table=True, parsers={"queries": parse_queries}
    ),
    "suspend_recluster": Operation(_suspend, show.suspended, needs_table=True),
    "resume_recluster": Operation(_resume, show.resumed, needs_table=True),
}
