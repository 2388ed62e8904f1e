"""Schemas and relations of any catalog, where dbt-spark knows one catalog and reads each table to list it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dbt.adapters.base.impl import catch_as_completed
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation, InformationSchema
from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.spark.column import SparkColumn
from dbt_common.clients.agate_helper import DEFAULT_TYPE_TESTER
from dbt_common.utils.executor import executor

from dbt_recluster.adapter.connections.session_methods import SessionMethods
from dbt_recluster.adapter.relations.relation import ReclusterRelation

if TYPE_CHECKING:
    import agate
    from dbt.adapters.contracts.relation import RelationConfig

# Over a Hive metastore, a session catalog shows Iceberg tables by a property; elsewhere, the provider shows them.
# dbt-spark looks only at the provider (dbt-spark#870).
_ICEBERG_MARKS = ("table_type=ICEBERG", "Provider: iceberg")
_ICEBERG_VIEW = "table_type=ICEBERG-VIEW"


class CatalogMethods(SessionMethods):
    """The part of the adapter that lists and describes what there is."""

    Relation = ReclusterRelation
    # dbt's limit of 100 is for adapters that name them all in one statement.
    MAX_SCHEMA_METADATA_RELATIONS = sys.maxsize

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

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        """List a schema: as dbt-spark does in the session catalog, by two statements in any other."""
        database = schema_relation.database
        if self.catalogs.is_session_catalog(database):
            relations = super().list_relations_without_caching(schema_relation)
            return [
                relation.incorporate(path={"database": database})  # type: ignore[no-untyped-call]
                for relation in relations
            ]
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
        found: BaseRelation | None = super().get_relation(database or None, schema, identifier)  # type: ignore[arg-type]
        return found

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

    @available.parse(lambda *_: False)
    def cannot_replace_view(self, relation: BaseRelation | None) -> bool:
        """Whether ``create or replace view`` would not change the view (macros/materializations/view.sql)."""
        if relation is None or not relation.is_view:
            return False
        if _ICEBERG_VIEW in (getattr(relation, "information", None) or ""):
            return True
        return self.credentials.method.in_process and self.catalogs.is_iceberg_session_catalog(
            relation.database
        )


def _looks_like_iceberg(relation: BaseRelation) -> bool:
    information = getattr(relation, "information", None) or ""
    return not relation.is_view and any(mark in information for mark in _ICEBERG_MARKS)
