"""The adapter: dbt-spark, and the methods that the clustering macros call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.column import Column
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.spark.impl import SparkAdapter, SparkConfig
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.arguments import parse_arguments
from dbt_recluster.adapter.config import ClusteringConfig, clustering_turned_off, run_budget
from dbt_recluster.adapter.connection_tables import ConnectionTables
from dbt_recluster.adapter.connections import ReclusterConnectionManager
from dbt_recluster.adapter.credentials import ReclusterCredentials
from dbt_recluster.adapter.dbt_errors import ConfigurationError, as_dbt_errors
from dbt_recluster.adapter.docs_statistics import clustering_statistics
from dbt_recluster.adapter.limits import broken_limits, parse_limits
from dbt_recluster.adapter.model_response import ReclusterResponse, respond
from dbt_recluster.adapter.operations import ARGUMENTS, Answer, OperationRunner
from dbt_recluster.adapter.patterns import names_like
from dbt_recluster.adapter.recluster_session import ReclusterSession
from dbt_recluster.adapter.reclustering import (
    OperationArguments,
    RunBudget,
    TableOutcome,
    TableReclusterer,
    logger,
)
from dbt_recluster.adapter.relation_config import (
    ClusteringChange,
    TableClustering,
    clustering_change,
    creation_properties,
    restored_order,
)
from dbt_recluster.adapter.schema_changes import SchemaChanges, column_removal, partition_columns
from dbt_recluster.adapter.submission import Submission, parse_submit
from dbt_recluster.adapter.targets import Node, Target
from dbt_recluster.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.clustering.values import parse_predicate
from dbt_recluster.columns import Columns
from dbt_recluster.exceptions import OptionError, ReclusterError
from dbt_recluster.iceberg.environment import check_environment, uses_session_catalog
from dbt_recluster.iceberg.predicates import check_predicate
from dbt_recluster.iceberg.sort_order import sort_order_text

if TYPE_CHECKING:
    import agate
    from dbt.adapters.contracts.relation import RelationConfig
    from pyspark.sql import SparkSession

    from dbt_recluster.clustering.result import ReclusterResult
    from dbt_recluster.clustering.table import ClusteredTable

DEFAULT_FILE_FORMAT = "iceberg"
# Over a Hive metastore, a session catalog shows Iceberg tables by a property; elsewhere, the provider shows them.
# dbt-spark looks only at the provider (dbt-spark#870).
_ICEBERG_MARKS = ("table_type=ICEBERG", "Provider: iceberg")
_ICEBERG_VIEW = "table_type=ICEBERG-VIEW"


@dataclass
class ReclusterConfig(SparkConfig):
    """The configs of a model, beside those of dbt-spark; :class:`ClusteringConfig` checks their values."""

    cluster_by: str | list[str] | None = None
    automatic_clustering: bool = True
    recluster_depth: float | None = None
    recluster_final: bool = False
    recluster_strategy: str | None = None
    recluster_max_bytes: int | str | None = None
    recluster_where: str | None = None
    block_rows: int | None = None
    sort_on_load: bool = True


class ReclusterAdapter(SparkAdapter):
    """dbt-spark and clustering.

    dbt derives the module ``dbt.adapters.recluster`` from the name of this class after each model.
    """

    ConnectionManager = ReclusterConnectionManager
    connections: ReclusterConnectionManager
    AdapterSpecificConfigs = ReclusterConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._building = threading.local()  # one thread builds a node from its first hook to its last
        self._warned: set[str] = set()
        self._tables = self._connection_tables()
        self._runner = OperationRunner(self._open, self._exists)
        self._reclusterer = TableReclusterer(self._runner, RunBudget())

    # --- dbt-spark's handling of Iceberg tables, corrected ---

    def pre_model_hook(self, config: Any) -> Any:
        """Before each node: the default file format is Iceberg."""
        self._building.clustering = None
        self._building.schema_changes = SchemaChanges()
        node_config = getattr(getattr(config, "model", None), "config", None)
        if node_config is not None and node_config.get("file_format") is None:
            node_config["file_format"] = DEFAULT_FILE_FORMAT
        return super().pre_model_hook(config)

    def _build_spark_relation_list(
        self, row_list: agate.Table, relation_info_func: Callable[[agate.Row], tuple[str, str, str]]
    ) -> list[BaseRelation]:
        """List relations; recognise Iceberg tables of a Hive metastore and omit temporary views."""
        # Temporary views have no schema and are not dbt's to manage; dbt-spark never drops its own.
        rows = [row for row in row_list if row[0]]
        relations = super()._build_spark_relation_list(rows, relation_info_func)
        return [
            relation.incorporate(is_iceberg=True)  # type: ignore[no-untyped-call]
            if _looks_like_iceberg(relation)
            else relation
            for relation in relations
        ]

    def _get_columns_for_catalog(self, relation: BaseRelation) -> Iterable[dict[str, Any]]:
        """Add the clustering of a table to what ``dbt docs`` knows about it."""
        statistics: dict[str, Any] = {}
        if not self.cannot_recluster() and self.may_have_clustering(relation):
            try:
                statistics = clustering_statistics(self._open(relation.render(), None))
            except ReclusterError as e:
                logger.debug(f"no clustering statistics of {relation}: {e}")
        for column in super()._get_columns_for_catalog(relation):
            yield {**column, **statistics}

    @classmethod
    def _get_adapter_specific_run_info(cls, config: RelationConfig) -> dict[str, Any]:
        info: dict[str, Any] = super()._get_adapter_specific_run_info(config)
        return {**info, "adapter_type": "recluster"}

    def debug_query(self) -> None:
        """``dbt debug``: check that Spark has what clustering needs."""
        if self.credentials.method.in_process:
            with as_dbt_errors():
                check_environment(self.spark)
        super().debug_query()
        if self._tables is not None:
            with as_dbt_errors():
                logger.info(self._tables.check(str(self.credentials.schema)))

    @available.parse(lambda *_: False)
    def cannot_replace_view(self, relation: BaseRelation | None) -> bool:
        """Whether ``create or replace view`` would not change the view (macros/materializations/view.sql)."""
        if relation is None or not relation.is_view:
            return False
        if _ICEBERG_VIEW in (getattr(relation, "information", None) or ""):
            return True
        return self.credentials.method.in_process and uses_session_catalog(self.spark)

    @available.parse_list
    def names_like(self, names: Iterable[str], pattern: str, exclude: str = "") -> list[str]:
        """Return the names like ``pattern`` and not like ``exclude``."""
        return names_like(names, pattern, exclude)

    # --- configuration of the model that is being built ---

    @available.parse_none
    def parse_clustering(self, config: Any) -> ClusteringConfig:
        """Return the clustering configuration of a node; an error names what is wrong with it."""
        node_config = config.model.config
        with as_dbt_errors(config.model):
            return ClusteringConfig.parse(node_config.get, list(node_config))

    @available.parse_none
    def check_run_vars(self, variables: Mapping[str, Any]) -> None:
        """Check the vars of a whole run before anything is built."""
        with as_dbt_errors():
            run_budget(variables)
            clustering_turned_off(variables)

    @available.parse_none
    def check_python_model(self, model: Mapping[str, Any]) -> None:
        """Refuse a Python model on a connection that dbt-spark cannot run it on."""
        method = self.credentials.method
        if not method.runs_python_models:
            raise ConfigurationError(
                f"{model['name']} is a Python model, and dbt-spark runs those on Databricks clusters only "
                f"(`method: http` or `odbc`), not over `method: {method}`. Write it in SQL."
            )

    @available.parse_none
    def call_as_outermost(self, materialization: Any) -> Any:
        """Call another adapter's materialization as if dbt did: it submits a Python job from no macro below one."""
        stack = materialization.stack
        callers, stack.call_stack = stack.call_stack, []
        try:
            return materialization()
        finally:
            stack.call_stack = callers

    @available.parse_none
    def prepare_clustering(
        self, clustering: ClusteringConfig, columns: Mapping[str, str]
    ) -> ClusteringConfig:
        """Check a configuration against the model's columns (name to Spark type) and keep it for this build."""
        with as_dbt_errors():
            resolved = clustering.resolve(self._columns(columns))
            if clustering.where is not None and self.credentials.method.in_process:
                check_predicate(self.spark, columns, clustering.where)
        self._building.clustering = resolved
        return resolved

    @available.parse_none
    def defer_clustering(self, clustering: ClusteringConfig) -> ClusteringConfig:
        """Keep a configuration for this build whose columns are not known yet."""
        self._building.clustering = clustering
        return clustering

    @available.parse_none
    def current_clustering(self) -> ClusteringConfig | None:
        """Return the configuration of the model that this thread is building, or None if it is not clustered."""
        return getattr(self._building, "clustering", None)

    @available.parse_none
    def check_new_key_columns(self, columns: list[str], on_schema_change: str | None) -> None:
        """Refuse a key on columns that the table lacks, unless this run adds them."""
        if columns and on_schema_change not in ("append_new_columns", "sync_all_columns"):
            raise ConfigurationError(
                f"cluster_by names {', '.join(columns)}, which the model selects and its table does not have yet. "
                "Set on_schema_change to 'append_new_columns', or run once with --full-refresh."
            )

    @available.parse_list
    def missing_key_columns(self, clustering: ClusteringConfig, columns: Mapping[str, str]) -> list[str]:
        """Return the top-level columns of the key that a table with these columns lacks."""
        return clustering.cluster_by.missing_from(self._columns(columns)) if clustering.cluster_by else []

    @available.parse_none
    def clustering_creation_properties(self) -> dict[str, str]:
        """Return the table properties to create the current model's table with."""
        clustering = self.current_clustering()
        return creation_properties(clustering) if clustering else {}

    @available.parse_none
    def table_clustering(self, relation: BaseRelation, rows: Iterable[Any]) -> TableClustering:
        """Return the clustering of a table, by its rows of ``SHOW TBLPROPERTIES`` unless Spark hides what matters."""
        shown = TableClustering.from_properties((row[0], row[1]) for row in rows)
        if not shown.is_redacted or self.cannot_recluster():
            return shown
        with as_dbt_errors():
            table = self._open(relation.render(), None).iceberg
            return TableClustering(sort_order_text(table), table.properties)

    @available.parse_none
    def may_have_clustering(self, relation: BaseRelation | None) -> bool:
        """Whether a relation is an Iceberg table with a sort order, as far as its listing tells.

        It saves a statement for each model that has nothing to do with clustering.
        """
        information = getattr(relation, "information", None) or ""
        return bool(getattr(relation, "is_iceberg", False)) and "sort-order=" in information

    @available.parse_none
    def clustering_change(
        self, desired: ClusteringConfig, actual: TableClustering, table_properties: Mapping[str, str] | None
    ) -> ClusteringChange:
        """Return the change that gives a table the clustering of its model."""
        return clustering_change(desired, actual, table_properties)

    @available.parse_none
    def restored_order(self, before: TableClustering, after: TableClustering) -> ClusteringChange:
        """Return the change that gives a replaced table its sort order back."""
        return restored_order(before, after)

    # --- columns that an incremental model has gained, lost or changed ---

    @available.parse_none
    def compare_schemas(self, model: list[Column], table: list[Column]) -> dict[str, Any]:
        """Compare the columns of a model and its table; return dbt's form of it and keep ours for this build."""
        changes = SchemaChanges.between(model, table, case_sensitive=self._case_sensitive)
        self._building.schema_changes = changes
        return {
            "schema_changed": bool(changes),
            "source_not_in_target": changes.added,
            "target_not_in_source": changes.missing,
            "source_columns": model,
            "target_columns": table,
            "new_target_types": [
                {"column_name": old.name, "new_type": new.data_type} for old, new in changes.retyped
            ],
        }

    @available.parse_none
    def current_schema_changes(self) -> SchemaChanges:
        """Return how the model that this thread is building differs from its table, as far as it was compared."""
        changes: SchemaChanges = getattr(self._building, "schema_changes", SchemaChanges())
        return changes

    @available.parse_none
    def check_new_types(self, relation: BaseRelation) -> None:
        """Refuse, before anything is altered, a change of type that Iceberg does not make."""
        with as_dbt_errors():
            self.current_schema_changes().check_types(relation.render())

    @available.parse_none
    def column_removal(
        self,
        relation: BaseRelation,
        removed: list[Column],
        table: TableClustering,
        description: Iterable[Any],
        *,
        is_this: bool,
    ) -> ClusteringChange:
        """Return the change that precedes a removal of columns; an error if the table needs one of them.

        Args:
            relation: The table.
            removed: The columns that will be dropped.
            table: The clustering that it has.
            description: The rows of ``DESCRIBE``.
            is_this: Whether it is the table of the model that this thread is building.
        """
        clustering = self.current_clustering() if is_this else None
        with as_dbt_errors():
            return column_removal(
                relation.render(),
                self._columns({column.name: column.data_type for column in removed}),
                table,
                clustering.cluster_by if clustering else None,
                partition_columns(description),
            )

    @available.parse_none
    def first_time(self, subject: str) -> bool:
        """Whether this is the first call with ``subject`` in this invocation, so that warnings come once."""
        if subject in self._warned:
            return False
        self._warned.add(subject)
        return True

    @available.parse_none
    def reaches(self, moment: Any, end: Any) -> bool:
        """Whether ``moment`` is not before ``end``; both are times or ISO text, and UTC without a zone."""
        return _utc(moment) >= _utc(end)

    # --- reclustering and operations ---

    @available.parse_none
    def clustering_turned_off(self, variables: Any) -> str | None:
        """Return the setting that turns automatic clustering off for this run, or None."""
        with as_dbt_errors():
            return clustering_turned_off(variables)

    @available.parse_none
    def recluster_relation(
        self, relation: BaseRelation, clustering: ClusteringConfig, variables: Mapping[str, Any]
    ) -> TableOutcome:
        """Recluster the table of a model that was just built."""
        name = relation.render()
        if self.credentials.recluster_submit is not None:
            return self._reclusterer.report(name, lambda: self._submit(name))
        try:
            with self._cancellable():
                return self._reclusterer.after_build(name, clustering, variables)
        except ReclusterError as e:  # recluster_session does not start
            return TableOutcome(error=f"{name} was built but not reclustered: {e}")

    @available.parse_none
    def clustering_response(self, response: Any, result: ReclusterResult) -> ReclusterResponse:
        """Return dbt's response for a model with the figures of its recluster."""
        plain = response if isinstance(response, AdapterResponse) else AdapterResponse(str(response))
        return respond(plain, result)

    @available.parse_none
    def recluster_arguments(self, arguments: Mapping[str, Any]) -> tuple[Any, OperationArguments]:
        """Check the arguments of ``run-operation recluster``."""
        with as_dbt_errors():
            return self._reclusterer.parse(arguments)

    @available.parse_list
    def recluster_targets(
        self,
        table: Any,
        nodes: Iterable[Node],
        arguments: OperationArguments,
        variables: Mapping[str, Any],
    ) -> list[Target]:
        """Return the tables to recluster by hand."""
        with as_dbt_errors():
            return self._reclusterer.targets(table, nodes, arguments, variables)

    @available.parse_none
    def recluster_target(
        self, target: Target, arguments: OperationArguments, variables: Mapping[str, Any]
    ) -> TableOutcome:
        """Recluster one table by hand."""
        with as_dbt_errors(), self._cancellable():
            return self._reclusterer.by_hand(target, arguments, variables)

    @available.parse_none
    def recluster_json(self, table: Any, selected: list[Target], outcomes: list[TableOutcome]) -> str:
        """Return what the operation did as JSON."""
        return self._reclusterer.as_json(table, selected, outcomes)

    @available.parse_none
    def operate(self, name: str, arguments: Mapping[str, Any], nodes: Iterable[Node]) -> Answer:
        """Run an operation that looks at tables."""
        with as_dbt_errors(), self._cancellable():
            return self._runner.run(name, arguments, nodes)

    @available.parse_none
    def clustering_report(self, arguments: Mapping[str, Any], nodes: Iterable[Node]) -> Answer:
        """Write the report of tables, and return its path."""
        with as_dbt_errors(), self._cancellable():
            return self._runner.report(arguments, nodes)

    @available.parse_none
    def check_operation_arguments(self, operation: str, unknown: Mapping[str, Any]) -> None:
        """Refuse the arguments that the macro of an operation does not have."""
        with as_dbt_errors():
            parse_arguments(operation, ARGUMENTS[operation], unknown)

    @available.parse_none
    def fail_operation(self, error: str) -> None:
        """End an operation with an error."""
        raise ConfigurationError(error)

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

    # --- the session ---

    @available.parse_none
    def cannot_recluster_after_build(self) -> str | None:
        """Return why this connection's tables are not reclustered after a build, or None if they are."""
        return None if self.credentials.recluster_submit is not None else self.cannot_recluster()

    @available.parse_none
    def cannot_recluster(self) -> str | None:
        """Return why there is no Spark session in this process to look at tables with, or None if there is."""
        method = self.credentials.method
        if method.in_process or self.credentials.recluster_session is not None:
            return None
        if self.credentials.recluster_submit is not None:
            return (
                "operations need a Spark session in dbt's own process, and `recluster_submit` only follows builds. "
                "Submit the job by hand, or put `recluster_session` in its place in the profile."
            )
        return (
            f"reclustering needs a Spark session in dbt's own process, and `method: {method}` connects to one "
            "elsewhere. Add `recluster_session` to the profile: the settings of a session that reaches the same "
            "catalog."
        )

    @property
    def credentials(self) -> ReclusterCredentials:
        """The profile."""
        credentials = self.config.credentials
        assert isinstance(credentials, ReclusterCredentials)
        return credentials

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this process, which reclusters; the first use may start it.

        Raises:
            DbtRuntimeError: The method connects to a Spark elsewhere, and there is no ``recluster_session``.
            ReclusterError: The session does not start.
        """
        if reason := self.cannot_recluster():
            raise DbtRuntimeError(reason)
        if self._tables is not None:
            return self._tables.session.spark
        from dbt_recluster.adapter.session import spark_session

        return spark_session(self.credentials)

    def _connection_tables(self) -> ConnectionTables | None:
        """The tables of a connection that leads elsewhere, if ``recluster_session`` says how to recluster them."""
        credentials = self.credentials
        if credentials.recluster_session is None:
            return None
        log_directory = Path(getattr(self.config, "log_path", None) or "logs")
        session = ReclusterSession(credentials.recluster_session, credentials.catalog, log_directory)
        return ConnectionTables(session, self.connections.ask, credentials.place)

    def _submit(self, relation: str) -> ReclusterResult | None:
        """Recluster a table by the command of ``recluster_submit``; None if it has a single block or no result."""
        credentials = self.credentials
        if int(self.connections.ask(f"select count(*) from {relation}.data_files")[0][0]) < 2:
            return None
        command, timeout = parse_submit(credentials.recluster_submit, credentials.recluster_submit_timeout)
        name = f"{credentials.catalog}.{relation}" if credentials.catalog else relation
        submission = Submission(command, name, timeout)
        with self.connections.cancelling(submission):
            result = submission.run()
        if result is None or result.rounds:
            self.connections.ask(f"refresh table {relation}", fetch=False)
        return result

    def _open(self, relation: str, cluster_by: ClusterKey | None) -> ClusteredTable:
        if self._tables is not None:
            return self._tables.open(relation, cluster_by)
        from dbt_recluster.clustering.table import ClusteredTable

        return ClusteredTable(self.spark, relation, cluster_by)

    def _exists(self, relation: str) -> bool:
        schema, _, identifier = relation.rpartition(".")
        return self.get_relation(None, schema, identifier) is not None  # type: ignore[arg-type]

    @contextmanager
    def _cancellable(self) -> Iterator[None]:
        """Run Spark jobs so that dbt's cancel on Ctrl-C ends them, and have the connection see what they changed."""
        if self.cannot_recluster():
            yield
            return
        refreshing = self._tables.refreshing() if self._tables is not None else nullcontext()
        with self.connections.jobs_of(self.spark), refreshing:
            yield

    def _columns(self, types: Mapping[str, str]) -> Columns:
        return Columns.parse(types, case_sensitive=self._case_sensitive)

    @cached_property
    def _case_sensitive(self) -> bool:
        """Whether the session distinguishes ``k`` from ``K``."""
        _, rows = self.execute("set spark.sql.caseSensitive", fetch=True)
        return str(rows[0][1]).lower() == "true"


def _looks_like_iceberg(relation: BaseRelation) -> bool:
    information = getattr(relation, "information", None) or ""
    return not relation.is_view and any(mark in information for mark in _ICEBERG_MARKS)


def _utc(moment: Any) -> datetime:
    time = (
        moment if isinstance(moment, datetime) else datetime.fromisoformat(str(moment).replace("Z", "+00:00"))
    )
    return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time
