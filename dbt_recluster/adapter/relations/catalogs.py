"""The catalogs that a connection reaches, and what is in their schemas.

dbt-spark lists a schema by ``show table extended``, which only Spark's session catalog answers, or else by a statement
for each table (dbt-adapters#862). An Iceberg catalog holds nothing but Iceberg tables and views, so two statements do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.dbt_errors import message
from dbt_recluster.iceberg.session.environment import ICEBERG_CATALOG, SESSION_CATALOG
from dbt_recluster.key.columns import quote, unquote

# The name of Spark's session catalog, whatever its class.
_SESSION_CATALOG_NAME = "spark_catalog"
# What SET answers about a setting that is not there.
_UNDEFINED = "<undefined>"
_MISSING = ("SCHEMA_NOT_FOUND", "NoSuchNamespaceException", "Namespace does not exist", "NoSuchDatabase")
# What show views says in a catalog without any; most have an empty list instead.
_NO_VIEWS = ("without view support", "does not support views", "MISSING_CATALOG_ABILITY")


class Listed(NamedTuple):
    """A table or a view of a schema."""

    name: str
    is_view: bool
    is_iceberg: bool


class Catalogs:
    """What a connection's catalogs are, each asked once."""

    def __init__(self, ask: Callable[[str], list[Any]]) -> None:
        self._ask = ask
        self._classes: dict[str, str] = {}
        self._without_views: set[str] = set()

    @cached_property
    def current(self) -> str:
        """The catalog of names of two parts."""
        return str(self._ask("show current namespace")[0][0])

    def is_session_catalog(self, catalog: str | None) -> bool:
        """Whether a catalog, None for the current one, is Spark's session catalog, with statements of its own."""
        return (catalog or self.current).lower() == _SESSION_CATALOG_NAME

    def is_catalog(self, name: str) -> bool:
        """Whether there is a catalog of this name."""
        return name.lower() == _SESSION_CATALOG_NAME or self._class(name) != _UNDEFINED

    def is_iceberg_session_catalog(self, catalog: str | None) -> bool:
        """Whether a catalog, None for the current one, is Iceberg's session catalog, which has Spark's tables too."""
        return self.is_session_catalog(catalog) and self._class(_SESSION_CATALOG_NAME) == SESSION_CATALOG

    def provider(self, table: str) -> str | None:
        """Return the format of a table, in lower case, or None if Spark names none."""
        rows = self._ask(f"describe extended {table}")
        return next((str(row[1]).lower() for row in rows if row[0] == "Provider"), None)

    def relations(self, catalog: str, schema: str) -> list[Listed]:
        """List the tables and views of a schema; none if it does not exist.

        Args:
            catalog: A catalog, not the session catalog.
            schema: The name of the schema with its catalog, as SQL writes it.
        """
        try:
            tables = self._ask(f"show tables in {schema}")
        except DbtRuntimeError as e:
            if any(text in message(e) for text in _MISSING):
                return []
            raise
        views = {str(row[1]) for row in self._views(catalog, schema)}
        # Temporary views have no schema; some catalogs list their views among the tables.
        names = [str(row[1]) for row in tables if row[0] and str(row[1]) not in views]
        is_iceberg = self._class(catalog) == ICEBERG_CATALOG
        listed = []
        for name in names:
            provider = "iceberg" if is_iceberg else self.provider(f"{schema}.{quote(unquote(name))}")
            listed.append(Listed(name, False, provider == "iceberg"))
        return [*listed, *(Listed(name, True, False) for name in sorted(views))]

    def schemas(self, catalog: str | None) -> list[str]:
        """Return the names of a catalog's schemas, unquoted; None means the current catalog."""
        rows = self._ask("show schemas" if catalog is None else f"show schemas in {quote(catalog)}")
        return [unquote(str(row[0])) for row in rows]

    def _views(self, catalog: str, schema: str) -> list[Any]:
        if catalog in self._without_views:
            return []
        try:
            return [row for row in self._ask(f"show views in {schema}") if row[0]]
        except DbtRuntimeError as e:
            if any(text in message(e) for text in _NO_VIEWS):
                self._without_views.add(catalog)
            elif not any(text in message(e) for text in _MISSING):
                raise
            return []

    def _class(self, catalog: str) -> str:
        if catalog not in self._classes:
            self._classes[catalog] = str(self._ask(f"set {quote(f'spark.sql.catalog.{catalog}')}")[0][1])
        return self._classes[catalog]


def quoted(catalog: str | None, schema: str) -> str:
    """Return the name of a schema as SQL writes it; no catalog is the current one."""
    return ".".join(quote(part) for part in (catalog, schema) if part)


def names_like(names: Iterable[str], pattern: str, exclude: str = "") -> list[str]:
    """Return the names like ``pattern`` and not like ``exclude``, in alphabetical order.

    As in ``ILIKE``, ``%`` stands for any text, ``_`` for one character, a backslash takes the next character as it is,
    and case does not matter.
    """
    wanted, unwanted = _as_regex(pattern), _as_regex(exclude)
    return sorted(name for name in names if wanted.fullmatch(name) and not unwanted.fullmatch(name))


def _as_regex(pattern: str) -> re.Pattern[str]:
    signs = {"%": ".*", "_": "."}
    text = re.sub(r"(?s)\\?.", lambda sign: signs.get(sign[0]) or re.escape(sign[0][-1]), pattern)
    return re.compile(text, re.IGNORECASE | re.DOTALL)
