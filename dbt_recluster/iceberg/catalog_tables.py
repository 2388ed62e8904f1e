"""The tables of a catalog or a namespace, without loading them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dbt_recluster.columns import quote_if_needed
from dbt_recluster.exceptions import CatalogError, CatalogNotFoundError
from dbt_recluster.iceberg.java_errors import is_caused_by, short_message
from dbt_recluster.iceberg.jvm import activate, java_array, java_class, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Namespace = tuple[str, ...]


def tables_of_catalog(spark: SparkSession, catalog: str) -> list[str]:
    """Return the identifiers of all Iceberg tables of a catalog, in namespaces within namespaces too.

    Raises:
        CatalogNotFoundError: Spark has no Iceberg catalog of this name.
        CatalogError: It does not answer.
    """
    activate(spark)
    plugin = _iceberg_catalog(spark, catalog)
    try:
        return [
            table
            for namespace in _namespaces(spark, plugin, ())
            for table in _tables(spark, catalog, plugin, namespace)
        ]
    except Exception as e:
        raise CatalogError(f"the tables of catalog {catalog} cannot be listed: {short_message(e)}") from e


def tables_of_namespace(spark: SparkSession, name: str) -> list[str]:
    """Return the identifiers of the Iceberg tables of a namespace, but not of those within it.

    Args:
        spark: A session with Iceberg's extensions.
        name: ``catalog.namespace``, or a namespace of the current catalog.

    Raises:
        CatalogNotFoundError: There is no such namespace, or its catalog is not one of Iceberg's.
        CatalogError: The catalog does not answer.
    """
    activate(spark)
    catalog, namespace = _catalog_and_namespace(spark, name)
    plugin = _iceberg_catalog(spark, catalog)
    try:
        exists = plugin.namespaceExists(_java_namespace(spark, namespace))
        tables = _tables(spark, catalog, plugin, namespace) if exists else []
    except Exception as e:
        raise CatalogError(f"the tables of {name} cannot be listed: {short_message(e)}") from e
    if not exists:
        raise CatalogNotFoundError(f"there is no namespace {'.'.join(namespace)} in catalog {catalog}")
    return tables


def _catalog_and_namespace(spark: SparkSession, name: str) -> tuple[str, Namespace]:
    """Return the catalog and the namespace that a name means, by Spark's own rules."""
    try:
        # Spark resolves names of tables only; the table's name is dropped again.
        resolved = jvm(spark).org.apache.iceberg.spark.Spark3Util.catalogAndIdentifier(
            spark._jsparkSession, f"{name}.t"
        )
    except Exception as e:
        raise CatalogNotFoundError(f"{name} is not a namespace: {short_message(e)}") from e
    return str(resolved.catalog().name()), tuple(resolved.identifier().namespace())


def _iceberg_catalog(spark: SparkSession, name: str) -> Any:
    """Return Spark's plugin of a catalog."""
    try:
        plugin = spark._jsparkSession.sessionState().catalogManager().catalog(name)
    except Exception as e:
        if is_caused_by(e, "org.apache.spark.sql.connector.catalog.CatalogNotFoundException"):
            raise CatalogNotFoundError(
                f"Spark has no catalog {name}: set spark.sql.catalog.{name} to org.apache.iceberg.spark.SparkCatalog"
            ) from e
        raise CatalogError(f"catalog {name} does not answer: {short_message(e)}") from e
    if not java_class(spark, "org.apache.iceberg.spark.source.HasIcebergCatalog").isInstance(plugin):
        raise CatalogNotFoundError(
            f"catalog {name} is not one of Iceberg's but {plugin.getClass().getName()}"
        )
    return plugin


def _namespaces(spark: SparkSession, plugin: Any, parent: Namespace) -> Iterator[Namespace]:
    for parts in plugin.listNamespaces(_java_namespace(spark, parent)) if parent else plugin.listNamespaces():
        namespace = tuple(parts)
        if namespace == parent:
            continue  # a catalog without namespaces in namespaces may answer with the one it was asked for
        yield namespace
        yield from _namespaces(spark, plugin, namespace)


def _tables(spark: SparkSession, catalog: str, plugin: Any, namespace: Namespace) -> list[str]:
    # Iceberg's catalog and not Spark's, which also lists views and tables of other formats.
    levels = jvm(spark).org.apache.iceberg.catalog.Namespace.of(_java_namespace(spark, namespace))
    tables = plugin.icebergCatalog().listTables(levels)
    names = sorted(str(tables.get(position).name()) for position in range(tables.size()))
    return [".".join(map(quote_if_needed, (catalog, *namespace, name))) for name in names]


def _java_namespace(spark: SparkSession, namespace: Namespace) -> Any:
    return java_array(spark, jvm(spark).java.lang.String, list(namespace))
