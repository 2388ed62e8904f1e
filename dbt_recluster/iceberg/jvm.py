"""The way from Python into Spark's JVM, and the end of it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jvm(spark: SparkSession) -> Any:
    """Return the root of the JVM's packages: ``jvm(spark).java.util.ArrayList()``."""
    return spark._jvm


def activate(spark: SparkSession) -> None:
    """Make ``spark`` the active session of this thread.

    Spark's SQL does so by itself. Java classes called directly read the configuration of the thread's active
    session, and a thread without one sees Spark's defaults: no Iceberg catalog, for a start.
    """
    jvm(spark).org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


def java_class(spark: SparkSession, name: str) -> Any:
    """Return the ``java.lang.Class`` of this name, found where Spark finds the jars it was given."""
    java_lang = jvm(spark).java.lang
    return java_lang.Class.forName(name, True, java_lang.Thread.currentThread().getContextClassLoader())


def java_array(spark: SparkSession, element: Any, items: list[Any]) -> Any:
    """Return a Java array of ``element`` (a class reached through :func:`jvm`) with ``items`` in it."""
    array = _gateway(spark).new_array(element, len(items))
    for position, item in enumerate(items):
        array[position] = item
    return array


def is_stopped(spark: SparkSession) -> bool:
    """Whether the Spark behind a session has been stopped."""
    context = spark.sparkContext._jsc
    return context is None or bool(context.sc().isStopped())


def process_id(spark: SparkSession) -> int | None:
    """Return the process id of the JVM that pyspark started, None where something else started it."""
    process: subprocess.Popen[bytes] | None = getattr(_gateway(spark), "proc", None)
    return process.pid if process else None


def stop(spark: SparkSession, seconds: float = 15) -> None:
    """Stop Spark and wait until its JVM is gone, and with it every file and lock that it held."""
    from pyspark import SparkContext

    gateway = _gateway(spark)
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    spark.stop()
    gateway.shutdown()
    if process is not None:
        if process.stdin:
            process.stdin.close()  # the JVM ends when its standard input does
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    # pyspark keeps the dead gateway otherwise, and a later session of this process would speak to nobody.
    SparkContext._gateway = None
    SparkContext._jvm = None


def _gateway(spark: SparkSession) -> Any:
    return spark.sparkContext._gateway
