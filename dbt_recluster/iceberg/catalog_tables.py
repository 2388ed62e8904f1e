"""The tables of Spark's catalogs: listed without loading them, and loaded by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dbt_recluster.exceptions import (
    CatalogError,
    CatalogNotFoundError,
    MissingTableError,
    NotAnIcebergTableError,
    OptionError,
    OtherFormatError,
)
from dbt_recluster.iceberg.session.jvm import activate, java_array, java_class, java_items, java_list, java_session, jvm
from dbt_recluster.iceberg.session.redaction import is_caused_by, raise_as, short_message
from dbt_recluster.key.columns import quote
from dbt_recluster.names import Parts, join_parts, name_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A table name may end in one of these, which Iceberg's catalogs resolve to a branch or an older snapshot.
_TIME_TRAVEL = re.compile(r"(branch|tag|snapshot_id|at_timestamp)_(.+)")
_NO_SUCH_TABLE = [
    f"org.apache.spark.sql.catalyst.analysis.NoSuch{what}Exception" for what in ("Database", "Namespace", "Table")
]
_BY_ARGUMENT = "and a branch other than main by the argument branch"
# Errors of catalogs in which every table has a namespace.
_NO_ROOT = (
    "java.lang.IllegalArgumentException",
    "java.lang.UnsupportedOperationException",
    "org.apache.iceberg.exceptions.BadRequestException",
    "org.apache.iceberg.exceptions.NoSuchNamespaceException",
    "org.apache.iceberg.exceptions.ValidationException",
)


def tables_of_catalog(spark: SparkSession, catalog: str) -> list[str]:
    """Return the identifiers of all Iceberg tables of a catalog, nested namespaces included.

    Raises:
        CatalogNotFoundError: Spark has no Iceberg catalog of this name.
        CatalogError: The catalog does not answer.
    """
    activate(spark)
    if not has_catalog(spark, catalog):
        raise CatalogNotFoundError(no_catalog(catalog))
    plugin = _check_is_iceberg(spark, java_session(spark).sessionState().catalogManager().catalog(catalog))
    with raise_as(CatalogError, f"the tables of catalog {catalog} cannot be listed"):
        namespaces = list(_namespaces(spark, plugin, ()))
        tables = [table for namespace in namespaces for table in _tables(spark, catalog, plugin, namespace)]
        return list(dict.fromkeys([*_root_tables(spark, catalog, plugin, namespaces), *tables]))


def tables_of_namespace(spark: SparkSession, name: str) -> list[str]:
    """Return the identifiers of the Iceberg tables of ``catalog.namespace``, or of one of the current catalog.

    Those of nested namespaces are left out.

    Raises:
        OptionError: The name is malformed.
        CatalogNotFoundError: There is no such namespace, or its catalog is not one of Iceberg's.
        CatalogError: The catalog does not start or answer.
    """
    activate(spark)
    parts = name_parts(name, "namespace")
    # Spark resolves only names of tables.
    resolved = resolve(spark, (*parts, "t"))
    plugin, namespace = resolved.catalog(), tuple(resolved.identifier().namespace())
    catalog = str(plugin.name())
    with raise_as(CatalogError, f"the tables of {name} cannot be listed"):
        if plugin.namespaceExists(_java_strings(spark, namespace)):
            return _tables(spark, catalog, _check_is_iceberg(spark, plugin), namespace)
    text = f"there is no namespace {join_parts(namespace)} in catalog {catalog}"
    if len(parts) > 1 and namespace == parts:
        text = f"{no_catalog(parts[0])}; and {text}, the current one"
    raise CatalogNotFoundError(text)


def load_table(spark: SparkSession, name: str) -> tuple[str, Any]:
    """Return a table's full identifier, each part quoted, and Iceberg's table; see :meth:`IcebergTable.load`."""
    try:
        parts = name_parts(name)
        resolved = resolve(spark, parts)
        loaded = resolved.catalog().loadTable(resolved.identifier())
    except OptionError as e:
        raise NotAnIcebergTableError(str(e)) from None
    except CatalogError:
        raise
    except Exception as e:
        *base, last = parts
        message = short_message(e).rstrip(".")
        if base and _TIME_TRAVEL.fullmatch(last):
            message += f". Name {join_parts(base)}, {_BY_ARGUMENT}"
        is_missing = is_caused_by(e, *_NO_SUCH_TABLE)
        if len(base) > 1 and not has_catalog(spark, base[0]):
            message = f"{no_catalog(base[0])}; and in the current catalog: {message}"
            current = java_session(spark).sessionState().catalogManager().currentCatalog()
            is_missing |= str(current.name()) == "spark_catalog"  # another may have nested namespaces, and not answer
        kind = MissingTableError if is_missing else NotAnIcebergTableError
        raise kind(f"{join_parts(parts)} cannot be loaded: {message}") from e
    _check_is_main_branch(spark, parts, loaded)
    resolved_parts = (*resolved.identifier().namespace(), resolved.identifier().name())
    if any("/" in part for part in resolved_parts):
        raise NotAnIcebergTableError(f"{name} contains a slash, so Iceberg's reader takes it for a path")
    return ".".join(map(quote, (resolved.catalog().name(), *resolved_parts))), loaded.table()


def current_metadata_file(spark: SparkSession, name: str) -> str:
    """Return the current metadata file of a table, by one read of its catalog; errors as of :func:`load_table`."""
    resolved = resolve(spark, name_parts(name))
    # A cached table may be another one, dropped since.
    resolved.catalog().invalidateTable(resolved.identifier())
    return str(load_table(spark, name)[1].operations().current().metadataFileLocation())


def check_catalog(spark: SparkSession, table: str) -> None:
    """Raise a CatalogError if the catalog of a table does not answer."""
    with raise_as(CatalogError, f"the catalog of {table} does not answer"):
        resolved = resolve(spark, name_parts(table))
        resolved.catalog().namespaceExists(resolved.identifier().namespace())


def no_catalog(name: str) -> str:
    """Return the error message for a missing catalog."""
    return f"Spark has no catalog {name}: set spark.sql.catalog.{name} to org.apache.iceberg.spark.SparkCatalog"


def resolve(spark: SparkSession, parts: Parts) -> Any:
    """Resolve a table's name to its catalog and identifier; a CatalogError if the catalog does not start."""
    if len(parts) > 1:
        has_catalog(spark, parts[0])  # Iceberg would look in the current catalog instead
    util = jvm(spark).org.apache.iceberg.spark.Spark3Util
    return util.catalogAndIdentifier(java_session(spark), java_list(spark, parts))


