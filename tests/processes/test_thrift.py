"""`method: thrift`: models build and get their sort order; reclustering says what it needs."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbt_command import Project

from dbt_recluster.adapter.embedded import spark_settings
from dbt_recluster.java import find_java_home

pytest.importorskip("pyhive", reason="the thrift method needs dbt-spark[PyHive]")

EVENTS = "{{ config(materialized='incremental', cluster_by='k') }} select id, pmod(hash(id), 9) as k from range(100)"
ASK = (
    "{% macro ask() %}{% do log(run_query('show tblproperties analytics.events (`sort-order`)').rows[0][1]"
    " ~ run_query('select count(*) from analytics.events').rows[0][0], info=true) %}{% endmacro %}"
)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Spark's own Thrift server, from pyspark's jars, on an Iceberg catalog."""
    import pyspark

    lake = tmp_path_factory.mktemp("thrift")
    (lake / "logs").mkdir()
    port = free_port()
    settings = {**spark_settings(lake), "spark.driver.memory": "1g"}
    command = [f"{Path(pyspark.__file__).parent}/bin/spark-submit"]
    command += ["--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["spark-internal", "--hiveconf", f"hive.server2.thrift.port={port}"]
    command += ["--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1"]
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
    }
    with (lake / "server.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=lake)
        try:
            wait_for(port, process, lake / "server.log")
            yield port
        finally:
            process.terminate()
            process.wait(timeout=30)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise AssertionError(f"the Thrift server did not start: {log.read_text()[-2000:]}")


def test_models_build_and_reclustering_says_what_it_needs(server: int, tmp_path: Path) -> None:
    profile = {"method": "thrift", "host": "127.0.0.1", "port": server, "user": "dbt", "poll_interval": 1}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS, "others.sql": EVENTS})
    (project.root / "macros").mkdir()
    (project.root / "macros" / "ask.sql").write_text(ASK)
    code, out, _ = project.run("debug")
    assert code == 0, out
    for _ in range(2):
        code, out, _ = project.run("run")
        assert code == 0, out
        assert out.count("Tables are not reclustered in this run: reclustering needs a Spark session") == 1
        assert "PASS=2 WARN=0 ERROR=0" in out
    _, out, _ = project.run("run-operation", "ask")
    assert "k ASC NULLS FIRST200" in out
    code, out, _ = project.run("run-operation", "recluster")
    assert code == 1
    assert "analytics.events: failed: reclustering needs a Spark session" in out
