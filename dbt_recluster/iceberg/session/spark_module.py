"""What Iceberg's modules for Spark do differently, in one object.

The same calls write without a commit on all of them: the table's name is in the cache, which is how the module for
Spark 4.1 knows a rewrite, and the option by which the others know it is passed over there.
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

_PACKAGE = "org.apache.iceberg.spark"


class SparkModule:
    """Iceberg's module for Spark 3.5 and 4.0."""

    # The hidden method of Iceberg's scans.
    _FILTERS = "filterExpressions"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @classmethod
    def of(cls, spark: SparkSession) -> SparkModule:
        """Return the module in a session's jar, known by a class that only the one for Spark 4.1 has."""
        from py4j.protocol import Py4JJavaError

        def find() -> type[SparkModule]:
            try:
                java_class(spark, f"{_PACKAGE}.SparkRewriteTableCatalog")
            except Py4JJavaError:
                return cls
            return _SparkModuleByNames

        return jvm(spark).remember(("module",), find)(spark)

    @contextmanager
    def staged_rows(
        self, table: str, set_id: str, options: Mapping[str, str]
    ) -> Iterator[tuple[DataFrame, Any]]:
        """Read a staged set of a table's files; yield the rows, and the Java schema that names their columns."""
        # load(), not table(): on v3 tables the latter drops the row ids silently.
        frame = self._reader(options).option("scan-task-set-id", set_id).load(table)
        relation = frame._jdf.queryExecution().analyzed().collectLeaves().head()
        yield frame, relation.table().table().schema()

    def filters(self, scan: Any) -> Any:
        """Return the Java list of the filters of a scan. Iceberg has no public way to them."""
        functions = JavaFunctions(self._spark)
        method = functions.hidden_method(f"{_PACKAGE}.source.SparkScan", self._FILTERS)
        return method.invokeWithArguments(java_list(self._spark, [scan]))

    def clean_up(self, transaction: Any) -> None:
        """Delete the manifests of a transaction that is not sent; Iceberg does it only for one that is refused."""
        names = ("cleanUp", "cleanUpOnCommitFailure")  # since Iceberg 1.11, and before
        try:
            clean_up = JavaFunctions(self._spark).hidden_method("org.apache.iceberg.BaseTransaction", *names)
            clean_up.invokeWithArguments(java_list(self._spark, [transaction]))
        except Exception as e:  # they cost little, and the caller has an error of its own
            logger.warning("manifests that are not used may be left behind: %s", short_message(e))

    def _reader(self, options: Mapping[str, str]) -> Any:
        return self._spark.read.format("iceberg").options(**options)


class _SparkModuleByNames(SparkModule):
    """Iceberg's module for Spark 4.1, where the id of a staged set is the name of a table (apache/iceberg#15301)."""

    _FILTERS = "filters"

    @contextmanager
    def staged_rows(
        self, table: str, set_id: str, options: Mapping[str, str]
    ) -> Iterator[tuple[DataFrame, Any]]:
        """Read a staged set through the table as the catalog has it now."""
        load = jvm(self._spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable
        read = load(self._spark._jsparkSession, table)
        with cached_table(self._spark, set_id, read):
            yield self._reader(options).load(set_id), read.schema()


@contextmanager
def cached_table(spark: SparkSession, name: str, table: Any) -> Iterator[None]:
    """Have Iceberg take the table of this name from here, as for rewrites of its own, and not from a catalog."""
    # py4j takes the static `get` for the other one, which has an argument.
    tables = java_class(spark, f"{_PACKAGE}.SparkTableCache").getMethod("get", None).invoke(None, None)
    tables.add(name, table)
    try:
        yield
    finally:
        tables.remove(name)
