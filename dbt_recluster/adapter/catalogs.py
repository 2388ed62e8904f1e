"""The catalogs of a connection, their schemas and relations.

dbt-spark lists a schema by ``show table extended``, which only Spark's session catalog answers, or else by a statement
for each table (dbt-adapters#862). An Iceberg catalog holds only Iceberg tables and views, so two statements do.

One ``catalogs.yml`` serves all targets of a project. An Iceberg REST or Hive integration is a catalog of Spark; a model
that names any other cannot be built here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, NamedTuple

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.catalogs._integration import CatalogIntegrationConfig  # not explicitly exported
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.dbt_errors import ConfigurationError, message
from dbt_recluster.iceberg.session.environment import ICEBERG_CATALOG, SESSION_CATALOG
from dbt_recluster.key.columns import quote, sql_literal, unquote

_SESSION_CATALOG_NAME = "spark_catalog"
# Errors of a schema that does not exist.
_MISSING = ("SCHEMA_NOT_FOUND", "NoSuchNamespaceException", "Namespace does not exist", "NoSuchDatabase")
_GONE = "TABLE_OR_VIEW_NOT_FOUND"


class Listed(NamedTuple):
    """A table or a view of a schema."""

    name: str
    is_view: bool
    is_iceberg: bool


class Catalogs:
    """A connection's catalogs. ``ask`` runs a short statement; the class of a catalog is asked for once."""

    def __init__(self, ask: Callable[[str], list[Any]]) -> None:
        self.ask = ask
        self._class = cache(self._setting)
        self._without_views: set[str] = set()

    @cached_property
    def current(self) -> str:
        """The catalog that names of two parts belong to."""
        return str(self.ask("show current namespace")[0][0])

    def is_session_catalog(self, catalog: str | None) -> bool:
        """Return whether a catalog, or the current one, is Spark's session catalog, whatever its class."""
        return (catalog or self.current).lower() == _SESSION_CATALOG_NAME

    def is_catalog(self, name: str) -> bool:
        """Return whether there is a catalog of this name."""
        return name.lower() == _SESSION_CATALOG_NAME or self._class(name) != "<undefined>"

    def shares_directories(self, relation: BaseRelation) -> bool:
        """Return whether a relation is in Iceberg's session catalog, where Spark's tables share its directories."""
        is_session_catalog = self.is_session_catalog(relation.database)
        return is_session_catalog and self._class(_SESSION_CATALOG_NAME) == SESSION_CATALOG

    def kind(self, catalog: str | None) -> str:
        """Return the ``type`` of a catalog, or of the current one."""
        return self._setting(f"{catalog or self.current}.type").lower()

    def provider(self, table: str) -> str | None:
        """Return a table's format in lower case, or None if Spark names none."""
        rows = self.ask(f"describe extended {table}")
        return next((str(row[1]).lower() for row in rows if row[0] == "Provider"), None)

    def relations(self, catalog: str, schema: str) -> list[Listed]:
        """List a schema, by its quoted name, of a catalog that is not the session catalog; a missing one is empty."""
        tables = self._listed(f"show tables in {schema}")
        views = {str(row[1]) for row in self._views(catalog, schema)}
        # Temporary views have no schema, and some catalogs list views among the tables.
        names = [str(row[1]) for row in tables if row[0] and str(row[1]) not in views]
        is_iceberg = self._class(catalog) == ICEBERG_CATALOG
        formats: dict[str, str | None] = {}
        for name in names:
            with _if_it_is_there():
                formats[name] = "iceberg" if is_iceberg else self.provider(f"{schema}.{quote(unquote(name))}")
        listed = [Listed(name, False, kind == "iceberg") for name, kind in formats.items()]
        return [*listed, *(Listed(name, True, False) for name in sorted(views))]

    def described(self, schema: str) -> list[Any]:
        """Describe the relations of a schema of the session catalog.

        A table that is dropped meanwhile fails the statement, which dbt-spark would take for an empty schema.
        """
        statement = f"show table extended in {schema} like"
        with _if_it_is_there():
            return self.ask(f"{statement} '*'")
        rows: list[Any] = []
        for row in self.ask(f"show tables in {schema}"):
            with _if_it_is_there():
                rows += self.ask(f"{statement} {sql_literal(str(row[1]))}")
        return rows

    def schemas(self, catalog: str | None) -> list[str]:
        """Return the unquoted names of the schemas of a catalog, or of the current one."""
        rows = self._listed("show schemas" if catalog is None else f"show schemas in {quote(catalog)}")
        return [unquote(str(row[0])) for row in rows]

    def _listed(self, statement: str) -> list[Any]:
        """Return the rows of a listing, or none if the schema, or a Hadoop catalog's directory, does not exist."""
        try:
            return self.ask(statement)
        except DbtRuntimeError as e:
            if any(text in message(e) for text in _MISSING):
                return []
            raise

    def _views(self, catalog: str, schema: str) -> list[Any]:
        if catalog in self._without_views:
            return []
        try:
            return [row for row in self._listed(f"show views in {schema}") if row[0]]
        except DbtRuntimeError as e:
            # Most catalogs without views answer with an empty list.
            no_views = ("without view support", "does not support views", "MISSING_CATALOG_ABILITY")
            if not any(text in message(e) for text in no_views):
                raise
            self._without_views.add(catalog)
            return []

    def _setting(self, name: str) -> str:
        return str(self.ask(f"set {quote(f'spark.sql.catalog.{name}')}")[0][1])


