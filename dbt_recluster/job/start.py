"""The Spark session of a job: the one that is there, or one of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

from dbt_recluster.iceberg.session.environment import check_session, refuse_spark_connect
from dbt_recluster.iceberg.session.jvm import JavaStandardError
from dbt_recluster.iceberg.session.local_spark import DEFAULTS, iceberg_settings
from dbt_recluster.iceberg.session.starter import GATEWAY, is_running, outside_settings, start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    is_own = not is_running()
    refuse_spark_connect("run this through spark-submit", {**os.environ, **settings})
    if is_own and GATEWAY not in os.environ:
        given = {**DEFAULTS, **outside_settings(properties_file), **settings}
        settings = {**{name: given[name] for name in DEFAULTS}, **settings, **iceberg_settings(given)}
    spark = start_spark(settings, properties_file=properties_file)
    try:
        check_session(spark)
        yield spark
    finally:
        if is_own:
            spark.stop()
