"""How a node is built: by dbt-spark's materialization, with its table's clustering set before and after it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from dbt.adapters.base.column import Column
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.spark.impl import SparkAdapter

from dbt_recluster.adapter import table_clustering
from dbt_recluster.adapter.dbt_errors import ConfigurationError, as_dbt_errors, logger
from dbt_recluster.adapter.dbt_run import LAST_BATCH, AfterBuild, DbtRun, RunVars
from dbt_recluster.adapter.existing_tables import ExistingTables, Replacement, own_names, recovered
from dbt_recluster.adapter.table_clustering import ClusteringChange, LoadedInto, SchemaChanges, TableClustering
from dbt_recluster.iceberg.predicates import check_predicate
from dbt_recluster.iceberg.table_properties import AUTO_KEY
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.names import table_lock
from dbt_recluster.operations.model_options import ModelOptions, unknown_names

# Tokens of Spark's SQL, to tell the semicolons at the end of a query from those in strings and comments.
_TOKENS = re.compile(
    r"""\b[rR]'[^']*' | \b[rR]"[^"]*" | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | `[^`]*`
    | (?P<end> \s+ | ; | --[^\n]* | /\*.*?\*/ ) | .""",
    re.DOTALL | re.VERBOSE,
)


def without_end(query: str) -> str:
    """Return a query without the semicolons at its end, and the comments around them."""
    end = 0
    for token in _TOKENS.finditer(query):
        if token["end"] is None:
            end = token.end()
    return query[:end]


class ModelBuild:
    """Build state of this thread's node, from its first hook to its last; empty outside of a node.

    Attributes:
        options: The options of a node with an Iceberg table; their key is checked as soon as columns are known.
        schema_changes: The differences between the node's columns and its table's, once they were compared.
        replacement: The relation that the build replaces.
    """

    def __init__(self, adapter: SparkAdapter, tables: ExistingTables, run: DbtRun) -> None:
        self._adapter = adapter
        self._tables = tables
        self._run = run
        self.options = ModelOptions()
        self.schema_changes = SchemaChanges()
        self._macros: Mapping[str, Any] = {}
        self._settings = RunVars()
        self._before = TableClustering()  # of the table that it writes into or replaces
        self._is_kept = True  # whether the build writes into an existing table
        self._is_altered = False  # whether the table had its new clustering before the load
        self._is_reclustered = False  # whether a hook has reclustered its table
        self._loaded = LoadedInto()
        self._former_key: str | None = None  # the key that it replaced
        self.replacement = Replacement(adapter, tables, {})

    # --- the build (macros/clustering/build.sql) ---

    def build(self, macros: Mapping[str, Any], materialization: Any) -> Any:
        """Build the node by dbt-spark's or dbt's ``materialization``, and keep its table clustered."""
        self._macros = macros
        config, model, this = macros["config"], macros["model"], macros["this"]
        options = self._checked_options(config.model)
        existing = recovered(self._adapter, macros)
        kept = self._is_kept = self._keeps(existing)
        self.replacement = Replacement(self._adapter, self._tables, macros, None if kept else existing)
        if config.get("file_format") != "iceberg":
            if not kept:
                self._tables.check_directory(this, existing, model["resource_type"] == "seed", config)
            return self._materialize(materialization)
        self.options = options
        self._prepare_table(existing)
        return self._finish_table(self._materialize(materialization))

    def build_view(self, macros: Mapping[str, Any], materialization: Any) -> Any:
        """Build a view by dbt-spark's ``materialization``."""
        self.warn_ignored(macros)
        existing = recovered(self._adapter, macros)
        self.replacement = Replacement(self._adapter, self._tables, macros, existing, RelationType.View)
        with self.replacement:
            return materialization()

    def is_own(self, relation: Any) -> bool:
        """Return whether a relation is the node's."""
        return "this" in self._macros and relation.render() in own_names(self._macros)

    def _checked_options(self, node: Any) -> ModelOptions:
        """Check the node's language, the run's vars and the node's configs; return its options."""
        self._read_vars()
        self._run.measure(self._macros, self._settings)
        method = self._tables.session.credentials.method
        if self._is_python and not method.runs_python_models:
            raise ConfigurationError(
                f"{node.name} is a Python model, and dbt-spark runs those on Databricks clusters only "
                f"(`method: http` or `odbc`), not over `method: {method}`. Write it in SQL."
            )
        self.warn_ignored(self._macros)
        options = options_of(node)
        self._loaded = LoadedInto.from_config(node.config)
        key = options.cluster_by
        if key and key.note and self._run.warn_once(f"curve of {node.unique_id}"):
            logger.info(f"{node.name}: {key.note}")
        return options

    def _read_vars(self) -> None:
        with as_dbt_errors():
            self._settings = self._run.settings(self._macros)

    def warn_ignored(self, macros: Mapping[str, Any]) -> None:
        """Warn once in a run about configs without effect: misspelt ones, and cluster_by where there is no table."""
        config, model, warn = macros["config"], macros["model"], macros["exceptions"]["warn"]
        warn_once = self._run.warn_once
        node_config = config.model.config
        kinds = (type(node_config), self._adapter.AdapterSpecificConfigs)
        for warning in unknown_names(node_config, [f.name for kind in kinds for f in fields(kind)]):
            # One in dbt_project.yml is the same mistake for every model.
            if warn_once(warning):
                warn(f"{model['name']}: {warning}")
        ignored, file_format = "cluster_by has no effect on", config.get("file_format")
        reason = f"its file_format is {file_format}, and only Iceberg tables can be clustered"
        is_view = config.get("materialized") == "view"
        if (is_view or file_format != "iceberg") and config.get("cluster_by") and warn_once(model["unique_id"]):
            reason = "a view has no data of its own to cluster" if is_view else reason
            warn(f"{ignored} {model['name']}: {reason}.")
        for unique_id in (model.get("depends_on") or {}).get("nodes", []):
            parent = macros["graph"]["nodes"].get(unique_id, {"config": {}})
            is_ephemeral = parent["config"].get("materialized") == "ephemeral"
            if is_ephemeral and parent["config"].get("cluster_by") and warn_once(unique_id):
                warn(f"{ignored} {parent['name']}: an ephemeral model has no table.")

    def _keeps(self, existing: BaseRelation | None) -> bool:
        """Return whether the build writes into the existing table rather than replacing it."""
        materialized = self._macros["config"].get("materialized")
        is_added_to = materialized == "incremental" and not self._macros["should_full_refresh"]()
        return existing is not None and not existing.is_view and (is_added_to or materialized == "snapshot")

    def _materialize(self, materialization: Any) -> Any:
        """Run a materialization; dbt submits a Python model's job only directly below a materialization's macro."""
        stack = materialization.stack
        callers, stack.call_stack = stack.call_stack, [] if self._is_python else stack.call_stack
        # Threads share the temporary views of a session, and dbt-spark names a node's by its alias alone. The space
        # keeps the lock apart from those of tables.
        is_shared = self._is_kept and self._tables.session.credentials.method.in_process
        shared = [f"view {self._macros['this'].identifier}__dbt_tmp".lower()] if is_shared else []
        try:
            with table_lock(*shared), self.replacement:
                return materialization()
        finally:
            stack.call_stack = callers

    @property
    def _post_hooks(self) -> list[Any]:
        return [hook for hook in self._macros["post_hooks"] if hook["sql"] != LAST_BATCH]

    @property
    def _is_python(self) -> bool:
        return bool(self._macros["model"].get("language") == "python")

    # --- its table ---

    def _prepare_table(self, existing: BaseRelation | None) -> None:
        """Check the key against the model's columns; set the clustering of a table that stays, to sort this load."""
        kept, is_iceberg = self._is_kept, bool(getattr(existing, "is_iceberg", False))
        if existing is not None and is_iceberg and self.options.auto is not None:
            self.options = table_clustering.with_choice(self.options, self._tables.clustering(existing))
        key, new_columns = self.options.cluster_by, list[str]()
        if key:
            is_incremental = self._macros["config"].get("materialized") == "incremental"
            if existing is not None and kept and is_incremental and not is_iceberg:
                self._tables.check_is_iceberg(existing)
            new_columns = self._prepare_key(key, existing if kept else None)
            key = self.options.cluster_by
        if existing is None or not is_iceberg or not (key or self._tables.may_be_clustered(existing)):
            return
        self._before = self._tables.clustering(existing)
        self._is_altered = kept and not new_columns
        if self._is_altered:
            self._cluster(existing, self._before)

    def _prepare_key(self, key: ClusterKey, kept_table: BaseRelation | None) -> list[str]:
        """Check the key against the table's columns; return those of the key that this run has to add."""
        new_columns: list[str] = []
        if kept_table is not None:
            columns = self._table_columns(kept_table)
            new_columns = key.missing_from(self._tables.session.columns(columns))
            if not new_columns or self.options.auto is not None:
                self._resolve(columns)
                return []
        if self._macros["pre_hooks"] or self._is_python:
            return new_columns  # the query may need what a hook creates
        self._resolve(self._model_columns())
        on_schema_change = self._macros["config"].get("on_schema_change")
        if new_columns and on_schema_change not in ("append_new_columns", "sync_all_columns"):
            raise ConfigurationError(
                f"cluster_by names {', '.join(new_columns)}, which the model selects and its table does not have yet. "
                "Set on_schema_change to 'append_new_columns', or run once with --full-refresh."
            )
        return new_columns

    def _finish_table(self, result: Any) -> Any:
        """Set the clustering of a new or replaced table, and recluster it unless a post_hook does."""
        is_clustered = self.options.is_clustered
        may_be_replaced = bool(self._post_hooks and (is_clustered or self._before.properties))
        if may_be_replaced and not self._tables.is_iceberg(self._macros["this"]):
            if is_clustered:
                self._macros["exceptions"]["warn"](
                    f"cluster_by has no effect on {self._macros['model']['name']}: after its hooks there is no Iceberg "
                    "table of that name."
                )
            return result
        self.set_clustering()
        self._after_build(self._macros).finish(by_hook=self._is_reclustered)
        # dbt-spark's relations do not say so, and the cache would take them for another format.
        return {"relations": [relation.incorporate(is_iceberg=True) for relation in result["relations"]]}

    def set_clustering(self) -> None:
        """Set the clustering that the node's table did not have before the load, as soon as its columns exist."""
        before, is_clustered = self._before, self.options.is_clustered
        if not (is_clustered or before.properties):
            return
        this = self._macros["this"]
        self._resolve_once(lambda: self._table_columns(this))
        if self._is_altered and not (is_clustered and self._post_hooks):
            return
        after = self._tables.clustering(this)
        if self.options.auto is not None and AUTO_KEY in after.properties:  # a hook may have chosen a key
            self.options = table_clustering.with_choice(self.options, after)
            self._resolve_once(lambda: self._table_columns(this))
        # The tables of seeds and Python models are created without properties.
        lost = {name: value for name, value in before.carried_over.items() if name not in after.properties}
        self._alter(this, ClusteringChange(properties=lost))
        if is_clustered or before.is_of_model:
            self._cluster(this, after)
        if self.options.cluster_by is None and before.cluster_by is None:
            self._alter(this, table_clustering.restored_order(before, after))

    def recluster(self, macros: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Recluster the node's table for a hook, in place of the automatic recluster unless it is a branch."""
        self._is_reclustered |= arguments.get("branch") is None
        if not self._tables.is_iceberg(macros["this"]):
            warn, name = macros["exceptions"]["warn"], macros["model"]["name"]
            warn(f"recluster() has no effect on {name}: there is no Iceberg table of that name.")
            return
        if not self._macros:  # in a materialization of the project's own
            self._macros, self.options = macros, options_of(macros["config"].model)
            self._read_vars()
            self._run.measure(macros, self._settings)
        self.set_clustering()
        after = self._after_build(macros)
        self._former_key = None
        after.recluster(arguments)

    def _after_build(self, macros: Mapping[str, Any]) -> AfterBuild:
        return AfterBuild(self._run, macros, self._settings, self.options, self._former_key)

    def creation_properties(self) -> dict[str, str]:
        """Return the table properties to create the node's table with."""
        return {**table_clustering.creation_properties(self.options), **self._before.carried_over}

    def _cluster(self, relation: BaseRelation, actual: TableClustering) -> None:
        """Set a table's clustering to that of the options; remember the key that it replaces."""
        before = actual.cluster_by if self.options.auto is None else None
        if before is not None and before.lower() != str(self.options.cluster_by).lower():
            self._former_key = before
        self.drop_lost_metrics(relation, actual)
        table_properties = self._macros["config"].get("tblproperties")
        self._alter(relation, table_clustering.clustering_change(self.options, actual, table_properties, self._loaded))

    def drop_lost_metrics(self, relation: BaseRelation, actual: TableClustering | None = None) -> None:
        """Unset the properties of dropped struct fields, and of columns that a replaced table had."""
        actual = actual or self._tables.clustering(relation)
        key = self.options.cluster_by
        others = set(actual.metrics.values()) - {field.column for field in (key.fields if key else ())}
        if any("." in path or not self._is_kept for path in others):
            columns = self._tables.session.columns(self._table_columns(relation))
            self._alter(relation, table_clustering.lost_metrics(actual, columns))

    def _alter(self, relation: BaseRelation, change: ClusteringChange) -> None:
        self._macros["recluster_alter_clustering"](relation, change)

    # --- its columns ---

    def _resolve(self, columns: Mapping[str, str]) -> None:
        """Check the options against columns, by their Spark types."""
        with as_dbt_errors():
            self.options = self.options.resolve(self._tables.session.columns(columns))
            where = self.options.recluster.where
            if where is not None and self._tables.session.credentials.in_process:
                check_predicate(self._tables.session.spark, columns, where)

    def _resolve_once(self, columns: Callable[[], Mapping[str, str]]) -> None:
        """Check the key if that was impossible before."""
        if self.options.cluster_by is not None and self.options.columns is None:
            self._resolve(columns())

    def _table_columns(self, relation: BaseRelation) -> dict[str, str]:
        return {column.name: column.dtype for column in self._adapter.get_columns_in_relation(relation)}

    def _model_columns(self, query: str | None = None) -> dict[str, str]:
        """Return the Spark types of the columns that the node's table will have, without running the model."""
        config, model = self._macros["config"], self._macros["model"]
        if model["resource_type"] == "seed":
            rows = self._macros["load_agate_table"]()
            column_types = config.get("column_types") or {}
            return {
                name: column_types.get(name, self._adapter.convert_type(rows, number))
                for number, name in enumerate(rows.column_names)
            }
        described = self._macros["run_query"](f"describe query {query or model['compiled_code']}")
        columns = {row[0]: row[1] for row in described.rows}
        if model["resource_type"] == "snapshot":
            default = self._macros["get_snapshot_table_column_names"]
            names = config.get("snapshot_table_column_names") or default()
            columns[names["dbt_scd_id"]] = "string"
            columns |= {names[f"dbt_{name}"]: "timestamp" for name in ("updated_at", "valid_from", "valid_to")}
            if config.get("hard_deletes") == "new_record":
                columns[names["dbt_is_deleted"]] = "string"
        return columns

    def compare_schemas(self, model: list[Column], table: list[Column]) -> dict[str, Any]:
        """Compare the columns of an incremental model and its table, in dbt's form."""
        changes = self.schema_changes = SchemaChanges.between(model, table, self._tables.session.case_sensitive)
        return {
            "schema_changed": bool(changes),
            "source_not_in_target": changes.added,
            "target_not_in_source": changes.missing,
            "source_columns": model,
            "target_columns": table,
            "new_target_types": [{"column_name": old.name, "new_type": new.data_type} for old, new in changes.retyped],
        }

    @as_dbt_errors()
    def check_new_types(self, relation: BaseRelation) -> None:
        """Refuse a change of type that Iceberg does not support, before anything is altered."""
        self.schema_changes.check_types(relation.render())

    def check_column_removal(self, relation: BaseRelation, removed: list[Column], *, is_this: bool) -> None:
        """Refuse to drop columns that the table needs."""
        key = self.options.cluster_by if is_this else None
        columns = self._tables.session.columns({column.name: column.data_type for column in removed})
        table = self._tables.clustering(relation)
        partitions = table_clustering.partition_columns(self._tables.catalogs.ask(f"describe {relation}"))
        loses_key = key and self.options.auto is not None and any(columns.find(of.column) for of in key.fields)
        needed = (replace(table, sort_order=""), None) if loses_key else (table, key)
        with as_dbt_errors():
            table_clustering.check_column_removal(relation.render(), columns, *needed, partitions)
            if loses_key:  # auto chooses another one after the load
                options = replace(self.options, cluster_by=None, auto=None)
                self._alter(relation, table_clustering.clustering_change(options, table))
                self.options = replace(options, auto=AUTO_KEY.dump({}))
                self._cluster(relation, self._tables.clustering(relation))

    # --- its query ---

    as_subquery = staticmethod(without_end)

    def sorted_query(self, query: str, temporary: bool) -> str:
        """Return the query of a new table, or of rows to insert, sorted as the table's rows should be.

        A table's sort order does not apply to create-as-select, and no sort order has a curve.
        """
        if not temporary:
            self._resolve_once(lambda: self._model_columns(query))
        options, key = self.options, self.options.cluster_by
        if key is None or options.columns is None or not options.sort_on_load:
            return query
        text = without_end(query)
        if self._before.has_curve(key) and (not temporary or self._loaded.can_be_sorted):
            columns = self._tables.session.columns(self._model_columns(query))
            partitions = self._loaded.partitions if temporary else None
            return table_clustering.sorted_along_curve(text, key, self._before.properties, columns, partitions) or query
        order_by = "" if temporary else key.order_by(options.columns)
        return f"select * from (\n{text}\n)\norder by {order_by}" if order_by else query


def options_of(node: Any) -> ModelOptions:
    """Return the checked options of a node."""
    with as_dbt_errors(node):
        return ModelOptions.from_config(node.config)
