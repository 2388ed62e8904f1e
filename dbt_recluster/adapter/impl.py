"""The adapter: dbt-spark, its handling of Iceberg tables corrected, and the operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, make_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.spark.impl import SparkConfig
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections.submission import RunSubmission
from dbt_recluster.adapter.dbt_errors import as_dbt_errors, failure, interrupted_operation
from dbt_recluster.adapter.dbt_manifest import queries_of_manifest, selected_ids
from dbt_recluster.adapter.docs_statistics import clustering_statistics
from dbt_recluster.adapter.limits import broken_limits, check_names, parse_limits
from dbt_recluster.adapter.model_methods import ModelMethods
from dbt_recluster.adapter.model_response import respond
from dbt_recluster.adapter.operations import (
    DbtContext,
    Output,
    failure_of_build,
    logger,
    outputs,
    recluster_after_build,
)
from dbt_recluster.adapter.patterns import names_like
from dbt_recluster.adapter.run_vars import clustering_turned_off, run_budget
from dbt_recluster.cluster_key import parse_cluster_key
from dbt_recluster.clustering.costs.suggest import LEAST_BLOCKS
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.clustering.values import parse_predicate
from dbt_recluster.exceptions import OptionError, ReclusterError
from dbt_recluster.iceberg.session.environment import check_environment
from dbt_recluster.operations.declaration import CHOICE, FORMAT, RunBudget
from dbt_recluster.operations.model_options import CONFIGS, ModelOptions, file_format, misspelt
from dbt_recluster.operations.runner import OPERATIONS, Answer, operation_named
from dbt_recluster.operations.tables import Choice, Node, choose
from dbt_recluster.report.operation_text import maintained as maintained_text
from dbt_recluster.report.recluster_text import few_blocks

if TYPE_CHECKING:
    from dbt.adapters.contracts.relation import RelationConfig

    from dbt_recluster.clustering.result import ReclusterResult


# dbt does not check the values of an adapter's configs; ModelOptions does.
ReclusterConfig: type[SparkConfig] = make_dataclass(
    "ReclusterConfig",
    [(name, Any, None) for name in ("catalog", "catalog_name", *CONFIGS)],
    bases=(SparkConfig,),
)

_CAPABILITIES = (
    Capability.TableLastModifiedMetadata,
    Capability.TableLastModifiedMetadataBatch,
    Capability.SchemaMetadataByRelations,
    Capability.CatalogsV2,
)


class ReclusterAdapter(ModelMethods):
    """dbt-spark and clustering.

    dbt derives the module ``dbt.adapters.recluster`` from the name of this class after each model.
    """

    AdapterSpecificConfigs = ReclusterConfig
    _capabilities = CapabilityDict({c: CapabilitySupport(support=Support.Full) for c in _CAPABILITIES})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._budget = RunBudget()
        self._submission = self._run_submission()
        self._few_blocks: list[str] = []

    # --- dbt-spark's handling of Iceberg tables, corrected ---

    def pre_model_hook(self, config: Any) -> Any:
        """Before each node: its file format is in lower case, and by default Iceberg."""
        node_config = getattr(getattr(config, "model", None), "config", None)
        if node_config is not None:
            node_config["file_format"] = file_format(node_config)
        return super().pre_model_hook(config)

    def _get_columns_for_catalog(self, relation: BaseRelation) -> Iterable[dict[str, Any]]:
        """Add a table's catalog and clustering to what ``dbt docs`` knows about it."""
        statistics: dict[str, Any] = {}
        if not self.cannot_recluster() and self.may_have_clustering(relation):
            try:
                statistics = clustering_statistics(self._open(relation.render()))
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
            near = get_close_matches(macro_name, OPERATIONS, n=1)
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
        self, relation: BaseRelation, options: ModelOptions, variables: Mapping[str, Any], unique_id: str
    ) -> Answer:
        """Recluster the table of a model that was just built."""
        name = relation.render()
        try:
            if self._submission is not None:
                if int(self._ask(f"select count(*) from {name}.data_files")[0][0]) < 2:
                    return Answer(name, {})
                self._submission.add(name)
                return Answer(name, {}, "reclustered at the end of the run")
            with self._cancellable():
                answer = recluster_after_build(
                    name, options, unique_id, self._context(variables, is_run=True)
                )
            if (
                answer.result is not None
                and answer.result.rounds
                and answer.result.blocks_before < LEAST_BLOCKS
            ):
                self._few_blocks.append(name)
            return answer
        except Exception as e:  # recluster_session or the command does not start, or the connection is lost
            return failure_of_build(name, e)

    @available.parse_none
    def maintain_relation(self, relation: BaseRelation) -> str | None:
        """Do the maintenance that is due for the table of a model that was just built; return why it failed."""
        name = relation.render()
        try:
            with self._cancellable():
                maintained = TableMaintenance(self._open(name).iceberg).maintain()
        except Exception as e:
            return f"{name} was built but not maintained: {failure(e)}"
        if maintained.done:
            logger.info(maintained_text(maintained.as_dict()))
        return None

    @available.parse_none
    def clustering_response(
        self, main: Any, relation: BaseRelation, outcome: Answer | None
    ) -> AdapterResponse | None:
        """Return dbt's response for a model with what became of its table, or None if there is nothing to add.

        Args:
            main: dbt's result of the build.
            relation: The table.
            outcome: What came of its recluster, or None without one.
        """
        result: ReclusterResult | None = None if outcome is None else outcome.result
        note = "" if outcome is None else outcome.text
        change, depth = self._building.key_change, None if result is None else result.depth_after
        if main is None or (result is None and change is None and not note):
            return None
        response = main.response
        plain = response if isinstance(response, AdapterResponse) else AdapterResponse(str(response))
        if change is not None and change.after is not None and depth is None:
            depth = self._depth(relation.render())
        return respond(plain, result, change, depth, note)

    def _depth(self, relation: str) -> float | None:
        """Return the average depth of a table, or None where it cannot be seen."""
        if self.cannot_recluster():
            return None
        try:
            with self._cancellable():
                return float(table_information(self._open(relation))["average_depth"])
        except Exception as e:  # the build is done
            logger.debug(f"no depth of {relation}: {failure(e)}")
            return None

    @available.parse_list
    def operate(
        self, name: str, given: Mapping[str, Any], nodes: Iterable[Node], variables: Mapping[str, Any]
    ) -> Iterator[Output]:
        """Run an operation and yield what to print.

        Args:
            name: The operation.
            given: Its arguments.
            nodes: The nodes of the project.
            variables: The vars of the whole run.
        """
        with as_dbt_errors():
            operation = operation_named(name)
            arguments = operation.read((*CHOICE, FORMAT), given)
            table, select, exclude = (arguments.pop(argument.name) for argument in CHOICE)
            if table is not None and (select is not None or exclude is not None):
                raise OptionError("name tables, or choose them by select and exclude, not both")
            is_selected = select is not None or exclude is not None
            choice = Choice(table, self._selected(select, exclude) if is_selected else None)
            if operation.needs_choice and not choice.is_given:
                raise OptionError(
                    f"{name} needs a table: --args '{{table: schema.name}}', or a selector: "
                    "--args '{select: tag:name}'"
                )
            with self._cancellable():
                targets = choose(choice, nodes, self._names, operation.eligible)
                yield from outputs(operation, choice, targets, arguments, self._context(variables))

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
            key, predicate = arguments.get("cluster_by"), arguments.get("predicate")
            table = self._open(model.render())
            return broken_limits(
                table if key is None else table.under(parse_cluster_key(key)),
                limits,
                None if predicate is None else parse_predicate("predicate", predicate),
            )

    def _context(self, variables: Mapping[str, Any], *, is_run: bool = False) -> DbtContext:
        self._budget.total = run_budget(variables)
        return DbtContext(self._open, self._exists, self._queries, self._budget, is_run)

    def _selected(self, select: list[str] | None, exclude: list[str] | None) -> frozenset[str]:
        return selected_ids(self.get_macro_resolver(), select, exclude)

    def _queries(self, unique_id: str) -> Mapping[str, str]:
        return queries_of_manifest(self.get_macro_resolver(), unique_id, self.config.project_target_path)

    def cancel_open_connections(self) -> Any:
        """Ctrl-C: nothing more is submitted."""
        if self._submission is not None:
            self._submission.forget()
        return super().cancel_open_connections()  # type: ignore[no-untyped-call]

    def cleanup_connections(self) -> None:
        """At the end of dbt's run, whether it went well or not: submit what it has built (``recluster_submit``)."""
        if self._few_blocks:
            logger.info(few_blocks(sorted(set(self._few_blocks)), LEAST_BLOCKS))
            self._few_blocks.clear()
        if self._submission is not None:
            self._submission.submit_at_end()
        super().cleanup_connections()

    def _run_submission(self) -> RunSubmission | None:
        credentials = self.credentials
        if credentials.recluster_submit is None:
            return None
        target = Path(self.config.project_target_path)
        return RunSubmission(credentials.recluster_submit, credentials.recluster_submit_timeout, target)
