"""dbt over Spark Connect, and the job on a driver of its own: the route of docs/guides/connections.md.

pyspark 4.0 with Connect comes from PyPI and Iceberg's runtime for it from Maven, each once; where neither can be
reached, the tests are skipped.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from dbt_command import Project, one_line
from environments import from_maven, packages
from jobs import EXTENSIONS
from ports import HOST, free_port
from programs import run, serving
from sessions import hadoop_lake

from dbt_recluster.adapter.dbt_run import JOB
from dbt_recluster.iceberg.session.local_spark import find_java_home

SPARK, ICEBERG = "4.0.5", "1.10.2"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
MODEL = """{{ config(materialized='incremental', file_format='iceberg', %s) }}
select id, pmod(hash(id, '{{ invocation_id }}'), 1000) as k, '{{ invocation_id }}' as load from range(1000)"""
LOOK = """from pyspark.sql import SparkSession
rows = SparkSession.builder.getOrCreate().sql("select count(*), bit_xor(xxhash64(*)), max(k) from lake.{}.events")
print(*rows.collect()[0])"""


class Server(NamedTuple):
    """A Connect server: the environment of its clients, and spark-submit for a driver with its catalog."""

    environment: dict[str, str]
    submit: list[str]

    def look(self, schema: str) -> str:
        command = (sys.executable, "-c", LOOK.format(schema))
        return run(*command, env={**os.environ, **self.environment}).stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    installed = packages(f"pyspark-connect-{SPARK}", f"pyspark[connect]=={SPARK}")
    jar = from_maven(f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{ICEBERG}")
    root, port = tmp_path_factory.mktemp("connect"), free_port()
    (root / "warehouse").mkdir()  # plain dbt-spark lists schemas first, an error without it
    settings = {
        "spark.jars": jar,
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.defaultCatalog": "lake",
        **hadoop_lake(root / "warehouse"),
        "spark.sql.catalog.lake.cache-enabled": "false",
    }
    file = root / "lake.conf"
    file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {
        "JAVA_HOME": str(find_java_home(SPARK)),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(installed),
        "SPARK_HOME": str(installed / "pyspark"),
    }
    submit = [str(installed / "pyspark" / "bin" / "spark-submit"), "--properties-file", str(file)]
    bind = [f"--conf=spark.connect.grpc.binding.{word}" for word in (f"port={port}", f"address={HOST}")]
    command = [*submit, "--class", SERVER, *bind, "spark-internal"]
    options = {"env": {**os.environ, **environment}, "cwd": root}
    with serving(*command, log=root / "server.log", ports=[port], **options):
        yield Server({**environment, "SPARK_REMOTE": f"sc://{HOST}:{port}"}, submit)


def test_plain_dbt_spark_builds_and_the_job_reclusters_by_the_manifest(server: Server, tmp_path: Path) -> None:
    target = {"type": "spark", "method": "session", "host": "none", "schema": "plain"}
    model = MODEL % "meta={'recluster': {'cluster_by': 'k', 'depth': 1, 'block_rows': 500}}"
    project = Project(tmp_path / "p", target, {"events.sql": model})
    for _ in range(2):
        project.succeed("run", **server.environment)
    before = server.look("plain")
    words = [
        *server.submit,
        JOB,
        "recluster",
        "--manifest",
        "target/manifest.json",
        "--catalog",
        "lake",
        "--json",
    ]
    alone = {name: value for name, value in server.environment.items() if name != "SPARK_REMOTE"}
    done = run(*words, env={**os.environ, **alone}, cwd=project.root)
    (table,) = json.loads(done.stdout)["tables"]
    assert (table["table"], table["cluster_key"]) == ("lake.plain.events", "k")
    assert table["depth_before"] > table["depth_after"] == 1
    assert server.look("plain") == before


def test_the_adapter_builds_over_connect_and_submits_the_job(server: Server, tmp_path: Path) -> None:
    profile = {"method": "session", "schema": "ours", "catalog": "lake", "recluster_submit": server.submit}
    model = MODEL % "cluster_by='k', recluster_depth=1, block_rows=500"
    project = Project(tmp_path / "p", profile, {"events.sql": model})
    project.write("seeds/names.csv", "id,name\n1,it's\n2,\n")
    project.succeed("build", **server.environment)
    out = project.succeed("run", **server.environment)
    assert "reclustered at the end of the run" in out
    assert "lake.ours.events: reclustered" in out
    assert "WARN" not in out.replace("WARN=0", "")
    assert server.look("ours").split()[0] == "2000"
    out = project.fail("run-operation", "recluster", "--args", "{table: events}", **server.environment)
    assert "`recluster_submit` only follows builds" in one_line(out)
