"""What a Spark session needs for clustering, and what it lacks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dbt_recluster.exceptions import SparkEnvironmentError
from dbt_recluster.iceberg.java_errors import short_message
from dbt_recluster.iceberg.jvm import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
SESSION_CATALOG = "org.apache.iceberg.spark.SparkSessionCatalog"
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
_SPARK_CONNECT = ("SPARK_REMOTE", "spark.remote", _CONNECT_MODE)
_CATALOGS = (SESSION_CATALOG, "org.apache.iceberg.spark.SparkCatalog")


def check_environment(spark: SparkSession) -> None:
    """Check that Iceberg's classes and SQL extensions are loaded and that an Iceberg catalog answers.

    Raises:
        SparkEnvironmentError: With everything that is missing, and the settings that provide it.
    """
    _raise_if_missing(_classes(spark), _extensions(spark), _catalog(spark))


def check_session(spark: SparkSession) -> None:
    """Check that Iceberg's classes and SQL extensions are loaded, whatever the catalogs are.

    Raises:
        SparkEnvironmentError: With everything that is missing, and the settings that provide it.
    """
    _raise_if_missing(_classes(spark), _extensions(spark))


def refuse_spark_connect(otherwise: str, settings: Mapping[str, str] = os.environ) -> None:
    """Refuse to start a session where pyspark would connect to a Spark elsewhere instead.

    Args:
        otherwise: What the user can do instead of turning Spark Connect off.
        settings: The environment, and Spark settings.

    Raises:
        SparkEnvironmentError: Spark Connect is on.
    """
    name = next((name for name in _SPARK_CONNECT if name in settings), None)
    if name is None:
        return
    address = "" if name == _CONNECT_MODE else settings[name].partition("/;")[0]  # a token may follow
    raise SparkEnvironmentError(
        f"{name} is set{' to ' if address else ''}{address}, so pyspark connects to that Spark by Spark Connect, which "
        f"has no way to the JVM that reclustering needs. Unset it, or {otherwise}"
    )


def uses_session_catalog(spark: SparkSession) -> bool:
    """Whether the current catalog is Iceberg's session catalog, which also holds other tables and views."""
    name = spark.catalog.currentCatalog()
    return spark.conf.get(f"spark.sql.catalog.{name}", "") == SESSION_CATALOG


def _raise_if_missing(*problems: str | None) -> None:
    missing = [problem for problem in problems if problem]
    if missing:
        raise SparkEnvironmentError(
            "This Spark session lacks what clustering needs:\n" + "\n".join(f"- {m}" for m in missing)
        )


def _classes(spark: SparkSession) -> str | None:
    version = spark.version.rsplit(".", 1)[0]
    try:
        java_class(spark, "org.apache.iceberg.spark.Spark3Util")
    except Exception:
        return (
            "Iceberg's classes are not loaded. Put the jar iceberg-spark-runtime for Spark "
            f"{version} on spark.jars, or its coordinates on spark.jars.packages"
        )
    return None


def _extensions(spark: SparkSession) -> str | None:
    if EXTENSIONS not in str(spark.conf.get("spark.sql.extensions", "")):
        return f"Iceberg's SQL extensions are not loaded. Start the session with spark.sql.extensions={EXTENSIONS}"
    return None


def _catalog(spark: SparkSession) -> str | None:
    name = str(spark.conf.get("spark.sql.defaultCatalog", "spark_catalog"))
    implementation = str(spark.conf.get(f"spark.sql.catalog.{name}", ""))
    if implementation not in _CATALOGS:
        actual = implementation or "Spark's built-in one"
        return (
            f"the default catalog {name} is {actual}, which holds no Iceberg tables. Set spark.sql.catalog.{name} to "
            f"{_CATALOGS[0]}, or spark.sql.defaultCatalog to a catalog of {_CATALOGS[1]}"
        )
    try:
        spark.sql("show namespaces").collect()
    except Exception as e:
        return f"the catalog {name} does not answer: {short_message(e)}"
    return _metastore_locks(spark, name)


def _metastore_locks(spark: SparkSession, catalog: str) -> str | None:
    """A metastore inside the session, on Derby, has no lock tables, and Iceberg's first commit would wait forever."""
    prefix = f"spark.sql.catalog.{catalog}."
    if str(spark.conf.get(f"{prefix}type", "")).lower() != "hive" or spark.conf.get(f"{prefix}uri", ""):
        return None
    # This includes hive-site.xml and the session's spark.hadoop.* settings.
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    setting = "iceberg.engine.hive.lock-enabled"
    if hadoop.get("hive.metastore.uris", "") or hadoop.get(setting, "true").lower() == "false":
        return None
    return (
        f"the catalog {catalog} has a Hive metastore of its own in this session, which cannot lock tables. Set "
        f"spark.hadoop.hive.metastore.uris to a metastore server, or spark.hadoop.{setting} to false where no other "
        "process writes"
    )
