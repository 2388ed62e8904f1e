"""The adapter: dbt-spark, and the methods that the clustering macros call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.spark.impl import SparkAdapter
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.budget import Budget
from dbt_recluster.adapter.catalog import clustering_statistics
from dbt_recluster.adapter.config import ClusteringConfig, clustering_turned_off
from dbt_recluster.adapter.connections import ReclusterConnectionManager
from dbt_recluster.adapter.credentials import ReclusterCredentials
from dbt_recluster.adapter.errors import as_dbt_errors
from dbt_recluster.adapter.limits import Limits
from dbt_recluster.adapter.operate import Operations
from dbt_recluster.adapter.reclustering import Reclustering, logger
from dbt_recluster.adapter.relation import (
    ClusteringChange,
    TableClustering,
    clustering_change,
    creation_properties,
    restored_order,
)
from dbt_recluster.adapter.reporting import Reporting
from dbt_recluster.adapter.response import ReclusterResponse, respond
from dbt_recluster.columns import Columns
from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.environment import check_environment, uses_session_catalog
from dbt_recluster.iceberg.predicates import check_predicate

if TYPE_CHECKING:
    import agate
    from dbt.adapters.contracts.relation import RelationConfig
    from pyspark.sql import SparkSession

    from dbt_recluster.maintenance import ReclusterReport

DEFAULT_FILE_FORMAT = "iceberg"
# How Iceberg tables show themselves: to a session catalog over a Hive metastore by a property of the table,
# elsewhere by their provider. dbt-spark looks for the provider only (dbt-spark#870).
_ICEBERG_MARKS = ("table_type=ICEBERG", "Provider: iceberg")
_ICEBERG_VIEW = "table_type=ICEBERG-VIEW"


class ReclusterAdapter(Limits, Operations, Reclustering, Reporting, SparkAdapter):
    """dbt-spark, and clustering.

    The name is not free: dbt derives the module ``dbt.adapters.recluster`` from it after each model.
    """

    ConnectionManager = ReclusterConnectionManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._building = threading.local()  # a node is built by one thread from its first hook to its last
        self._warned: set[str] = set()
        self._budget = Budget()

    # --- dbt-spark's ways with Iceberg tables, mended ---

    def pre_model_hook(self, config: Any) -> Any:
        """Before each node: what is not said to be in another format is Iceberg."""
        self._building.clustering = None
        node_config = getattr(getattr(config, "model", None), "config", None)
        if node_config is not None and node_config.get("file_format") is None:
            node_config["file_format"] = DEFAULT_FILE_FORMAT
        return super().pre_model_hook(config)

    def _build_spark_relation_list(
        self, row_list: agate.Table, relation_info_func: Callable[[agate.Row], tuple[str, str, str]]
    ) -> list[BaseRelation]:
        """List relations; recognise Iceberg tables of a Hive metastore and leave out temporary views."""
        # A temporary view has no schema and is no relation that dbt manages; dbt-spark never drops its own.
        rows = [row for row in row_list if row[0]]
        relations = super()._build_spark_relation_list(rows, relation_info_func)
        return [
            relation.incorporate(is_iceberg=True)  # type: ignore[no-untyped-call]
            if _looks_like_iceberg(relation)
            else relation
            for relation in relations
        ]

    def _get_columns_for_catalog(self, relation: BaseRelation) -> Iterable[dict[str, Any]]:
        """Add the clustering of a table to what ``dbt docs`` knows of it."""
        statistics: dict[str, Any] = {}
        if self.credentials.method.in_process and self.may_have_clustering(relation):
            try:
                statistics = clustering_statistics(self.spark, relation.render())
            except ReclusterError as e:
                logger.debug(f"no clustering statistics of {relation}: {e}")
        for column in super()._get_columns_for_catalog(relation):
            yield {**column, **statistics}

    @classmethod
    def _get_adapter_specific_run_info(cls, config: RelationConfig) -> dict[str, Any]:
        info: dict[str, Any] = super()._get_adapter_specific_run_info(config)
        return {**info, "adapter_type": "recluster"}

    def debug_query(self) -> None:
        """``dbt debug``: can this Spark do what clustering needs?"""
        if self.credentials.method.in_process:
            with as_dbt_errors(kind=DbtRuntimeError):
                check_environment(self.spark)
        super().debug_query()

    @available.parse(lambda *_: False)
    def cannot_replace_view(self, relation: BaseRelation | None) -> bool:
        """Whether ``create or replace view`` would leave the view as it is (macros/materializations/view.sql)."""
        if relation is None or not relation.is_view:
            return False
        if _ICEBERG_VIEW in (getattr(relation, "information", None) or ""):
            return True
        return self.credentials.method.in_process and uses_session_catalog(self.spark)

    # --- what the macros call ---

    @available.parse_none
    def parse_clustering(self, config: Any) -> ClusteringConfig:
        """Return the clustering that the node's configuration asks for; an error names what is wrong with it."""
        node_config = config.model.config
        with as_dbt_errors(config.model):
            return ClusteringConfig.parse(node_config.get, list(node_config))

    @available.parse_none
    def prepare_clustering(
        self, clustering: ClusteringConfig, columns: Mapping[str, str]
    ) -> ClusteringConfig:
        """Check the configuration against the columns (name to Spark type) and remember it for this build."""
        with as_dbt_errors():
            resolved = clustering.resolve(self._columns(columns))
            if clustering.where is not None and self.credentials.method.in_process:
                check_predicate(self.spark, columns, clustering.where)
        self._building.clustering = resolved
        return resolved

    @available.parse_list
    def missing_key_columns(self, clustering: ClusteringConfig, columns: Mapping[str, str]) -> list[str]:
        """Return the columns of the key, by their top-level names, that a table with these columns lacks."""
        return clustering.cluster_by.missing_from(self._columns(columns)) if clustering.cluster_by else []

    def _columns(self, types: Mapping[str, str]) -> Columns:
        return Columns.parse(types, case_sensitive=self._case_sensitive)

    @cached_property
    def _case_sensitive(self) -> bool:
        """Whether the session tells ``k`` from ``K``."""
        _, rows = self.execute("set spark.sql.caseSensitive", fetch=True)
        return str(rows[0][1]).lower() == "true"

    @available.parse_none
    def defer_clustering(self, clustering: ClusteringConfig) -> ClusteringConfig:
        """Remember a configuration for this build whose columns are not known yet."""
        self._building.clustering = clustering
        return clustering

    @available.parse_none
    def current_clustering(self) -> ClusteringConfig | None:
        """Return the clustering of the model that this thread is building, None when it has none."""
        return getattr(self._building, "clustering", None)

    @available.parse_none
    def clustering_creation_properties(self) -> dict[str, str]:
        """Return the table properties to create the current model's table with."""
        clustering = self.current_clustering()
        return creation_properties(clustering) if clustering else {}

    @available.parse_none
    def table_clustering(self, rows: Iterable[Any]) -> TableClustering:
        """Read ``SHOW TBLPROPERTIES``."""
        return TableClustering.from_properties((row[0], row[1]) for row in rows)

    @available.parse_none
    def may_have_clustering(self, relation: BaseRelation | None) -> bool:
        """Whether an existing relation is an Iceberg table with a sort order, as far as its listing tells.

        It saves a statement for each model that has nothing to do with clustering.
        """
        information = getattr(relation, "information", None) or ""
        return bool(getattr(relation, "is_iceberg", False)) and "sort-order=" in information

    @available.parse_none
    def clustering_change(
        self, desired: ClusteringConfig, actual: TableClustering, table_properties: Mapping[str, str] | None
    ) -> ClusteringChange:
        """Return what to alter for the table to be clustered as configured."""
        return clustering_change(desired, actual, table_properties)

    @available.parse_none
    def restored_order(self, before: TableClustering, after: TableClustering) -> ClusteringChange:
        """Return what to alter for a replaced table to have the sort order it had."""
        return restored_order(before, after)

    @available.parse_none
    def first_time(self, subject: str) -> bool:
        """Whether this is the first call with ``subject`` in this invocation: each warning is given once."""
        if subject in self._warned:
            return False
        self._warned.add(subject)
        return True

    @available.parse_none
    def reaches(self, moment: Any, end: Any) -> bool:
        """Whether ``moment`` is not before ``end``; both are times or their ISO text, and without a zone mean UTC."""
        return _utc(moment) >= _utc(end)

    @available.parse_none
    def clustering_turned_off(self, variables: Any) -> str | None:
        """Return what turns automatic clustering off for this run, or None."""
        with as_dbt_errors():
            return clustering_turned_off(variables)

    @available.parse_none
    def clustering_response(self, response: Any, report: ReclusterReport) -> ReclusterResponse:
        """Return dbt's answer for a model with the figures of its recluster added."""
        return respond(
            response if isinstance(response, AdapterResponse) else AdapterResponse(str(response)), report
        )

    def _exists(self, relation: str) -> bool:
        schema, _, identifier = relation.rpartition(".")
        return self.get_relation(None, schema, identifier) is not None  # type: ignore[arg-type]

    # --- the session ---

    @available.parse_none
    def cannot_recluster(self) -> str | None:
        """Return why this connection cannot recluster, or None."""
        if self.credentials.method.in_process:
            return None
        return (
            "reclustering needs a Spark session in dbt's own process, and "
            f"`method: {self.credentials.method}` reaches one elsewhere. Use `method: session` or `embedded`."
        )

    @property
    def credentials(self) -> ReclusterCredentials:
        """The profile."""
        credentials = self.config.credentials
        assert isinstance(credentials, ReclusterCredentials)
        return credentials

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this process.

        Raises:
            DbtRuntimeError: The method reaches a Spark elsewhere.
        """
        if reason := self.cannot_recluster():
            raise DbtRuntimeError(reason)
        from dbt_recluster.adapter.session import spark_session

        return spark_session(self.credentials)


def _looks_like_iceberg(relation: BaseRelation) -> bool:
    information = getattr(relation, "information", None) or ""
    return not relation.is_view and any(mark in information for mark in _ICEBERG_MARKS)


def _utc(moment: Any) -> datetime:
    time = (
        moment if isinstance(moment, datetime) else datetime.fromisoformat(str(moment).replace("Z", "+00:00"))
    )
    return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time
