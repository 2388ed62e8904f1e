"""The supported versions of Spark, and the differences between Iceberg's modules for them, one method each.

Writing without a commit needs no difference: the module for Spark 4.1 knows a rewrite by the table's name in its cache
and ignores the option by which the others know it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.java_functions import JavaFunctions
from dbt_recluster.iceberg.session.jvm import java_class, java_list, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

# Each supported version of Spark, with its most tested release of Iceberg.
ICEBERG_RELEASES = {"3.5": "1.10.2", "4.0": "1.10.2", "4.1": "1.12.0"}
_PACKAGE = "org.apache.iceberg.spark"


class SparkModule:
    """Iceberg's module for Spark 3.5 and 4.0."""

    # The names of a hidden method of Iceberg's scans.
    _FILTERS = ("filterExpressions", "filters")

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @classmethod
    def of(cls, spark: SparkSession) -> SparkModule:
        """Return the module in a session's jar."""
        from py4j.protocol import Py4JJavaError

        def find() -> type[SparkModule]:
            try:
                java_class(spark, f"{_PACKAGE}.SparkRewriteTableCatalog")  # only in the module for Spark 4.1
            except Py4JJavaError:
                return cls
            return _SparkModuleByNames

        return jvm(spark).remember(("module",), find)(spark)

    @contextmanager
    def staged_rows(
        self, table: str, set_id: str, options: Mapping[str, str]
    ) -> Iterator[tuple[DataFrame, Any]]:
        """Read a staged set of a table's files; yield the rows and their Java schema."""
        # load(), not table(): on v3 tables the latter drops the row ids silently.
        reader = self._spark.read.format("iceberg").options(**options)
        frame = reader.option("scan-task-set-id", set_id).load(table)
        relation = frame._jdf.queryExecution().analyzed().collectLeaves().head()
        yield frame, relation.table().table().schema()

    def filters(self, scan: Any) -> Any:
        """Return the Java list of a scan's filters, for which Iceberg has no public method."""
        return self._call_hidden(f"{_PACKAGE}.source.SparkScan", scan, *self._FILTERS)

    def clean_up(self, transaction: Any) -> None:
        """Delete the manifests of a transaction that is not committed; Iceberg does so only if a commit is refused."""
        names = ("cleanUp", "cleanUpOnCommitFailure")  # the latter before Iceberg 1.11
        try:
            self._call_hidden("org.apache.iceberg.BaseTransaction", transaction, *names)
        except Exception as e:  # manifests are small, and the caller raises its own error
            logger.warning("manifests that are not used may be left behind: %s", short_message(e))

    def _call_hidden(self, owner: str, instance: Any, *names: str) -> Any:
        method = JavaFunctions(self._spark).hidden_method(owner, *names)
        return method.invokeWithArguments(java_list(self._spark, [instance]))


class _SparkModuleByNames(SparkModule):
    """Iceberg's module for Spark 4.1, which reads a staged set by its id as a table name (apache/iceberg#15301)."""

    @contextmanager
    def staged_rows(
        self, table: str, set_id: str, options: Mapping[str, str]
    ) -> Iterator[tuple[DataFrame, Any]]:
        """Read a staged set through the table as it is in the catalog now."""
        load = jvm(self._spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable
        read = load(self._spark._jsparkSession, table)
        with cached_table(self._spark, set_id, read):
            yield self._spark.read.format("iceberg").options(**options).load(set_id), read.schema()


@contextmanager
def cached_table(spark: SparkSession, name: str, table: Any) -> Iterator[None]:
    """Have Iceberg resolve a name to this table, as its own rewrites do, instead of asking a catalog."""
    # By reflection, since py4j confuses the static `get` with the one that has an argument.
    tables = java_class(spark, f"{_PACKAGE}.SparkTableCache").getMethod("get", None).invoke(None, None)
    tables.add(name, table)
    try:
        yield
    finally:
        tables.remove(name)
