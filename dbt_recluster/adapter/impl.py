"""The adapter: dbt-spark, its handling of Iceberg tables corrected, and the operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.events.types import AdapterEventWarning
from dbt.adapters.spark.impl import SparkConfig
from dbt_common.events.functions import warn_or_error
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.arguments import parse_arguments
from dbt_recluster.adapter.config import ClusteringConfig, clustering_turned_off, file_format, misspelt
from dbt_recluster.adapter.dbt_errors import ConfigurationError, as_dbt_errors, failure, interrupted_operation
from dbt_recluster.adapter.docs_statistics import clustering_statistics
from dbt_recluster.adapter.limits import broken_limits, check_names, parse_limits
from dbt_recluster.adapter.model_methods import ModelMethods
from dbt_recluster.adapter.model_response import respond
from dbt_recluster.adapter.operation_runner import Answer, OperationRunner
from dbt_recluster.adapter.operations import ARGUMENTS, OPERATIONS
from dbt_recluster.adapter.patterns import names_like
from dbt_recluster.adapter.project_reads import project_queries
from dbt_recluster.adapter.reclustering import (
    OperationArguments,
    RunBudget,
    TableOutcome,
    TableReclusterer,
    logger,
)
from dbt_recluster.adapter.selectors import selected_ids
from dbt_recluster.adapter.submitted_tables import SubmittedTables
from dbt_recluster.adapter.targets import Node, Target
from dbt_recluster.cluster_key import parse_cluster_key
from dbt_recluster.clustering.suggest import LEAST_BLOCKS
from dbt_recluster.clustering.values import parse_predicate
from dbt_recluster.exceptions import OptionError, ReclusterError, SubmitError
from dbt_recluster.iceberg.environment import check_environment
from dbt_recluster.report import housekeeping_text
from dbt_recluster.report.text import few_blocks, recluster_line

if TYPE_CHECKING:
    from dbt.adapters.contracts.relation import RelationConfig

    from dbt_recluster.clustering.result import ReclusterResult


@dataclass
class ReclusterConfig(SparkConfig):
    """The configs of a model, beside those of dbt-spark; :class:`ClusteringConfig` checks their values."""

    catalog: str | None = None
    cluster_by: str | list[str] | None = None
    automatic_clustering: bool = True
    recluster_depth: float | str | None = None
    recluster_final: bool = False
    recluster_strategy: str | None = None
    recluster_max_bytes: int | str | None = None
    recluster_where: str | None = None
    block_rows: int | None = None
    sort_on_load: bool = True
    recluster_maintain: bool = False
    recluster_reads: str | list[Any] | None = None
    recluster_after: dict[str, Any] | None = None
    recluster_when: dict[str, Any] | list[Any] | None = None


class ReclusterAdapter(ModelMethods):
    """dbt-spark and clustering.

    dbt derives the module ``dbt.adapters.recluster`` from the name of this class after each model.
    """

    AdapterSpecificConfigs = ReclusterConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._runner = OperationRunner(self._open, self._exists, self._selected, self._names, self._queries)
        self._reclusterer = TableReclusterer(self._runner, RunBudget())
        self._submitted = SubmittedTables(self.credentials, self.connections)
        self._few_blocks: list[str] = []

    # --- dbt-spark's handling of Iceberg tables, corrected ---

    def pre_model_hook(self, config: Any) -> Any:
        """Before each node: its file format is in lower case, and by default Iceberg."""
        node_config = getattr(getattr(config, "model", None), "config", None)
        if node_config is not None:
            node_config["file_format"] = file_format(node_config.get)
        return super().pre_model_hook(config)

    def _get_columns_for_catalog(self, relation: BaseRelation) -> Iterable[dict[str, Any]]:
        """Add a table's catalog and clustering to what ``dbt docs`` knows about it."""
        statistics: dict[str, Any] = {}
        if not self.cannot_recluster() and self.may_have_clustering(relation):
            try:
                statistics = clustering_statistics(self._open(relation.render(), None))
            except ReclusterError as e:
                logger.debug(f"no clustering statistics of {relation}: {e}")
        for column in super()._get_columns_for_catalog(relation):
            yield {**column, "table_database": relation.database, **statistics}

    @classmethod
    def _get_adapter_specific_run_info(cls, config: RelationConfig) -> dict[str, Any]:
        info: dict[str, Any] = super()._get_adapter_specific_run_info(config)
        return {**info, "adapter_type": "recluster"}

    def debug_query(self) -> None:
        """``dbt debug``: check that Spark has what clustering needs."""
        if self.credentials.method.in_process:
            with as_dbt_errors():
                check_environment(self.spark, self.credentials.catalog)
        super().debug_query()
        if self._tables is not None:
            with as_dbt_errors():
                logger.info(self._tables.check(str(self.credentials.schema)))

    @available.parse_list
    def names_like(self, names: Iterable[str], pattern: str, exclude: str = "") -> list[str]:
        """Return the names like ``pattern`` and not like ``exclude``."""
        return names_like(names, pattern, exclude)

    # --- reclustering and operations ---

    def execute_macro(self, macro_name: str, *arguments: Any, **named: Any) -> Any:
        """Run a macro; one that does not exist may be a misspelt operation.

        Ctrl-C ends an operation with one line, and dbt with the exit code of a shell.
        """
        try:
            with interrupted_operation():
                return super().execute_macro(macro_name, *arguments, **named)
        except DbtRuntimeError as e:
            near = get_close_matches(macro_name, ARGUMENTS, n=1)
            if not near or "could not find a macro" not in str(e.msg):
                raise
            raise DbtRuntimeError(f"{e.msg}. Did you mean {near[0]}?") from e

    @available.parse_list
    def misspelt_configs(self, config: Any) -> list[str]:
        """Return warnings about configs that look like ours, once for each node; a model may have its own."""
        node = config.model
        if not self.first_time(f"configs of {node.unique_id}"):
            return []
        known = [*(f.name for f in fields(type(node.config))), *(f.name for f in fields(ReclusterConfig))]
        return [
            f"{node.name}: there is no config {key}; did you mean {meant}?"
            for key, meant in misspelt(node.config, known)
        ]

    @available.parse_none
    def clustering_turned_off(self, variables: Any) -> str | None:
        """Return the setting that turns automatic clustering off for this run, or None."""
        with as_dbt_errors():
            return clustering_turned_off(variables)

    @available.parse_none
    def recluster_relation(
        self,
        relation: BaseRelation,
        clustering: ClusteringConfig,
        variables: Mapping[str, Any],
        unique_id: str,
    ) -> TableOutcome:
        """Recluster the table of a model that was just built."""
        name = relation.render()
        try:
            if self.credentials.recluster_submit is not None:
                outcome = TableOutcome.of_build(name, self._submitted.submit(name))
                if clustering.due_conditions and self.first_time("conditions of submitted jobs"):
                    outcome.warnings.append("recluster_submit ignores recluster_after and recluster_when")
                return outcome
            with self._cancellable():
                outcome = self._reclusterer.after_build(name, clustering, variables, unique_id)
            if (
                outcome.result is not None
                and outcome.result.rounds
                and outcome.result.blocks_before < LEAST_BLOCKS
            ):
                self._few_blocks.append(name)
            return outcome
        except Exception as e:  # recluster_session or the command does not start, or the connection is lost
            return TableOutcome.of_failure(name, e)

    @available.parse_none
    def maintain_relation(self, relation: BaseRelation) -> str | None:
        """Do the housekeeping that is due for the table of a model that was just built; return why it failed."""
        name = relation.render()
        try:
            with self._cancellable():
                maintained = self._open(name, None).housekeeping().maintain()
        except Exception as e:
            return f"{name} was built but not maintained: {failure(e)}"
        if maintained.done:
            logger.info(housekeeping_text.maintained(maintained.as_dict()))
        return None

    @available.parse_none
    def clustering_response(
        self, main: Any, relation: BaseRelation, result: ReclusterResult | None
    ) -> AdapterResponse | None:
        """Return dbt's response for a model with what became of its table, or None if there is nothing to add.

        Args:
            main: dbt's result of the build.
            relation: The table.
            result: The result of its recluster, or None without one.
        """
        change, depth = self._building.key_change, None if result is None else result.depth_after
        if main is None or (result is None and change is None):
            return None
        response = main.response
        plain = response if isinstance(response, AdapterResponse) else AdapterResponse(str(response))
        if change is not None and change.after is not None and depth is None:
            depth = self._depth(relation.render())
        return respond(plain, result, change, depth)

    def _depth(self, relation: str) -> float | None:
        """Return the average depth of a table, or None where it cannot be seen."""
        if self.cannot_recluster():
            return None
        try:
            with self._cancellable():
                return float(self._open(relation, None).information()["average_depth"])
        except Exception as e:  # the build is done
            logger.debug(f"no depth of {relation}: {failure(e)}")
            return None

    @available.parse_none
    def recluster_arguments(self, arguments: Mapping[str, Any]) -> OperationArguments:
        """Check the arguments of ``run-operation recluster``."""
        with as_dbt_errors():
            return self._reclusterer.parse(arguments)

    @available.parse_list
    def recluster_targets(
        self, nodes: Iterable[Node], arguments: OperationArguments, variables: Mapping[str, Any]
    ) -> list[Target]:
        """Return the tables to recluster by hand."""
        with as_dbt_errors(), self._cancellable():
            return self._reclusterer.targets(nodes, arguments, variables)

    @available.parse_none
    def recluster_target(
        self, target: Target, arguments: OperationArguments, variables: Mapping[str, Any]
    ) -> TableOutcome:
        """Recluster one table by hand."""
        with as_dbt_errors(), self._cancellable():
            return self._reclusterer.by_hand(target, arguments, variables)

    @available.parse_none
    def recluster_json(
        self, arguments: OperationArguments, selected: list[Target], outcomes: list[TableOutcome]
    ) -> str:
        """Return what the operation did as JSON."""
        return self._reclusterer.as_json(arguments, selected, outcomes)

    @available.parse_none
    def operate(self, name: str, arguments: Mapping[str, Any], nodes: Iterable[Node]) -> Answer:
        """Run an operation that looks at tables."""
        with as_dbt_errors(), self._cancellable():
            return self._runner.run(name, OPERATIONS[name], arguments, nodes)

    @available.parse_none
    def clustering_report(self, arguments: Mapping[str, Any], nodes: Iterable[Node]) -> Answer:
        """Write the report of tables, and return its path."""
        with as_dbt_errors(), self._cancellable():
            given = parse_arguments("clustering_report", ARGUMENTS["clustering_report"], arguments)
            if given["table"] is not None and given["tables"] is not None:
                raise OptionError("tables is the older name of table: name one of them")
            tables = given["tables"] if given["table"] is None else given["table"]
            choice = self._runner.choice(tables, given["select"], given["exclude"])
            return self._runner.report(choice, given["path"], nodes)

    @available.parse_none
    def check_operation_arguments(self, operation: str, unknown: Mapping[str, Any]) -> None:
        """Refuse the arguments that the macro of an operation does not have."""
        with as_dbt_errors():
            parse_arguments(operation, ARGUMENTS[operation], unknown)

    @available.parse_none
    def fail_operation(self, error: str) -> None:
        """End an operation with an error."""
        raise ConfigurationError(error)

    @available.parse_none
    def check_limit_names(self, unknown: Mapping[str, Any]) -> None:
        """Refuse arguments that the generic test ``well_clustered`` does not have."""
        with as_dbt_errors():
            check_names(unknown)

    @available.parse_list
    def broken_clustering_limits(self, model: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the limits that the table ``model`` exceeds, for the generic test ``well_clustered``."""
        with as_dbt_errors():
            if not isinstance(model, BaseRelation):
                raise OptionError(
                    "well_clustered looks at blocks, which the config `where` cannot select; use `predicate` instead"
                )
            limits = parse_limits(arguments)
            key = arguments.get("cluster_by")
            table = self._open(model.render(), None if key is None else parse_cluster_key(key))
            return broken_limits(table, limits, parse_predicate("predicate", arguments.get("predicate")))

    def _selected(self, select: list[str] | None, exclude: list[str] | None) -> frozenset[str]:
        return selected_ids(self.get_macro_resolver(), select, exclude)

    def _queries(self, unique_id: str) -> Mapping[str, str]:
        return project_queries(self.get_macro_resolver(), unique_id, self.config.project_target_path)

    def cancel_open_connections(self) -> Any:
        """Ctrl-C: nothing more is submitted."""
        self._submitted.forget()
        return super().cancel_open_connections()  # type: ignore[no-untyped-call]

    def cleanup_connections(self) -> None:
        """At the end of dbt's run, whether it went well or not: submit what is due (``recluster_submit_when: end``)."""
        if self._few_blocks:
            logger.info(few_blocks(sorted(set(self._few_blocks)), LEAST_BLOCKS))
            self._few_blocks.clear()
        try:
            if self._submitted.is_due:
                with self.connection_named("recluster_submit"):
                    self._submit_due()
        finally:
            super().cleanup_connections()

    def _submit_due(self) -> None:
        for name, answer in self._submitted.submit_due().items():
            if isinstance(answer, SubmitError):
                outcome = TableOutcome.of_failure(name, answer)
            else:
                outcome = TableOutcome.of_build(name, answer)
                logger.info(recluster_line(answer))
            for warning in filter(None, [outcome.error, *outcome.warnings]):
                # As macros warn: --warn-error makes it an error.
                warn_or_error(AdapterEventWarning(name="Recluster", base_msg=warning, args=[]))
