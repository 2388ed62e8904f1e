"""Schemas and relations of any catalog, where dbt-spark knows one catalog and reads each table to list it.

A project has one ``catalogs.yml`` for all its targets, and models name an integration of it by ``catalog_name``. An
Iceberg REST or Hive integration is a catalog of Spark. Any other keeps only the models that name it from being built.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.impl import catch_as_completed
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation, InformationSchema
from dbt.adapters.catalogs._integration import CatalogIntegrationConfig
from dbt.adapters.contracts.relation import Policy, RelationType
from dbt.adapters.spark.column import SparkColumn
from dbt.adapters.spark.relation import SparkIncludePolicy, SparkRelation
from dbt_common.clients.agate_helper import DEFAULT_TYPE_TESTER
from dbt_common.utils.executor import executor

from dbt_recluster.adapter.connections.session_methods import SessionMethods
from dbt_recluster.adapter.dbt_errors import ConfigurationError
from dbt_recluster.adapter.relations.catalogs import names_like

if TYPE_CHECKING:
    import agate
    from dbt.adapters.contracts.relation import RelationConfig

# Over a Hive metastore, a session catalog shows Iceberg tables by a property; elsewhere, the provider shows them.
# dbt-spark looks only at the provider (dbt-spark#870).
_ICEBERG_MARKS = ("table_type=ICEBERG", "Provider: iceberg")
_ICEBERG_VIEW = "table_type=ICEBERG-VIEW"

_INTEGRATION_TYPES = ("iceberg_rest", "hive_metastore")
# `default` is the platform's own, and this adapter's is Iceberg.
_INTEGRATION_FORMATS = ("iceberg", "default")


@dataclass(frozen=True, eq=False, repr=False)
class ReclusterRelation(SparkRelation):
    """A relation whose ``database`` is a catalog, or None for the connection's current one.

    dbt-spark's relations have no database (dbt-adapters#495).
    """

    include_policy: Policy = field(default_factory=lambda: SparkIncludePolicy(database=True))
    render = BaseRelation.render

    def __post_init__(self) -> None:
        """Accept any database."""


class CatalogMethods(SessionMethods):
    """The part of the adapter that lists and describes what there is."""

    Relation = ReclusterRelation
    # dbt's limit of 100 is for adapters that name them all in one statement.
    MAX_SCHEMA_METADATA_RELATIONS = sys.maxsize

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._integrations: dict[str, CatalogIntegrationConfig] = {}

    # --- what there is in a catalog ---

    def _build_spark_relation_list(
        self, row_list: agate.Table, relation_info_func: Callable[[agate.Row], tuple[str, str, str]]
    ) -> list[BaseRelation]:
        """List relations; recognise Iceberg tables of a Hive metastore and omit temporary views."""
        # Temporary views have no schema and are not dbt's to manage; dbt-spark never drops its own.
        rows = [row for row in row_list if row[0]]
        relations: list[Any] = super()._build_spark_relation_list(rows, relation_info_func)
        for number, relation in enumerate(relations):
            if not relation.is_view and any(mark in (relation.information or "") for mark in _ICEBERG_MARKS):
                relations[number] = relation.incorporate(is_iceberg=True)
        return relations

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        """List a schema: as dbt-spark does in the session catalog, by two statements in any other."""
        database = schema_relation.database
        if self.catalogs.is_session_catalog(database):
            relations: list[Any] = super().list_relations_without_caching(schema_relation)
            return [relation.incorporate(path={"database": database}) for relation in relations]
        return [
            self.Relation.create(
                database=database,
                schema=schema_relation.schema,
                identifier=listed.name,
                type=RelationType.View if listed.is_view else RelationType.Table,
                is_iceberg=listed.is_iceberg,
                # These catalogs keep the case of names, and dbt compares unquoted ones in lower case.
                dbt_created=True,
            )
            for listed in self.catalogs.relations(
                database or self.catalogs.current, schema_relation.without_identifier().render()
            )
        ]

    def parse_columns_from_information(self, relation: BaseRelation) -> list[SparkColumn]:
        """Return the columns of a relation; dbt-spark before 1.11 has none where the listing tells none."""
        return super().parse_columns_from_information(relation) or self.get_columns_in_relation(relation)

    @available.parse_none
    def get_relation(self, database: str | None, schema: str, identifier: str) -> BaseRelation | None:
        """Return a relation that exists, or None. Nodes without a catalog have an undefined database in macros."""
        relation: BaseRelation | None = super().get_relation(database or None, schema, identifier)  # type: ignore[arg-type]
        return relation

    @available.parse_list
    def list_schemas(self, database: str | None) -> list[str]:
        """Return the names of a catalog's schemas."""
        return self.catalogs.schemas(database or None)  # in a macro it may be undefined

    def check_schema_exists(self, database: str, schema: str) -> bool:
        """Whether a catalog has a schema."""
        return schema in self.list_schemas(database)

    def drop_schema(self, relation: BaseRelation) -> None:
        """Drop a schema and all that is in it, which Iceberg's catalogs do not do by ``cascade``."""
        if not self.catalogs.is_session_catalog(relation.database):
            for listed in self.list_relations_without_caching(relation.without_identifier()):
                self.drop_relation(listed)  # type: ignore[no-untyped-call]
        super().drop_schema(relation)

    @available.parse_none
    def is_in_session_catalog(self, relation: BaseRelation) -> bool:
        """Whether a relation is in Spark's session catalog, whose SQL differs from that of the others."""
        return self.catalogs.is_session_catalog(relation.database)

    def get_catalog(
        self, relation_configs: Iterable[RelationConfig], used_schemas: frozenset[tuple[str, str]]
    ) -> tuple[agate.Table, list[Exception]]:
        """Describe the relations of all catalogs, for ``dbt docs``; dbt-spark knows a single one."""
        with executor(self.config) as pool:
            futures = [
                pool.submit_connected(  # type: ignore[no-untyped-call]
                    self, schema, self._get_one_catalog, info, [schema], used_schemas
                )
                for info, schemas in self._get_catalog_schemas(relation_configs).items()
                for schema in schemas
            ]
            return catch_as_completed(futures)

    def _get_one_catalog_by_relations(
        self,
        information_schema: InformationSchema,  # noqa: ARG002
        relations: Iterable[BaseRelation],
        used_schemas: frozenset[tuple[str, str]],  # noqa: ARG002
    ) -> agate.Table:
        """Describe the relations that ``dbt docs`` is asked for, and none of the others in their schemas."""
        import agate

        listed = (self.get_relation(r.database, str(r.schema), str(r.identifier)) for r in relations)
        columns = [
            column
            for relation in listed
            if relation is not None
            for column in self._get_columns_for_catalog(relation)
        ]
        return agate.Table.from_object(columns, column_types=DEFAULT_TYPE_TESTER)

    @available.parse_list
    def relations_like(
        self, schema_pattern: str, pattern: str, exclude: str, database: str | None
    ) -> list[BaseRelation]:
        """Return the tables and views whose names are like a pattern, in all schemas whose names are like another."""
        relations: list[BaseRelation] = []
        for schema in names_like(self.list_schemas(database), schema_pattern):
            listed = {str(r.identifier): r for r in self.list_relations(database or None, schema)}
            relations += [listed[name] for name in names_like(listed, pattern, exclude)]
        return relations

    @available.parse(lambda *_: False)
    def cannot_replace_view(self, relation: BaseRelation | None) -> bool:
        """Whether ``create or replace view`` would not change the view (macros/materializations/view.sql)."""
        if relation is None or not relation.is_view:
            return False
        if _ICEBERG_VIEW in (getattr(relation, "information", None) or ""):
            return True
        return self.credentials.in_process and self.catalogs.is_iceberg_session_catalog(relation.database)

    # --- catalogs.yml ---

    def add_catalog_integration(self, catalog_integration: CatalogIntegrationConfig) -> Any:
        """Take an integration of any type: dbt adds all of them before it parses."""
        self._integrations[catalog_integration.name] = catalog_integration
        return catalog_integration

    @available
    def integration_catalog(self, name: str | None) -> str | None:
        """Return the catalog of Spark that a model's ``catalog_name`` means, or None if it means none."""
        integration = None if name is None else self._integrations.get(name)
        return None if integration is None or _refusal(integration) else _spark_catalog(integration)

    def pre_model_hook(self, config: Any) -> Any:
        """Before each node: refuse a ``catalog_name`` that leads to no catalog of Spark."""
        node = getattr(config, "model", None)
        name = getattr(node, "config", {}).get("catalog_name")
        if name is not None:
            self._check_integration(node, str(name))
        return super().pre_model_hook(config)

    def _check_integration(self, node: Any, name: str) -> None:
        known = ", ".join(sorted(self._integrations)) or "none"
        integration = self._integrations.get(name)
        refusal = (
            _refusal(integration) if integration else f"not among the catalogs of catalogs.yml ({known})"
        )
        if integration is None or refusal:
            raise ConfigurationError(
                f"{node.name}: catalog_name {name} is {refusal}. Write the catalog of Spark that the model is for as "
                "its config `catalog`, or leave catalog_name out for this target",
                node=node,
            )
        catalog, config = _spark_catalog(integration), node.config
        if not (config.get("database") or config.get("catalog") or node.database == catalog):
            # dbt parses a model again when its file changes, not when catalogs.yml does.
            raise ConfigurationError(
                f"{node.name}: catalog_name {name} is the catalog {catalog} of Spark, but dbt parsed the model for "
                f"{node.database or 'the current one'}: run once with --no-partial-parse",
                node=node,
            )


def _spark_catalog(integration: CatalogIntegrationConfig) -> str:
    """Return the catalog of Spark that an integration names: its adapter property ``catalog``, or its own name."""
    named = (integration.adapter_properties or {}).get("catalog")
    return str(named or integration.catalog_name or integration.name)


def _refusal(integration: CatalogIntegrationConfig) -> str | None:
    """Return why Spark has no such catalog, or None."""
    kind, table_format = integration.catalog_type, integration.table_format
    if str(kind).lower() not in _INTEGRATION_TYPES:
        return (
            f"an integration of type {kind}, and to Spark only {', '.join(_INTEGRATION_TYPES)} are catalogs"
        )
    if (table_format or "iceberg").lower() not in _INTEGRATION_FORMATS:
        return f"an integration for tables of {table_format}, where this adapter's are Iceberg tables"
    return None
