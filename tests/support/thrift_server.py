"""Spark's own Thrift server, from pyspark's jars."""

import os
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import postgres
import pyspark
import pytest
from ports import HOST, free_port
from programs import serving
from runtime import iceberg_jar
from sessions import catalog_settings, of_postgres

from dbt_recluster.iceberg.session.embedded import spark_settings
from dbt_recluster.iceberg.session.local_spark import find_java_home

SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


def catalog(name: str, url: str, warehouse: Path) -> dict[str, str]:
    """Return the settings of a catalog in PostgreSQL, for the server and for the session beside it."""
    return catalog_settings(name, {**of_postgres(url), ".warehouse": warehouse.as_uri()})


class Server(NamedTuple):
    """A server with catalogs in one PostgreSQL, none of which is its default one."""

    port: int
    url: str
    warehouse: Path

    def profile(self, **more: Any) -> dict[str, Any]:
        address = {"host": HOST, "port": self.port, "user": "dbt", "poll_interval": 1}
        return {"method": "thrift", **address, "catalog": "lake", **more}

    def session(self, name: str = "lake") -> dict[str, Any]:
        """Return the settings of a Spark beside the server, with one of its catalogs as the default one."""
        return {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.extraClassPath": f"{postgres.DRIVER}:{iceberg_jar()}",
            "spark.sql.defaultCatalog": name,
            **catalog(name, self.url, self.warehouse),
        }

    def ask(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as another user would; return the rows of the last one."""
        from pyhive import hive

        with hive.connect(host=HOST, port=self.port, username="somebody") as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())


@contextmanager
def with_catalogs(directory: Path, *names: str) -> Iterator[Server]:
    """Run a server with some catalogs; skip where there is no PostgreSQL or PyHive."""
    pytest.importorskip("pyhive", reason="the thrift method needs dbt-spark[PyHive]")
    warehouse = directory / "warehouse"
    with postgres.server_or_skip() as url:
        catalogs = (catalog(name, url, warehouse) for name in names)
        with _server(directory, dict(ChainMap(*catalogs))) as port:
            yield Server(port, url, warehouse)


@contextmanager
def _server(lake: Path, settings: Mapping[str, str]) -> Iterator[int]:
    """Run a server in the directory ``lake`` with Spark settings on top of the embedded ones; yield its port."""
    home, port = Path(pyspark.__file__).parent, free_port()
    (lake / "logs").mkdir(parents=True, exist_ok=True)
    chosen = {
        **spark_settings(lake),
        "spark.driver.memory": "1g",
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraClassPath": str(iceberg_jar()),
        **settings,
    }
    conf = [word for name, value in chosen.items() for word in ("--conf", f"{name}={value}")]
    listen = [
        "--hiveconf",
        f"hive.server2.thrift.port={port}",
        "--hiveconf",
        f"hive.server2.thrift.bind.host={HOST}",
    ]
    command = [home / "bin" / "spark-submit", "--class", SERVER, *conf, "spark-internal", *listen]
    environment = {**os.environ, "JAVA_HOME": str(find_java_home()), "SPARK_HOME": str(home)}
    environment.setdefault("SPARK_DIST_CLASSPATH", str(postgres.DRIVER))
    with serving(*command, log=lake / "server.log", ports=[port], env=environment, cwd=lake):
        yield port
