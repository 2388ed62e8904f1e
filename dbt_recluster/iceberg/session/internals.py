"""The private and internal members of Spark and Iceberg that the package uses, and the access to hidden ones.

tests/iceberg/test_internals.py checks each on every supported pair of versions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbt_recluster.iceberg.session.jvm import SparkSession, java_class, jvm
from dbt_recluster.iceberg.session.redaction import short_message

logger = logging.getLogger(__name__)

# Owner (below org.apache, or in pyspark) -> its members (alternatives by version after a slash), and what breaks
# without them.
MEMBERS: dict[str, tuple[str, str]] = {
    "iceberg.BaseMetadataTable": ("", "metadata tables are taken for tables"),
    "iceberg.BaseTable": ("operations", "no table is reclustered"),
    "iceberg.BaseTransaction": ("cleanUp/cleanUpOnCommitFailure", "manifests of a failed commit are left behind"),
    "iceberg.CatalogUtil": ("deleteFiles", "no orphan file is deleted"),
    "iceberg.GenericStatisticsFile": ("", "no round is committed to a table with statistics"),
    "iceberg.MetadataTableUtils": ("createMetadataTableInstance", "no blocks are read"),
    "iceberg.MetricsConfig": ("columnMode forTable", "no key is checked"),
    "iceberg.Partitioning": ("partitionType", "no changed partition is found"),
    "iceberg.ReachableFileUtil": (
        "manifestListLocations metadataFileLocations statisticsFilesLocations versionHintLocation",
        "no orphan file is found",
    ),
    "iceberg.SingleValueParser": ("toJson", "no blocks are read"),
    "iceberg.StaticTableOperations": ("current", "files that an expiry would delete are not counted"),
    "iceberg.TableMetadataParser": ("read", "files of a table that its catalog does not list are taken for orphans"),
    "iceberg.avro.AvroSchemaUtil": ("makeCompatibleName", "columns with odd names are not written natively"),
    "iceberg.data.BaseDeleteLoader": ("loadPositionDeletes", "blocks with deletes are not written natively"),
    "iceberg.inmemory.InMemoryInputFile": ("newStream", "no block is written natively"),
    "iceberg.parquet.ParquetUtil": ("fileMetrics", "no block is written natively"),
    "iceberg.relocated.com.google.common.base.Joiner": ("join on useForNull", "no blocks are read"),
    "iceberg.relocated.com.google.common.base.Splitter": ("on splitToList", "no table is loaded"),
    "iceberg.relocated.com.google.common.collect.Lists": ("newArrayList", "no blocks are read"),
    "iceberg.relocated.com.google.common.io.ByteStreams": ("limit", "no event log is imported"),
    "iceberg.spark.FileRewriteCoordinator": ("clearRewrite fetchNewFiles fetchSetIds get", "Spark merges nothing"),
    "iceberg.spark.ScanTaskSetManager": ("get removeTasks stageTasks", "no merge reads its files"),
    "iceberg.spark.Spark3Util": ("catalogAndIdentifier describe loadIcebergTable", "no table is loaded"),
    "iceberg.spark.SparkTableCache": ("add get remove", "Spark merges nothing"),
    "iceberg.spark.SparkTableUtil": ("loadMetadataTable", "no orphan file is found"),
    "iceberg.spark.source.HasIcebergCatalog": ("icebergCatalog", "no table of a catalog is listed"),
    "iceberg.spark.source.SparkScan": ("filters/filterExpressions", "no query gives reads"),
    "iceberg.spark.source.SparkTable": ("branch table", "no table is loaded"),
    "iceberg.spark.source.SparkWrite": ("queryId", "files of a failed write are left behind"),
    "iceberg.util.ContentFileUtil": ("isFileScoped", "no merge of blocks with deletes is committed"),
    "iceberg.util.JsonUtil": ("mapper", "no properties and snapshots are read"),
    "iceberg.util.SnapshotUtil": ("isAncestorOf", "no changed partition is found"),
    "iceberg.util.StructLikeWrapper": ("copyFor forType", "no merge is verified"),
    "spark.SparkContext": ("listenerBus statusStore", "files of a failed write are left behind"),
    "spark.SparkStatusTracker": ("getJobIdsForTag", "no progress, and files of a failed write are left behind"),
    "spark.deploy.history.EventLogFileReader": ("apply openEventLog", "no event log is imported"),
    "spark.network.util.JavaUtils": ("byteStringAsMb", "no block is written natively on a cluster"),
    "spark.scheduler.LiveListenerBus": ("waitUntilEmpty", "files of a failed write are left behind"),
    "spark.sql.catalyst.plans.logical.AppendData": ("write writeOptions", "files of a failed write are left behind"),
    "spark.sql.catalyst.plans.logical.LogicalPlan": ("collectLeaves subqueriesAll", "no query gives reads"),
    "spark.sql.catalyst.trees.TreePattern": ("COMMAND PLAN_EXPRESSION", "no predicate chooses blocks"),
    "spark.sql.execution.CommandExecutionMode": ("SKIP", "no query is planned"),
    "spark.sql.execution.QueryExecution": ("analyzed observedMetrics optimizedPlan toRdd", "no query is planned"),
    "spark.sql.execution.datasources.SparkExpressionConverter": (
        "collectResolvedSparkExpression convertToIcebergExpression",
        "no predicate chooses blocks",
    ),
    "spark.sql.execution.datasources.v2.DataSourceV2ScanRelation": ("relation scan", "no query gives reads"),
    "spark.sql.internal.SessionState": ("catalogManager executePlan newHadoopConf sqlParser", "no table is found"),
    "spark.status.AppStatusStore": ("lastStageAttempt taskList", "files of a failed write are left behind"),
    "pyspark.SparkContext": (
        "_active_spark_context _ensure_initialized _gateway _jsc _jvm _lock",
        "no Spark is started",
    ),
    "pyspark.cloudpickle": ("register_pickle_by_value", "no block is written natively"),
    "pyspark.errors.exceptions.captured.CapturedException": ("_origin", "conflicts are taken for other errors"),
    "pyspark.find_spark_home": ("_find_spark_home", "no Spark is started"),
    "pyspark.java_gateway": ("launch_gateway", "no Spark is started"),
    "pyspark.sql.DataFrame": ("_jdf _collect_as_arrow/toArrow", "no rows are read"),
    "pyspark.sql.SparkSession": ("_jsparkSession _jvm", "no table is loaded"),
    "pyspark.sql.pandas.types": ("to_arrow_schema", "no rows are read"),
}


def reads_sets_by_name(spark: SparkSession) -> bool:
    """Whether Iceberg reads a staged set by its id as a table name, as for Spark 4.1 (apache/iceberg#15301).

    Otherwise an option names it. For writing all modules look the name up in the cache, and some need the option too.
    """
    from py4j.protocol import Py4JJavaError

    def look_up() -> bool:
        try:
            _class(spark, "iceberg.spark.SparkRewriteTableCatalog")
        except Py4JJavaError:
            return False
        return True

    return jvm(spark).remember(("sets by name",), look_up)


def scan_filters(spark: SparkSession, scan: Any) -> Any:
    """Return the Java list of a scan's filters."""
    return _hidden_method(spark, "iceberg.spark.source.SparkScan").invoke(scan, None)


def clean_up(spark: SparkSession, transaction: Any) -> None:
    """Delete the manifests of a transaction that is not committed; Iceberg does so only if a commit is refused."""
    try:
        _hidden_method(spark, "iceberg.BaseTransaction").invoke(transaction, None)
    except Exception as e:  # manifests are small, and the caller raises its own error
        logger.warning("manifests that are not used may be left behind: %s", short_message(e))


def query_id(spark: SparkSession, write: Any) -> str:
    """Return the id that Spark gave to the query of a write, which the names of its files contain."""
    field = _class(spark, "iceberg.spark.source.SparkWrite").getDeclaredField("queryId")
    field.setAccessible(True)
    return str(field.get(write))


@contextmanager
def cached_table(spark: SparkSession, name: str, table: Any) -> Iterator[None]:
    """Have Iceberg resolve a name to this table, as its own rewrites do, instead of asking a catalog."""
    # By reflection, since py4j confuses the static `get` with the one that has an argument.
    tables = _class(spark, "iceberg.spark.SparkTableCache").getMethod("get", None).invoke(None, None)
    tables.add(name, table)
    try:
        yield
    finally:
        tables.remove(name)


def _class(spark: SparkSession, name: str) -> Any:
    return java_class(spark, f"org.apache.{name}")


def _hidden_method(spark: SparkSession, owner: str) -> Any:
    """Return the only one of the `MEMBERS` of a class, a method that is not public."""
    names, _ = MEMBERS[owner]

    def look_up() -> Any:
        declared = {str(method.getName()) for method in _class(spark, owner).getDeclaredMethods()}
        first, *others = names.split("/")
        name = next(filter(declared.__contains__, others), first)
        method = _class(spark, owner).getDeclaredMethod(name, None)
        method.setAccessible(True)
        return method

    return jvm(spark).remember(("hidden", owner, names), look_up)
