"""The tables of Spark's catalogs: by name, and listed without loading them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import (
    CatalogError,
    CatalogNotFoundError,
    NotAnIcebergTableError,
    OptionError,
    OtherFormatError,
)
from dbt_recluster.iceberg.session.java_errors import is_caused_by, short_message
from dbt_recluster.iceberg.session.jvm import activate, java_array, java_class, java_items, java_list, jvm
from dbt_recluster.key.columns import quote
from dbt_recluster.names import Parts, join_parts, name_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Namespace = tuple[str, ...]

# Iceberg's catalogs resolve these suffixes to a branch or an older snapshot of the table before them.
_TIME_TRAVEL = re.compile(r"(branch|tag|snapshot_id|at_timestamp)_(.+)")
_BY_ARGUMENT = "and a branch other than main by the argument branch"
_HADOOP = "org.apache.iceberg.hadoop.HadoopCatalog"
# How catalogs say that no table is without a namespace.
_NO_ROOT = (
    "java.lang.IllegalArgumentException",
    "java.lang.UnsupportedOperationException",
    "org.apache.iceberg.exceptions.BadRequestException",
    "org.apache.iceberg.exceptions.NoSuchNamespaceException",
    "org.apache.iceberg.exceptions.ValidationException",
)


def tables_of_catalog(spark: SparkSession, catalog: str) -> list[str]:
    """Return the identifiers of all Iceberg tables of a catalog, in namespaces within namespaces too.

    Raises:
        CatalogNotFoundError: Spark has no Iceberg catalog of this name.
        CatalogError: It does not answer.
    """
    activate(spark)
    if not has_catalog(spark, catalog):
        raise CatalogNotFoundError(no_catalog(catalog))
    plugin = _check_is_iceberg(spark, spark._jsparkSession.sessionState().catalogManager().catalog(catalog))
    try:
        namespaces = list(_namespaces(spark, plugin, ()))
        tables = [table for namespace in namespaces for table in _tables(spark, catalog, plugin, namespace)]
        return list(dict.fromkeys([*_root_tables(spark, catalog, plugin, namespaces), *tables]))
    except Exception as e:
        raise CatalogError(f"the tables of catalog {catalog} cannot be listed: {short_message(e)}") from e


def tables_of_namespace(spark: SparkSession, name: str) -> list[str]:
    """Return the identifiers of the Iceberg tables of a namespace, but not of those within it.

    Args:
        spark: A session with Iceberg's extensions.
        name: ``catalog.namespace``, or a namespace of the current catalog.

    Raises:
        OptionError: It is not the name of a namespace.
        CatalogNotFoundError: There is no such namespace, or its catalog is not one of Iceberg's.
        CatalogError: The catalog does not start or answer.
    """
    activate(spark)
    parts = name_parts(name, "namespace")
    # Spark resolves names of tables only; the table's name is dropped again.
    resolved = resolve(spark, (*parts, "t"))
    plugin, namespace = resolved.catalog(), tuple(resolved.identifier().namespace())
    catalog = str(plugin.name())
    try:
        if plugin.namespaceExists(_java_strings(spark, namespace)):
            return _tables(spark, catalog, _check_is_iceberg(spark, plugin), namespace)
    except CatalogNotFoundError:
        raise
    except Exception as e:
        raise CatalogError(f"the tables of {name} cannot be listed: {short_message(e)}") from e
    text = f"there is no namespace {join_parts(namespace)} in catalog {catalog}"
    if len(parts) > 1 and namespace == parts:
        text = f"{no_catalog(parts[0])}; and {text}, the current one"
    raise CatalogNotFoundError(text)


def load_table(spark: SparkSession, name: str) -> tuple[str, Any]:
    """Return a table's full identifier, each part in backquotes, and Iceberg's table; see :meth:`IcebergTable.load`."""
    try:
        given = name_parts(name)
    except OptionError as e:
        raise NotAnIcebergTableError(str(e)) from None
    try:
        resolved = resolve(spark, given)
        loaded = resolved.catalog().loadTable(resolved.identifier())
    except CatalogError:
        raise
    except Exception as e:
        raise NotAnIcebergTableError(_load_error(spark, given, short_message(e).rstrip("."))) from e
    _check_is_main_branch(spark, given, loaded)
    parts = (*resolved.identifier().namespace(), resolved.identifier().name())
    if any("/" in part for part in parts):
        raise NotAnIcebergTableError(f"{name} contains a slash, so Iceberg's reader takes it for a path")
    return ".".join(map(quote, (resolved.catalog().name(), *parts))), loaded.table()


def no_catalog(name: str) -> str:
    """Return the sentence that says that there is no catalog of this name, and what to do."""
    return (
        f"Spark has no catalog {name}: set spark.sql.catalog.{name} to org.apache.iceberg.spark.SparkCatalog"
    )


def resolve(spark: SparkSession, parts: Parts) -> Any:
    """Return the catalog of a table's name and the identifier in it, by Spark's rule.

    Iceberg takes a catalog that does not start for one that is not there, and then looks in the current one. Here that
    is a CatalogError.
    """
    if len(parts) > 1:
        has_catalog(spark, parts[0])
    return jvm(spark).org.apache.iceberg.spark.Spark3Util.catalogAndIdentifier(
        spark._jsparkSession, java_list(spark, parts)
    )


def has_catalog(spark: SparkSession, name: str) -> bool:
    """Whether Spark has a catalog of this name; one that does not start is a CatalogError."""
    try:
        return bool(spark._jsparkSession.sessionState().catalogManager().isCatalogRegistered(name))
    except Exception as e:
        raise CatalogError(f"catalog {name} does not start: {short_message(e)}") from e


def _load_error(spark: SparkSession, parts: Parts, message: str) -> str:
    *base, last = parts
    if base and _TIME_TRAVEL.fullmatch(last):
        message += f". Name {join_parts(base)}, {_BY_ARGUMENT}"
    if len(base) > 1 and not has_catalog(spark, base[0]):
        message = f"{no_catalog(base[0])}; and in the current catalog: {message}"
    return f"{join_parts(parts)} cannot be loaded: {message}"


def _check_is_main_branch(spark: SparkSession, parts: Parts, loaded: Any) -> None:
    """Refuse everything that is not the main branch of an Iceberg table, with the name to use instead."""
    name, base, last = join_parts(parts), join_parts(parts[:-1]), parts[-1]
    package = "org.apache.iceberg.spark.source"
    if java_class(spark, f"{package}.SparkChangelogTable").isInstance(loaded):
        what = "the change log of a table"
    elif not java_class(spark, f"{package}.SparkTable").isInstance(loaded):
        raise OtherFormatError(f"{name} is not an Iceberg table: it is a view, or a table of another format")
    elif loaded.branch() is not None:
        what = f"branch {loaded.branch()} of a table"
    # A table's own name may look like one too. Spark 4.1 gives every table a snapshot, so that says nothing.
    elif (travel := _TIME_TRAVEL.fullmatch(last)) and not str(loaded.table().name()).lower().endswith(
        f".{last}".lower()
    ):
        is_tag = travel.group(1) == "tag"
        what = f"{last.replace('_', ' ', 1)} of a table" if is_tag else "an older snapshot of a table"
    elif java_class(spark, "org.apache.iceberg.BaseMetadataTable").isInstance(loaded.table()):
        what = f"the metadata table {last} of a table"
    else:
        return
    raise NotAnIcebergTableError(
        f"{name} is {what}, and only branches can be reclustered: name {base}, {_BY_ARGUMENT}"
    )


def _check_is_iceberg(spark: SparkSession, plugin: Any) -> Any:
    if not java_class(spark, "org.apache.iceberg.spark.source.HasIcebergCatalog").isInstance(plugin):
        raise CatalogNotFoundError(
            f"catalog {plugin.name()} is not one of Iceberg's but {plugin.getClass().getName()}"
        )
    return plugin


def _namespaces(spark: SparkSession, plugin: Any, parent: Namespace) -> Iterator[Namespace]:
    for parts in plugin.listNamespaces(_java_strings(spark, parent)) if parent else plugin.listNamespaces():
        namespace = tuple(parts)
        if namespace == parent:
            continue  # a catalog without namespaces in namespaces may answer with the one it was asked for
        yield namespace
        yield from _namespaces(spark, plugin, namespace)


def _tables(spark: SparkSession, catalog: str, plugin: Any, namespace: Namespace) -> list[str]:
    # Iceberg's catalog and not Spark's, which also lists views and tables of other formats.
    levels = jvm(spark).org.apache.iceberg.catalog.Namespace.of(_java_strings(spark, namespace))
    tables = plugin.icebergCatalog().listTables(levels)
    # Asked for the tables of its root, a catalog may list those of its namespaces too.
    names = sorted((*table.namespace().levels(), str(table.name())) for table in java_items(tables))
    return [join_parts((catalog, *name)) for name in names]


def _root_tables(
    spark: SparkSession, catalog: str, plugin: Any, namespaces: Sequence[Namespace]
) -> list[str]:
    """Return the tables in no namespace, which most catalogs do not have."""
    try:
        return _tables(spark, catalog, plugin, ())
    except Exception as e:
        if not is_caused_by(e, *_NO_ROOT):
            raise
    kind = spark.conf.get(f"spark.sql.catalog.{catalog}.type", None)
    if kind != "hadoop" and spark.conf.get(f"spark.sql.catalog.{catalog}.catalog-impl", None) != _HADOOP:
        return []
    # Iceberg's HadoopCatalog has such tables, and lists them nowhere.
    warehouse = jvm(spark).org.apache.hadoop.fs.Path(spark.conf.get(f"spark.sql.catalog.{catalog}.warehouse"))
    files = warehouse.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    directories = {
        str(status.getPath().getName()) for status in files.listStatus(warehouse) if status.isDirectory()
    }
    names = sorted((name,) for name in directories if (name,) not in namespaces)
    of = jvm(spark).org.apache.iceberg.catalog.TableIdentifier.of
    exists = plugin.icebergCatalog().tableExists
    return [join_parts((catalog, *name)) for name in names if exists(of(_java_strings(spark, name)))]


def _java_strings(spark: SparkSession, parts: Parts) -> Any:
    return java_array(spark, jvm(spark).java.lang.String, list(parts))
