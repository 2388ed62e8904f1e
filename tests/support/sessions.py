"""Spark sessions on a catalog named ``lake`` that several processes share: a directory, or PostgreSQL."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import postgres
from runtime import iceberg_jar

from dbt_recluster.iceberg.session.embedded import spark_settings
from dbt_recluster.iceberg.session.local_spark import find_java_home

# Tables that other processes write to are read anew.
UNCACHED = {".cache-enabled": "false"}


def open_session(directory: Path, catalog: Mapping[str, str], settings: Mapping[str, str] | None = None) -> Any:
    """Return this process's session.

    Args:
        directory: Where the warehouse and the logs of the process go.
        catalog: The settings that say what kind of catalog it is (:func:`of_directory`, :func:`of_postgres`).
        settings: Spark settings instead of those of two local cores and 1.5 GB.
    """
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ.setdefault("SPARK_DIST_CLASSPATH", str(postgres.DRIVER))
    of_embedded = spark_settings(directory / f"spark-{os.getpid()}")
    chosen = {
        **{k: v for k, v in of_embedded.items() if not k.startswith(("spark.sql.catalog", "spark.hadoop"))},
        "spark.driver.memory": "1500m",
        "spark.driver.extraClassPath": str(iceberg_jar()),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.defaultCatalog": "lake",
        **catalog_settings("lake", {".warehouse": (directory / "warehouse").as_uri(), **UNCACHED, **catalog}),
        **(settings or {}),
    }
    return SparkSession.builder.config(map=chosen).getOrCreate()


def open_quietly(directory: Path, settings: Mapping[str, str]) -> None:
    """Open the session of a worker process; what it and its JVM print goes to a file."""
    with (directory / f"printed-{os.getpid()}").open("w") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    open_session(directory, {}, settings)


def catalog_settings(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark settings of a catalog of Iceberg."""
    chosen = {"": "org.apache.iceberg.spark.SparkCatalog", **settings}
    return {f"spark.sql.catalog.{name}{setting}": value for setting, value in chosen.items()}


def hadoop_lake(directory: Path) -> dict[str, str]:
    """Return the Spark settings of a catalog ``lake`` in a directory that need not exist yet."""
    return catalog_settings("lake", {**of_directory(), ".warehouse": directory.as_uri()})


def of_directory() -> dict[str, str]:
    """A catalog that is a directory (Iceberg's HadoopCatalog)."""
    return {".type": "hadoop"}


def of_postgres(url: str) -> dict[str, str]:
    """Iceberg's JdbcCatalog in the database at ``url``, a JDBC one."""
    return {
        ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        ".uri": url,
        ".jdbc.user": "postgres",
        ".jdbc.schema-version": "V1",
    }


def of_rest(uri: str) -> dict[str, str]:
    """Iceberg's REST catalog at an address, with tables on the local disk."""
    return {".type": "rest", ".uri": uri, ".io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}


def random_rows(spark: Any, start: int, end: int, row_bytes: int, files: int) -> Any:
    """Return rows of a random key ``k`` and ``row_bytes`` of random bytes ``v``, in so many partitions.

    They are hashes, of 8 bytes each, of the row's number: no encoding makes them smaller, and they are the same when a
    task is run again.
    """
    parts = ", ".join(f"unhex(lpad(hex(xxhash64(id, {i})), 16, '0'))" for i in range(row_bytes // 8))
    frame = spark.range(start, end, numPartitions=files)
    return frame.selectExpr("xxhash64(id) k", f"concat({parts}) v")


def checksum(spark: Any, table: str) -> tuple[int, int]:
    """Return the count of all rows and a checksum that does not depend on their order."""
    row = spark.sql(f"select count(*), sum(cast(xxhash64(*) as decimal(38, 0))) from {table}").first()
    return int(row[0]), int(row[1] or 0)
