"""Checks of a session before clustering: Spark's version, Iceberg's classes and extensions, the catalog."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib import metadata

from dbt_recluster.exceptions import SparkEnvironmentError
from dbt_recluster.iceberg.session.jvm import SparkSession, java_class, java_session
from dbt_recluster.iceberg.session.redaction import is_caused_by, short_message
from dbt_recluster.key.columns import quote

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
SESSION_CATALOG = "org.apache.iceberg.spark.SparkSessionCatalog"
DEFAULT_CATALOG = "spark.sql.defaultCatalog"
ICEBERG_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
SPARK_CONNECT = ("SPARK_REMOTE", "spark.remote", _CONNECT_MODE)
# The name of the runtime's jar has the versions of Spark and Scala.
RUNTIME = re.compile(r"iceberg-spark-runtime-(\d+\.\d+)_\d+\.\d+")
# The most tested runtime of Iceberg for each supported version of Spark, and the SHA-256 of its jar.
RUNTIMES = {
    "iceberg-spark-runtime-3.5_2.12-1.10.2": "c562d482dcd16b666e808b755469fbc4b2604284b41622c9d87e2c02b7cc6c5f",
    "iceberg-spark-runtime-4.0_2.13-1.10.2": "7124a5da756f69c815f3f778691167ed00dfd813dde2c26025278aa35f35abb8",
    "iceberg-spark-runtime-4.1_2.13-1.12.0": "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
}
# The releases of Iceberg by version of Spark.
ICEBERG_RELEASES = {RUNTIME.findall(name)[0]: name.rpartition("-")[2] for name in RUNTIMES}


@cache
def package_version() -> str:
    """Return the version of this package."""
    try:  # not from the module that has it, which imports dbt
        return metadata.version("dbt-recluster")
    except metadata.PackageNotFoundError:
        return "of an unknown version: the package is not installed, only unpacked"


def require_pyspark() -> None:
    """Raise a SparkEnvironmentError that says what to install if pyspark is missing."""
    try:
        import pyspark  # noqa: F401
    except ImportError as e:
        raise SparkEnvironmentError(
            "pyspark is missing: pip install 'dbt-recluster[embedded]' brings Spark, Iceberg and Java; for a Spark of "
            "your own, install its version of pyspark"
        ) from e


def check_environment(spark: SparkSession, catalog: str | None = None, *, any_catalog: bool = False) -> None:
    """Check Spark's version, Iceberg's classes and SQL extensions, and unless ``any_catalog`` that ``catalog`` answers.

    The catalog is the default one if None. A SparkEnvironmentError names an unsupported version, or each missing part
    and the settings that provide it.
    """
    check_version(spark)
    problems = [_classes(spark), None if any_catalog else _catalog(spark, catalog)]
    if EXTENSIONS not in str(spark.conf.get("spark.sql.extensions", "")):
        settings = f"Start the session with spark.sql.extensions={EXTENSIONS}"
        problems.insert(1, f"Iceberg's SQL extensions are not loaded. {settings}")
    if missing := [f"- {problem}" for problem in problems if problem]:
        raise SparkEnvironmentError("\n".join(["This Spark session lacks what clustering needs:", *missing]))


def check_has_jvm(spark: SparkSession) -> None:
    """Raise a SparkEnvironmentError unless ``spark`` is a session with a JVM."""
    if not hasattr(spark, "_jsparkSession"):
        raise SparkEnvironmentError(
            f"spark must be a SparkSession of this process, not {spark!r:.60}. For Spark Connect, run the command "
            "dbt-recluster on a driver with a JVM"
        )


def check_version(spark: SparkSession) -> None:
    """Refuse an unsupported version of Spark before its first statement fails."""
    check_has_jvm(spark)
    if _minor(version := str(spark.version)) not in ICEBERG_RELEASES:
        *others, last = ICEBERG_RELEASES
        raise SparkEnvironmentError(
            f"Spark {version} is not supported: dbt-recluster runs on Spark {', '.join(others)} and {last}, and "
            f"Iceberg {_minor(ICEBERG_RELEASES[last])} on none after {last}. Nothing was changed"
        )


def wrong_runtime(jar: str, spark_version: str) -> str | None:
    """Return an error message if an Iceberg runtime is for another Spark, by its name, or None."""
    name = jar.rpartition("/")[2]
    match = RUNTIME.search(name)
    spark_minor = _minor(spark_version)
    if match is None or match.group(1) == spark_minor:
        return None
    return (
        f"This Iceberg runtime is for Spark {match.group(1)}, and the session's Spark is {spark_version}. Put "
        f"iceberg-spark-runtime-{spark_minor} in the place of {name}"
    )


def refuse_spark_connect(otherwise: str, settings: Mapping[str, str] = os.environ) -> None:
    """Raise a SparkEnvironmentError if pyspark would use Spark Connect; users can turn it off or do ``otherwise``."""
    for name in filter(settings.__contains__, SPARK_CONNECT):
        # Without user, password, path and parameters, which may be secret.
        host = re.sub(r"([^/?;]*://)?(?:[^/?;]*@)?([^/?;]*).*", r"\1\2", settings[name], flags=re.DOTALL)
        what = "set" if name == _CONNECT_MODE else f"set to {host}"
        raise SparkEnvironmentError(
            f"{name} is {what}, so pyspark connects to that Spark by Spark Connect, which has no way to the JVM "
            f"that reclustering needs. Unset it, or {otherwise}"
        )


def _classes(spark: SparkSession) -> str | None:
    version = _minor(str(spark.version))
    try:
        # This class depends on neither Spark nor Scala, so it loads from any runtime.
        source = java_class(spark, "org.apache.iceberg.Table").getProtectionDomain().getCodeSource()
        jar = str(source.getLocation().toString())
    except Exception:
        return (
            "Iceberg's classes are not loaded. Put the jar iceberg-spark-runtime for Spark "
            f"{version} on spark.jars, or its coordinates on spark.jars.packages"
        )
    if problem := wrong_runtime(jar, str(spark.version)):
        return problem
    try:
        java_class(spark, "org.apache.iceberg.spark.Spark3Util")
    except Exception as e:
        return f"Iceberg's classes are not those of a runtime for Spark {version}: {short_message(e)}"
    return None


def _minor(version: str) -> str:
    """Return the first two numbers of a version."""
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else version


def _catalog(spark: SparkSession, catalog: str | None) -> str | None:
    name = catalog or str(spark.conf.get(DEFAULT_CATALOG, "spark_catalog"))
    implementation = str(spark.conf.get(f"spark.sql.catalog.{name}", ""))
    if implementation not in (SESSION_CATALOG, ICEBERG_CATALOG):
        actual = implementation or "Spark's built-in one"
        which, kind = ("catalog", ICEBERG_CATALOG) if catalog else ("default catalog", SESSION_CATALOG)
        return (
            f"the {which} {name} is {actual}, which holds no Iceberg tables. Set spark.sql.catalog.{name} to {kind}, "
            f"or `catalog` in the profile to a catalog of {ICEBERG_CATALOG}"
        )
    try:
        spark.sql(f"show namespaces in {quote(name)}").collect()
    except Exception as e:
        # A Hadoop catalog's directory is created with its first table.
        if not is_caused_by(e, "org.apache.iceberg.exceptions.NoSuchNamespaceException"):
            return f"the catalog {name} does not answer: {short_message(e)}"
    return _metastore_locks(spark, name)


def _metastore_locks(spark: SparkSession, catalog: str) -> str | None:
    """Return an error message if the metastore is on Derby in this session, where a lock would never be granted."""
    prefix = f"spark.sql.catalog.{catalog}."
    if str(spark.conf.get(f"{prefix}type", "")).lower() != "hive" or spark.conf.get(f"{prefix}uri", ""):
        return None
    # With hive-site.xml and the session's spark.hadoop.* settings.
    hadoop = java_session(spark).sessionState().newHadoopConf()
    setting = "iceberg.engine.hive.lock-enabled"
    if hadoop.get("hive.metastore.uris", "") or hadoop.get(setting, "true").lower() == "false":
        return None
    return (
        f"the catalog {catalog} has a Hive metastore of its own in this session, which cannot lock tables. Set "
        f"spark.hadoop.hive.metastore.uris to a metastore server, or spark.hadoop.{setting} to false where no other "
        "process writes"
    )
