"""``dbt-recluster`` on real tables, through spark-submit and in a session of its own. dbt cannot be imported there."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from clusters import cluster
from jobs import Jobs
from ports import HOST
from runtime import iceberg_jar
from tables import checksum, keyed

from dbt_recluster.api import clustering_information

# Needs Python on the executors, which a job must not.
PYTHON_WORKER = """
from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate().sparkContext.parallelize([1]).map(str).collect()
"""


@pytest.fixture
def jobs(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    return Jobs(tmp_path_factory.mktemp("job"), tmp_path)


def depth(spark: Any, table: str) -> float:
    return float(clustering_information(spark, table, "k")["average_depth"])


def test_one_machine_needs_nothing_but_the_catalog(
    spark: Any, uncached_catalog: str, jobs: Jobs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Neither Iceberg's jar nor its extensions are named, and the catalog stands in a file."""
    table = keyed(spark, f"{uncached_catalog}.sales", "orders", rows=1000)
    settings = {name: value for name, value in jobs.settings.items() if "sql.catalog" in name}
    file = tmp_path_factory.mktemp("with a space") / "lake.conf"
    file.write_text("# the lake\n\n" + "".join(f"{name}  {value}\n" for name, value in settings.items()))
    own = ("spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions", "spark.ui.enabled")
    jobs.settings = {name: jobs.settings[name] for name in own}
    done = jobs.run("recluster", "lake.sales.orders", "--depth=1", "--json", "--properties-file", str(file))
    assert done.answer["tables"][0]["blocks_in"] == 6
    assert depth(spark, table) == 1


def test_spark_submit_reclusters_and_names_failures(spark: Any, uncached_catalog: str, jobs: Jobs) -> None:
    table = keyed(spark, f"{uncached_catalog}.sales", "orders", rows=1000)
    before = checksum(spark, table)
    names = ("lake.sales.nowhere", "lake.sales.orders")
    done = jobs.submit("recluster", *names, "--final", "--depth", "1", "--json", code=1)
    nowhere, orders = done.answer["tables"]
    assert (done.answer["command"], done.answer["exit_code"]) == ("recluster", 1)
    assert nowhere["error"].startswith("lake.sales.nowhere cannot be loaded: ")
    assert nowhere["error"] in done.err
    assert "Traceback" not in done.err
    assert (orders["table"], orders["blocks_in"]) == ("lake.sales.orders", 6)
    assert "lake.sales.orders: reclustered 6 blocks into 1" in done.err
    spark.sql(f"refresh table {table}")
    assert orders["depth_after"] == depth(spark, table) == 1
    assert checksum(spark, table) == before


def test_executors_need_no_python(
    spark: Any, uncached_catalog: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On a standalone cluster whose workers have no Python on their PATH."""
    table = keyed(spark, f"{uncached_catalog}.sales", "orders", rows=1000)
    before = checksum(spark, table)
    directory = tmp_path_factory.mktemp("cluster")
    with cluster(directory, path=str(commands_without_python(directory))) as master:
        settings = {
            "spark.master": master,
            "spark.driver.host": HOST,
            "spark.executor.memory": "512m",
            "spark.executor.extraClassPath": str(iceberg_jar()),
            "spark.pyspark.driver.python": sys.executable,
            "spark.pyspark.python": "python3",
        }
        jobs = Jobs(directory, tmp_path, settings)
        done = jobs.submit("recluster", "lake.sales.orders", "--depth", "1", "--block-rows", "1000", "--json")
        control = directory / "python_worker.py"
        control.write_text(PYTHON_WORKER)
        failed = jobs.submit(code=1, file=control)
    assert done.answer["tables"][0]["depth_after"] == 1
    spark.sql(f"refresh table {table}")
    assert depth(spark, table) == 1
    assert checksum(spark, table) == before
    assert 'Cannot run program "python3"' in failed.out + failed.err


def commands_without_python(directory: Path) -> Path:
    """Make a directory with links to all commands of this machine but Python."""
    links = directory / "bin"
    links.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for command in Path(place).glob("*"):
            link = links / command.name
            if "py" not in command.name and not link.is_symlink():
                link.symlink_to(command)
    return links