def has_catalog(spark: SparkSession, name: str) -> bool:
    """Whether Spark has a catalog of this name; a CatalogError if it does not start."""
    with raise_as(CatalogError, f"catalog {name} does not start"):
        return bool(java_session(spark).sessionState().catalogManager().isCatalogRegistered(name))


def _check_is_main_branch(spark: SparkSession, parts: Parts, loaded: Any) -> None:
    """Refuse anything but the main branch of an Iceberg table."""
    name, base, last = join_parts(parts), join_parts(parts[:-1]), parts[-1]
    package = "org.apache.iceberg.spark.source"
    if java_class(spark, f"{package}.SparkChangelogTable").isInstance(loaded):
        what = "the change log of a table"
    elif not java_class(spark, f"{package}.SparkTable").isInstance(loaded):
        raise OtherFormatError(f"{name} is not an Iceberg table: it is a view, or a table of another format")
    elif loaded.branch() is not None:
        what = f"branch {loaded.branch()} of a table"
    # A table's own name may have such a suffix. In Spark 4.1 every table has a snapshot.
    elif (travel := _TIME_TRAVEL.fullmatch(last)) and not str(loaded.table().name()).lower().endswith(
        f".{last}".lower()
    ):
        is_tag = travel.group(1) == "tag"
        what = f"{last.replace('_', ' ', 1)} of a table" if is_tag else "an older snapshot of a table"
    elif java_class(spark, "org.apache.iceberg.BaseMetadataTable").isInstance(loaded.table()):
        what = f"the metadata table {last} of a table"
    else:
        return
    raise OtherFormatError(f"{name} is {what}, and only branches can be reclustered: name {base}, {_BY_ARGUMENT}")


def _check_is_iceberg(spark: SparkSession, plugin: Any) -> Any:
    if not java_class(spark, "org.apache.iceberg.spark.source.HasIcebergCatalog").isInstance(plugin):
        raise CatalogNotFoundError(f"catalog {plugin.name()} is not one of Iceberg's but {plugin.getClass().getName()}")
    return plugin


def _namespaces(spark: SparkSession, plugin: Any, parent: Parts) -> Iterator[Parts]:
    for parts in plugin.listNamespaces(_java_strings(spark, parent)) if parent else plugin.listNamespaces():
        namespace = tuple(parts)
        if namespace == parent:
            continue  # a catalog without nested namespaces may return the parent
        yield namespace
        yield from _namespaces(spark, plugin, namespace)


def _tables(spark: SparkSession, catalog: str, plugin: Any, namespace: Parts) -> list[str]:
    # Spark's catalog would list views and tables of other formats too.
    levels = jvm(spark).org.apache.iceberg.catalog.Namespace.of(_java_strings(spark, namespace))
    try:
        tables = plugin.icebergCatalog().listTables(levels)
    except Exception as e:
        if namespace and is_caused_by(e, "org.apache.iceberg.exceptions.NoSuchNamespaceException"):
            return []  # dropped since it was listed
        raise
    # For its root, a catalog may list the tables of all namespaces.
    names = sorted((*table.namespace().levels(), str(table.name())) for table in java_items(tables))
    return [join_parts((catalog, *name)) for name in names]


def _root_tables(spark: SparkSession, catalog: str, plugin: Any, namespaces: Sequence[Parts]) -> list[str]:
    """Return the tables without a namespace, which most catalogs do not have."""
    try:
        return _tables(spark, catalog, plugin, ())
    except Exception as e:
        if not is_caused_by(e, *_NO_ROOT):
            raise
    prefix = f"spark.sql.catalog.{catalog}"
    kinds = {spark.conf.get(f"{prefix}.type", None), spark.conf.get(f"{prefix}.catalog-impl", None)}
    if kinds.isdisjoint(("hadoop", "org.apache.iceberg.hadoop.HadoopCatalog")):
        return []
    # Iceberg's HadoopCatalog has such tables and does not list them.
    warehouse = jvm(spark).org.apache.hadoop.fs.Path(spark.conf.get(f"{prefix}.warehouse"))
    files = warehouse.getFileSystem(java_session(spark).sessionState().newHadoopConf())
    directories = {str(status.getPath().getName()) for status in files.listStatus(warehouse) if status.isDirectory()}
    names = sorted((name,) for name in directories if (name,) not in namespaces)
    of = jvm(spark).org.apache.iceberg.catalog.TableIdentifier.of
    exists = plugin.icebergCatalog().tableExists
    return [join_parts((catalog, *name)) for name in names if exists(of(_java_strings(spark, name)))]


def _java_strings(spark: SparkSession, parts: Parts) -> Any:
    return java_array(spark, jvm(spark).java.lang.String, list(parts))
