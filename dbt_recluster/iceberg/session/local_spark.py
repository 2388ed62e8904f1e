"""What Spark is started with where the user says nothing: memory, its log, Iceberg's jar and extensions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dbt_recluster.exceptions import SparkEnvironmentError
from dbt_recluster.iceberg.session.environment import EXTENSIONS

ICEBERG_JAR = "iceberg-spark-runtime-3.5_2.12-1.10.2.jar"
# Of the jar in snowpark-connect-deps-iceberg 1.0.2. A test holds the installed file against it.
ICEBERG_JAR_SHA256 = "c562d482dcd16b666e808b755469fbc4b2604284b41622c9d87e2c02b7cc6c5f"

# Spark's progress bars would be drawn over dbt's own lines, and over the progress of a merge.
DEFAULTS = {"spark.app.name": "dbt-recluster", "spark.ui.showConsoleProgress": "false"}

_EXTENSIONS = "spark.sql.extensions"
_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


def local_settings() -> dict[str, str]:
    """Return the settings of a Spark that runs on this machine alone."""
    return {
        **DEFAULTS,
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": f"{_driver_memory_mb()}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # One machine: a few partitions a core; the default of 200 spends its time on starting tasks.
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    }


def log_options(file: Path, level: str | None = None) -> str:
    """Return the Java options that send Spark's log to ``file``, or to standard error if ``level`` is given."""
    return java_properties(
        {
            "log4j2.configurationFile": Path(__file__).with_name("log4j2.properties").as_uri(),
            "recluster.log.file": file,
            "recluster.log.level": (level or "WARN").lower(),
            "recluster.log.target": "console" if level else "file",
        }
    )


def java_properties(properties: Mapping[str, object]) -> str:
    """Return the Java options that set system properties."""
    return " ".join(f'"-D{name}={value}"' for name, value in properties.items())


def iceberg_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that load Iceberg, as far as those ``given`` do not: its SQL extensions and its jar.

    The jar is that of ``dbt-recluster[embedded]``, for the Spark that it fits. None is set where Spark has one, the
    settings name one, or it is not installed.
    """
    settings: dict[str, str] = {}
    extensions = given.get(_EXTENSIONS, "")
    if EXTENSIONS not in extensions:
        settings[_EXTENSIONS] = ",".join(filter(None, (extensions, EXTENSIONS)))
    if any("iceberg" in given.get(name, "") for name in _JARS) or not _jar_fits():
        return settings
    try:
        jar = str(iceberg_jar())
    except SparkEnvironmentError:
        return settings  # check_environment names what is missing
    is_local = given.get("spark.master", "local").startswith("local")
    name, separator = ("spark.driver.extraClassPath", ":") if is_local else ("spark.jars", ",")
    settings[name] = separator.join(filter(None, (given.get(name), jar)))
    return settings


def _jar_fits() -> bool:
    """Whether the Spark of this environment is the one that the jar is for, and has none of its own."""
    try:
        import pyspark
    except ImportError:
        return False
    return f"runtime-{'.'.join(pyspark.__version__.split('.')[:2])}_" in ICEBERG_JAR and not any(
        (spark_home() / "jars").glob("iceberg-*.jar")
    )


def spark_home() -> Path:
    """Return the directory of the Spark that pyspark starts."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())  # type: ignore[no-untyped-call]


def iceberg_jar() -> Path:
    """Return the installed jar of Iceberg's Spark runtime.

    Raises:
        SparkEnvironmentError: The package that brings it is missing.
    """
    try:
        from snowpark_connect_deps_iceberg import get_jar_path
    except ImportError as e:
        raise SparkEnvironmentError(
            "`method: embedded` needs the Iceberg jars: pip install 'dbt-recluster[embedded]'"
        ) from e
    return Path(get_jar_path(ICEBERG_JAR))


def _driver_memory_mb() -> int:
    """Two fifths of the machine, between 1 and 8 GiB: the driver is the only executor."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(1024, min(8192, total * 2 // 5))
