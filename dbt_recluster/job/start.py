"""The Spark session of a job: the one that is there, or one of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

from dbt_recluster.exceptions import ReclusterError, SparkEnvironmentError
from dbt_recluster.iceberg.environment import check_session, refuse_spark_connect
from dbt_recluster.iceberg.java_errors import short_message
from dbt_recluster.iceberg.jvm import JavaStandardError
from dbt_recluster.iceberg.session.local_spark import iceberg_settings
from dbt_recluster.iceberg.session.starter import GATEWAY, outside_settings, start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's bars would be drawn over the progress of a merge.
_DEFAULTS = {"spark.app.name": "dbt-recluster", "spark.ui.showConsoleProgress": "false"}


@contextmanager
def standard_error() -> Iterator[None]:
    """Write to the standard error of spark-submit, if this was started by it."""
    if GATEWAY not in os.environ:
        yield
        return
    with redirect_stderr(JavaStandardError()):
        yield


@contextmanager
def spark_session(settings: Mapping[str, str], properties_file: Path | None = None) -> Iterator[SparkSession]:
    """Yield a session with Iceberg, and stop it at the end if it was started here.

    Args:
        settings: Spark settings. Those that load Iceberg are added to a session of our own if they are missing.
        properties_file: A file of more settings, as spark-submit takes it.

    Raises:
        SparkEnvironmentError: pyspark is missing, Spark does not start, or it lacks Iceberg.
        JavaNotFoundError: There is no Java that Spark runs on.
    """
    try:
        from pyspark import SparkContext
    except ImportError as e:
        raise SparkEnvironmentError(
            "pyspark is missing: run this through spark-submit, or pip install 'pyspark>=3.5,<4.1'"
        ) from e
    refuse_spark_connect("run this through spark-submit", {**os.environ, **settings})
    is_own = SparkContext._active_spark_context is None
    spark = _start(settings, properties_file)
    try:
        check_session(spark)
        yield spark
    finally:
        if is_own:
            spark.stop()


def _start(settings: Mapping[str, str], properties_file: Path | None) -> SparkSession:
    from pyspark import SparkContext

    if GATEWAY not in os.environ and SparkContext._active_spark_context is None:
        given = {**_DEFAULTS, **outside_settings(properties_file), **settings}
        settings = {**{name: given[name] for name in _DEFAULTS}, **settings, **iceberg_settings(given)}
    try:
        return start_spark(settings, properties_file=properties_file)
    except ReclusterError:
        raise
    except Exception as e:
        raise SparkEnvironmentError(f"Spark does not start: {short_message(e)}") from e