@contextmanager
def _if_it_is_there() -> Iterator[None]:
    """Pass over the error of a table that another thread or process has dropped."""
    try:
        yield
    except DbtRuntimeError as e:
        if _GONE not in message(e):
            raise


def names_like(names: Iterable[str], pattern: str, exclude: str = "") -> list[str]:
    """Return the names that are ``ILIKE`` one pattern and not like another, sorted. A backslash escapes."""

    def matches(name: str, pattern: str) -> bool:
        signs = {"%": ".*", "_": "."}
        regex = re.sub(r"(?s)\\?.", lambda sign: signs.get(sign[0]) or re.escape(sign[0][-1]), pattern)
        return re.fullmatch(regex, name, re.IGNORECASE | re.DOTALL) is not None

    return sorted(name for name in names if matches(name, pattern) and not matches(name, exclude))


class Integrations(dict[str, CatalogIntegrationConfig]):
    """The integrations by name, as dbt registers them before it parses."""

    def catalog(self, name: str | None) -> str | None:
        """Return the Spark catalog of a model's ``catalog_name``, or None if it has none."""
        return None if name is None or self._refusal(name) else self._spark_catalog(name)

    def check(self, node: Any) -> None:
        """Refuse a node whose ``catalog_name`` leads to no catalog of Spark."""
        config: Any = getattr(node, "config", {})
        if (name := config.get("catalog_name")) is None:
            return
        if refusal := self._refusal(name):
            raise ConfigurationError(
                f"{node.name}: catalog_name {name} is {refusal}. Set the model's config `catalog` to a Spark "
                "catalog, or leave catalog_name out for this target",
                node=node,
            )
        catalog = self._spark_catalog(name)
        if not (config.get("database") or config.get("catalog") or node.database == catalog):
            # dbt parses a model again when its file changes, not when catalogs.yml does.
            raise ConfigurationError(
                f"{node.name}: catalog_name {name} is the catalog {catalog} of Spark, but dbt parsed the model for "
                f"{node.database or 'the current one'}: run once with --no-partial-parse",
                node=node,
            )

    def _spark_catalog(self, name: str) -> str:
        """Return the Spark catalog of an integration: its adapter property ``catalog``, or its own name."""
        integration = self[str(name)]
        named = (integration.adapter_properties or {}).get("catalog")
        return str(named or integration.catalog_name or integration.name)

    def _refusal(self, name: str) -> str | None:
        """Return why a name leads to no catalog of Spark, or None if it does."""
        if (integration := self.get(str(name))) is None:
            return f"not among the catalogs of catalogs.yml ({', '.join(sorted(self)) or 'none'})"
        kind, table_format = integration.catalog_type, integration.table_format
        if str(kind).lower() not in ("iceberg_rest", "hive_metastore"):
            return f"an integration of type {kind}; only iceberg_rest and hive_metastore map to Spark catalogs"
        if (table_format or "default").lower() not in ("iceberg", "default"):
            return f"an integration for tables of {table_format}, where this adapter's are Iceberg tables"
        return None
