"""What the macros ask while a model is built: its configuration, its table's clustering, and changes of its columns."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from dbt.adapters.base.column import Column
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.dbt_errors import ConfigurationError, as_dbt_errors
from dbt_recluster.adapter.model_response import KeyChange
from dbt_recluster.adapter.relations.relation_config import (
    ClusteringChange,
    TableClustering,
    clustering_change,
    creation_properties,
    restored_order,
)
from dbt_recluster.adapter.relations.replacing_methods import ReplacingMethods
from dbt_recluster.adapter.relations.schema_changes import SchemaChanges, column_removal, partition_columns
from dbt_recluster.adapter.relations.sorted_loads import LoadedInto, sorted_along_curve
from dbt_recluster.adapter.run_vars import clustering_turned_off, run_budget
from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.clustering.curve_boundaries import recorded_curve
from dbt_recluster.clustering.options import KEY_PROPERTY
from dbt_recluster.clustering.values import parse_iso_time
from dbt_recluster.iceberg.reads.predicates import check_predicate
from dbt_recluster.iceberg.sort_order import sort_order_text
from dbt_recluster.operations.model_options import ModelOptions

logger = AdapterLogger("Recluster")

# Spark's SQL, as far as it takes to tell the semicolons at the end of a query from those in texts and comments.
_TOKENS = re.compile(
    r"""\b[rR]'[^']*' | \b[rR]"[^"]*" | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | `[^`]*`
    | (?P<end> \s+ | ; | --[^\n]* | /\*.*?\*/ ) | .""",
    re.DOTALL | re.VERBOSE,
)


class ModelMethods(ReplacingMethods):
    """The part of the adapter that builds models."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._building = threading.local()  # one thread builds a node from its first hook to its last
        self._warned: set[str] = set()

    def pre_model_hook(self, config: Any) -> Any:
        """Before each node: nothing is known of it."""
        self._building.clustering = None
        self._building.table = None
        self._building.loaded = LoadedInto()
        self._building.key_change = None
        self._building.schema_changes = SchemaChanges()
        return super().pre_model_hook(config)

    @available.parse_none
    def parse_clustering(self, config: Any) -> ModelOptions:
        """Return the clustering configuration of a node; an error names what is wrong with it."""
        node_config = config.model.config
        with as_dbt_errors(config.model):
            items = {name: node_config.get(name) for name in node_config}
            options = ModelOptions.of_config(items)
        self._building.loaded = LoadedInto.of_config(items)
        note = options.cluster_by.note if options.cluster_by else None
        if note and self.first_time(f"curve of {config.model.unique_id}"):
            logger.info(f"{config.model.name}: {note}")
        return options

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
    def refuse_function(self, function: Mapping[str, Any]) -> None:
        """Refuse a user-defined function; nothing is parsed of it here, so the project's models are built."""
        raise ConfigurationError(
            f"{function['name']} is a user-defined function, and Spark 3.5 has none in SQL or of dbt's kind in Python. "
            "Write it as a macro, which every model can call"
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
    def prepare_clustering(self, clustering: ModelOptions, columns: Mapping[str, str]) -> ModelOptions:
        """Check a configuration against the model's columns (name to Spark type) and keep it for this build."""
        with as_dbt_errors():
            resolved = clustering.resolve(self._columns(columns))
            if clustering.recluster.where is not None and self.credentials.method.in_process:
                check_predicate(self.spark, columns, clustering.recluster.where)
        self._building.clustering = resolved
        return resolved

    @available.parse_none
    def defer_clustering(self, clustering: ModelOptions) -> ModelOptions:
        """Keep a configuration for this build whose columns are not known yet."""
        self._building.clustering = clustering
        return clustering

    @available.parse_none
    def current_clustering(self) -> ModelOptions | None:
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
    def missing_key_columns(self, clustering: ModelOptions, columns: Mapping[str, str]) -> list[str]:
        """Return the top-level columns of the key that a table with these columns lacks."""
        return clustering.cluster_by.missing_from(self._columns(columns)) if clustering.cluster_by else []

    @available
    def as_subquery(self, query: str) -> str:
        """Return a model's query to be put between parentheses (see :func:`without_end`)."""
        return without_end(query)

    @available.parse(lambda *_: True)
    def is_iceberg_table(self, relation: BaseRelation) -> bool:
        """Whether there is an Iceberg table of this name, as the catalog says now."""
        try:
            return self.catalogs.provider(relation.render()) == "iceberg"
        except DbtRuntimeError:
            return False

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
            table = self._open(relation.render()).iceberg
            return TableClustering(sort_order_text(table), table.properties)

    @available.parse_none
    def load_into(self, table: TableClustering | None) -> None:
        """Keep the table that this build writes into, or replaces."""
        self._building.table = table

    @available.parse_none
    def sorts_along_curve(self, temporary: bool) -> bool:
        """Whether the query of a new table, or of the rows to insert, is to be sorted along the table's curve."""
        clustering, table = self.current_clustering(), getattr(self._building, "table", None)
        if clustering is None or clustering.cluster_by is None or clustering.columns is None or table is None:
            return False
        is_asked = clustering.sort_on_load and (not temporary or self._building.loaded.can_be_sorted)
        return is_asked and recorded_curve(table.properties, clustering.cluster_by) is not None

    @available.parse_none
    def sorted_along_curve(self, query: str, columns: Mapping[str, str], temporary: bool) -> str:
        """Return a query sorted along the table's curve, or as it is where its columns do not allow that."""
        clustering, loaded = self.current_clustering(), self._building.loaded
        assert clustering is not None
        assert clustering.cluster_by is not None
        partitions = loaded.partitions if temporary else None
        properties = self._building.table.properties
        return (
            sorted_along_curve(
                without_end(query), clustering.cluster_by, properties, self._columns(columns), partitions
            )
            or query
        )

    @available.parse_none
    def may_have_clustering(self, relation: BaseRelation | None) -> bool:
        """Whether a relation is an Iceberg table with a sort order or a key, as far as its listing tells.

        In the session catalog it tells, which saves a statement for each model that has nothing to do with clustering.
        """
        if not getattr(relation, "is_iceberg", False):
            return False
        information = getattr(relation, "information", None)
        return information is None or "sort-order=" in information or f"{KEY_PROPERTY}=" in information

    @available.parse_none
    def clustering_change(
        self, desired: ModelOptions, actual: TableClustering, table_properties: Mapping[str, str] | None
    ) -> ClusteringChange:
        """Return the change that gives a table the clustering of its model; the model's line tells a change of key."""
        self._note_key_change(actual, desired.cluster_by)
        return clustering_change(desired, actual, table_properties, self._building.loaded)

    def _note_key_change(self, actual: TableClustering, desired: ClusterKey | None) -> None:
        before, after = actual.properties.get(KEY_PROPERTY), None if desired is None else str(desired)
        if before is not None and before.lower() != str(after).lower():
            self._building.key_change = KeyChange(before, after)

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


def without_end(query: str) -> str:
    """Return a query without the semicolons at its end, and the comments around them."""
    end = 0
    for token in _TOKENS.finditer(query):
        if token["end"] is None:
            end = token.end()
    return query[:end]


def _utc(moment: Any) -> datetime:
    return parse_iso_time(moment.isoformat() if isinstance(moment, datetime) else str(moment))
