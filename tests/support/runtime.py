"""The Iceberg runtime and the Java that the tests run with."""

import os
import subprocess
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import postgres

from dbt_recluster.iceberg.session import local_spark

VARIABLE = "RECLUSTER_TEST_ICEBERG_JAR"
BUILD = Path(__file__).resolve().parents[2] / "build"
# The test processes share the cores, and their jobs are short: without the JVM's second compiler and its parallel
# collector the tests take half of the processor time. The first compiler alone has room for 48 MB of code, and once
# that is full, of Spark's generated classes, a fifth of the time goes into clearing it out.
# Neither are classes verified.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
_QUICK_FILES = Path(__file__).with_name("QuickFiles.java")


def _quick_files() -> Path | None:
    """Return a jar of QuickFiles, which takes a third off tests that write many files; None without a compiler."""
    jar = BUILD / "quick-files.jar"
    compiler = Path(local_spark.find_java_home()) / "bin/javac"
    spark = find_spec("pyspark")
    if jar.exists():
        return jar
    if not compiler.exists() or spark is None or spark.origin is None:
        return None
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as directory:
        classes = str(Path(spark.origin).parent / "jars/*")
        options = ["--release", "8", "-Xlint:-options", "-cp", classes, "-d", directory]
        subprocess.run([compiler, *options, _QUICK_FILES], check=True)
        made = Path(directory) / "made.jar"
        with zipfile.ZipFile(made, "w") as archive:
            for path in Path(directory).glob("*.class"):
                archive.write(path, path.name)
        made.replace(jar)
    return jar


def spark_environment() -> dict[str, str]:
    """Return what Spark's programs find in the environment: Java's options, and jars at the end of the class path."""
    quick = _quick_files()
    options = f"{JAVA_OPTIONS} -Dspark.hadoop.fs.file.impl=QuickFiles" if quick else JAVA_OPTIONS
    jars = os.pathsep.join(map(str, filter(None, [postgres.DRIVER, quick])))
    return {"SPARK_SUBMIT_OPTS": options, "SPARK_DIST_CLASSPATH": jars}


def iceberg_jar() -> Path:
    """Return the jar that the environment names, to try another Spark and Iceberg, or the one of `embedded`."""
    return Path(jar).resolve() if (jar := os.environ.get(VARIABLE)) else local_spark.iceberg_jar(print)
