"""The job and dbt on YARN with both memory checks on, beside HDFS: the commands of docs/guides/job.md.

Hadoop's test classes run a node in one process. Queues, log aggregation, Kerberos and what EMR, Dataproc and Cloudera
add are not tested.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yarn
from dbt_command import EVENTS, Project
from jobs import Jobs
from sessions import checksum
from tables import add_catalog, keyed, writers
from yarn import Yarn

OPTIONS = ("--depth", "1", "--json")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with yarn.cluster_or_skip(tmp_path_factory.mktemp("yarn")) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(running.directory))
        yield running


@pytest.fixture(scope="module")
def environment(cluster: Yarn) -> dict[str, str]:
    """Settings of executors with DuckDB and Arrow."""
    archive = yarn.packed_environment(cluster.directory)
    return {"archives": f"{archive}#environment", "pyspark_python": "./environment/bin/python"}


@pytest.fixture(scope="module")
def wheel(cluster: Yarn) -> Path:
    return yarn.wheel(cluster.directory)


def test_client_mode_with_a_table_on_hdfs(spark: Any, cluster: Yarn, wheel: Path, tmp_path: Path) -> None:
    warehouse = f"{cluster.hdfs}/warehouse"
    add_catalog(spark, "hdfs", type="hadoop", warehouse=warehouse, cache_enabled="false")
    table = keyed(spark, "hdfs.sales", "orders", rows=1000)
    before = checksum(spark, table)
    jobs = Jobs(tmp_path, tmp_path, {**cluster.settings(), "spark.sql.catalog.lake.warehouse": warehouse}, wheel=wheel)
    done = jobs.submit("recluster", "lake.sales.orders", *OPTIONS)
    assert done.answer["tables"][0]["blocks_in"] == 6
    assert (writers(spark, table), checksum(spark, table)) == (["spark: store"], before)


def test_cluster_mode_takes_a_packed_environment(
    spark: Any, hadoop_catalog: str, cluster: Yarn, environment: dict[str, str], wheel: Path, tmp_path: Path
) -> None:
    """The driver runs in a container too. A table that fails is a failed application, and no second attempt."""
    table = keyed(spark, f"{hadoop_catalog}.sales", "orders", rows=1000)
    before = checksum(spark, table)
    settings = cluster.settings(submit_deployMode="cluster", executor_memoryOverhead="1g", **environment)
    jobs = Jobs(tmp_path / "jobs", tmp_path, settings, wheel=wheel)
    jobs.submit("recluster", "lake.sales.nowhere", "lake.sales.orders", *OPTIONS, code=1)
    nowhere, orders = json.loads(cluster.printed())["tables"]
    assert "cannot be loaded" in nowhere["error"]
    assert orders["blocks_in"] == 6
    assert (writers(spark, table), checksum(spark, table)) == (["native"], before)


def test_a_container_that_is_killed_for_its_memory_is_the_only_one(
    spark: Any, hadoop_catalog: str, cluster: Yarn, environment: dict[str, str], wheel: Path, tmp_path: Path
) -> None:
    table = keyed(spark, f"{hadoop_catalog}.sales", "orders", rows=300_000)
    before = checksum(spark, table)
    settings = cluster.settings(pyspark_driver_python=sys.executable, **environment)
    jobs = Jobs(tmp_path / "jobs", tmp_path, settings, wheel=wheel)
    done = jobs.submit("recluster", "lake.sales.orders", *OPTIONS)
    assert done.err.count("Lost executor") == 1
    assert "memory: Container killed by YARN for exceeding virtual memory limits" in done.err
    assert (writers(spark, table), checksum(spark, table)) == (["spark: memory"], before)


def test_dbt_with_and_without_a_packed_environment(
    spark: Any, hadoop_catalog: str, cluster: Yarn, environment: dict[str, str], tmp_path: Path
) -> None:
    settings = cluster.settings(executor_memoryOverhead="1g", archives=environment["archives"])
    settings = Jobs(tmp_path / "jobs", tmp_path, settings).settings
    profile = {"method": "session", "catalog": "lake", "server_side_parameters": settings}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    # Not the Java options of the tests, which are for this process.
    plain = dict.fromkeys((name for name in os.environ if name.startswith("SPARK_")), "")
    project.succeed("run", **plain)
    bare = str(Path(sys._base_executable).resolve())  # that of no virtual environment
    for python in (environment["pyspark_python"], bare):
        code, out, err = project.run("run", **plain, PYSPARK_PYTHON=python)
        assert code == 0, out + err
        assert " blocks into " in out
        assert err.count("packages: duckdb is missing") == (python == bare)
        assert "Lost task" not in err
    assert writers(spark, f"{hadoop_catalog}.analytics.events") == ["native", "spark: packages"]
