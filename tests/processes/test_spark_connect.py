"""dbt over Spark Connect, and the job on a driver of its own: the route of docs/guides/connections.md.

pyspark 4.0 with Connect is installed from PyPI once, under build/, and Iceberg's runtime for it comes from Maven (~/.m2
or the network); where neither can be reached, the tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from dbt_command import Project
from ports import HOST, free_port, wait_for_port

from dbt_recluster.adapter.dbt_run import JOB
from dbt_recluster.iceberg.session.local_spark import find_java_home

SPARK, ICEBERG = "4.0.5", "1.10.2"
ARTIFACT = "iceberg-spark-runtime-4.0_2.13"
PACKAGES = Path(__file__).parents[2] / "build" / f"pyspark-connect-{SPARK}"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
MODEL = """{{ config(materialized='incremental', file_format='iceberg', %s) }}
select id, pmod(hash(id, '{{ invocation_id }}'), 1000) as k, '{{ invocation_id }}' as load from range(1000)"""
LOOK = """from pyspark.sql import SparkSession
rows = SparkSession.builder.getOrCreate().sql("select count(*), bit_xor(xxhash64(*)), max(k) from lake.{}.events")
print(*rows.collect()[0])"""


class Server(NamedTuple):
    """A Connect server, and the settings of a Spark that has its catalog."""

    environment: dict[str, str]
    settings: Path

    def submit(self) -> list[str]:
        """Return the words of spark-submit for a driver with a JVM."""
        return [str(PACKAGES / "pyspark" / "bin" / "spark-submit"), "--properties-file", str(self.settings)]

    def look(self, schema: str) -> str:
        return run([sys.executable, "-c", LOOK.format(schema)], self.environment).stdout


def run(words: list[str], environment: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        words, env={**os.environ, **environment}, capture_output=True, text=True, timeout=900, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def install() -> Path:
    """Install pyspark; return Iceberg's jar."""
    if not (PACKAGES / "complete").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--retries", "1", "--upgrade"]
        words = [*pip, "--target", str(PACKAGES), f"pyspark[connect]=={SPARK}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=900)
        if done.returncode:
            pytest.skip(f"pyspark {SPARK} cannot be installed here: {done.stderr.strip()[-300:]}")
        (PACKAGES / "complete").touch()
    jar = Path.home() / f".m2/repository/org/apache/iceberg/{ARTIFACT}/{ICEBERG}/{ARTIFACT}-{ICEBERG}.jar"
    if not jar.exists():
        coordinates = f"org.apache.iceberg:{ARTIFACT}:{ICEBERG}"
        try:
            fetch = ["mvn", "-q", "dependency:get", f"-Dartifact={coordinates}", "-Dtransitive=false"]
            subprocess.run(fetch, check=True, capture_output=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as e:
            pytest.skip(f"Maven cannot fetch {coordinates} here: {e}")
    return jar


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    jar, root, port = install(), tmp_path_factory.mktemp("connect"), free_port()
    (root / "warehouse").mkdir()
    settings = {
        "spark.jars": jar,
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.defaultCatalog": "lake",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": root / "warehouse",
        "spark.sql.catalog.lake.cache-enabled": "false",
    }
    file = root / "lake.conf"
    file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {
        "JAVA_HOME": str(find_java_home(SPARK)),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(PACKAGES),
        "SPARK_HOME": str(PACKAGES / "pyspark"),
    }
    made = Server({**environment, "SPARK_REMOTE": f"sc://{HOST}:{port}"}, file)
    binding = {"port": port, "address": HOST}
    words = [*made.submit(), "--class", SERVER]
    for name, value in binding.items():
        words += ["--conf", f"spark.connect.grpc.binding.{name}={value}"]
    with (root / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*words, "spark-internal"], env={**os.environ, **environment}, stdout=log, stderr=log, cwd=root
        )
        try:
            wait_for_port(port, f"the Connect server of {root / 'server.log'}", 180)
            yield made
        finally:
            process.terminate()
            process.wait(timeout=60)


def test_plain_dbt_spark_builds_and_the_job_reclusters_by_the_manifest(
    server: Server, tmp_path: Path
) -> None:
    target = {"type": "spark", "method": "session", "host": "none", "schema": "plain"}
    model = MODEL % "meta={'recluster': {'cluster_by': 'k', 'depth': 1, 'block_rows': 500}}"
    project = Project(tmp_path / "p", target, {"events.sql": model})
    for _ in range(2):
        project.succeed("run", **server.environment)
    before = server.look("plain")
    words = [*server.submit(), str(JOB), "recluster", "--manifest", "target/manifest.json"]
    job = {name: value for name, value in server.environment.items() if name != "SPARK_REMOTE"}
    done = run([*words, "--catalog", "lake", "--json"], job, cwd=project.root)
    (table,) = json.loads(done.stdout)["tables"]
    assert (table["table"], table["cluster_key"]) == ("lake.plain.events", "k")
    assert table["depth_before"] > table["depth_after"] == 1
    assert server.look("plain") == before


def test_the_adapter_builds_over_connect_and_submits_the_job(server: Server, tmp_path: Path) -> None:
    profile = {"method": "session", "schema": "ours", "catalog": "lake", "recluster_submit": server.submit()}
    project = Project(
        tmp_path / "p", profile, {"events.sql": MODEL % "cluster_by='k', recluster_depth=1, block_rows=500"}
    )
    (project.root / "seeds").mkdir()
    (project.root / "seeds" / "names.csv").write_text("id,name\n1,it's\n2,\n")
    project.succeed("build", **server.environment)
    out = project.succeed("run", **server.environment)
    assert "reclustered at the end of the run" in out
    assert "lake.ours.events: reclustered" in out
    assert "WARN" not in out.replace("WARN=0", "")
    assert server.look("ours").split()[0] == "2000"
    out = project.fail("run-operation", "recluster", "--args", "{table: events}", **server.environment)
    assert "`recluster_submit` only follows builds" in " ".join(out.split())
