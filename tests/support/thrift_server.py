"""Spark's own Thrift server, from pyspark's jars."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import postgres
from ports import HOST, free_port
from runtime import iceberg_jar
from sessions import of_postgres

from dbt_recluster.adapter.session import spark_settings
from dbt_recluster.iceberg.session.local_spark import find_java_home

SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


def catalog(name: str, url: str, warehouse: Path) -> dict[str, str]:
    """Return the settings of a catalog in PostgreSQL, for the server and for the session beside it."""
    prefix = f"spark.sql.catalog.{name}"
    settings = {**of_postgres(url), ".warehouse": warehouse.as_uri()}
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}{key}": value for key, value in settings.items()},
    }


def ask(port: int, *statements: str) -> list[tuple[object, ...]]:
    """Run statements as another user would; return the rows of the last one."""
    from pyhive import hive

    with hive.connect(host=HOST, port=port, username="somebody") as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


@contextmanager
def server(lake: Path, settings: Mapping[str, str]) -> Iterator[int]:
    """Run a server in the directory ``lake`` with Spark settings on top of the embedded ones; yield its port."""
    import pyspark

    home = Path(pyspark.__file__).parent
    (lake / "logs").mkdir(parents=True, exist_ok=True)
    port = free_port()
    chosen = {
        **spark_settings(lake),
        "spark.driver.memory": "1g",
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraClassPath": str(iceberg_jar()),
        **settings,
    }
    command = [str(home / "bin" / "spark-submit"), "--class", SERVER]
    for name, value in chosen.items():
        command += ["--conf", f"{name}={value}"]
    command += ["spark-internal", "--hiveconf", f"hive.server2.thrift.port={port}"]
    command += ["--hiveconf", f"hive.server2.thrift.bind.host={HOST}"]
    environment = {**os.environ, "JAVA_HOME": str(find_java_home()), "SPARK_HOME": str(home)}
    environment.setdefault("SPARK_DIST_CLASSPATH", str(postgres.DRIVER))
    log = lake / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=lake)
        try:
            _wait(port, process, log)
            yield port
        finally:
            process.terminate()
            process.wait(timeout=30)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.5)
    raise AssertionError(f"the Thrift server did not start: {log.read_text()[-2000:]}")
