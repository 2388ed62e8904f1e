"""The Iceberg runtime and the Java that the tests run with; as a program it prints the options of Java."""

from __future__ import annotations

import os
from pathlib import Path

from dbt_recluster.iceberg.session import local_spark

VARIABLE = "RECLUSTER_TEST_ICEBERG_JAR"
# The test processes share the cores, and their jobs are short: without the JVM's second compiler and its parallel
# collector the tests take half of the processor time. The first compiler alone has room for 48 MB of code, and once
# that is full, of Spark's generated classes, a fifth of the time goes into clearing it out.
PLAIN_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m"
# `make` writes it, by class_archive.py, for the tests that start many processes.
ARCHIVE = Path(__file__).resolve().parents[2] / "build" / "spark.jsa"


def _java_options() -> str:
    """Return options for short lives: classes from the archive where there is one, and none verified."""
    archived = (
        f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off" if ARCHIVE.exists() else ""
    )
    return f"{PLAIN_JAVA_OPTIONS} -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote{archived}"


JAVA_OPTIONS = _java_options()


def iceberg_jar() -> Path:
    """Return the jar that the environment names, to try another Spark and Iceberg, or the one of the package."""
    return Path(jar).resolve() if (jar := os.environ.get(VARIABLE)) else local_spark.iceberg_jar()


if __name__ == "__main__":
    print(JAVA_OPTIONS)
