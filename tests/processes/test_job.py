"""``dbt-recluster`` on real tables, through spark-submit and in a session of its own. dbt cannot be imported there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from clusters import cluster
from dbt_command import Project, session_settings
from jobs import EXTENSIONS, Jobs
from ports import HOST
from runtime import iceberg_jar
from tables import checksum, make_table, metadata_file, orphans

from dbt_recluster.maintenance import clustering_history, clustering_information

EVENTS = """{{ config(materialized='incremental', cluster_by='k', automatic_clustering=false, recluster_final=true,
                      recluster_depth=1, block_rows=250) }}
select id, pmod(hash(id), 1000) as k from range(1000)"""
# Needs Python on the executors, which a job must not.
PYTHON_WORKER = """
from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate().sparkContext.parallelize([1]).map(str).collect()
"""


@pytest.fixture
def catalog(hadoop_catalog: str, spark: Any) -> str:
    """The name that this process has for the catalog ``lake``."""
    spark.conf.set(f"spark.sql.catalog.{hadoop_catalog}.cache-enabled", "false")
    return hadoop_catalog


@pytest.fixture
def jobs(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    return Jobs(tmp_path_factory.mktemp("job"), tmp_path)


def keyed(spark: Any, catalog: str, name: str, order: str = "k", **properties: str) -> str:
    """Make a table of six overlapping files that is sorted by ``order``."""
    table = make_table(spark, f"{catalog}.sales", name=name, properties=properties)
    spark.sql(f"alter table {table} write locally ordered by {order}")
    return table


def depth(spark: Any, table: str) -> float:
    return float(clustering_information(spark, table, "k")["average_depth"])


def test_one_machine_needs_nothing_but_the_catalog(
    spark: Any, catalog: str, jobs: Jobs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Neither Iceberg's jar nor its extensions are named, and the catalog stands in a file."""
    table = keyed(spark, catalog, "orders")
    settings = {name: value for name, value in jobs.settings.items() if "sql.catalog" in name}
    file = tmp_path_factory.mktemp("with a space") / "lake.conf"
    file.write_text("# the lake\n\n" + "".join(f"{name}  {value}\n" for name, value in settings.items()))
    own = ("spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions", "spark.ui.enabled")
    jobs.settings = {name: jobs.settings[name] for name in own}
    done = jobs.run(
        "recluster", "lake.sales.orders", "--depth", "1", "--json", "--properties-file", str(file)
    )
    assert done.code == 0, done.out + done.err
    assert done.answer["tables"][0]["blocks_in"] == 6
    assert depth(spark, table) == 1


def test_a_table_is_reclustered_through_spark_submit(spark: Any, catalog: str, jobs: Jobs) -> None:
    table = keyed(spark, catalog, "orders")
    before = checksum(spark, table)
    done = jobs.submit("recluster", "lake.sales.orders", "--final", "--depth", "1", "--json")
    assert done.code == 0, done.out + done.err
    (answer,) = done.answer["tables"]
    assert (done.answer["command"], done.answer["exit_code"], done.answer["error"]) == ("recluster", 0, None)
    assert (answer["table"], answer["blocks_in"]) == ("lake.sales.orders", 6)
    spark.sql(f"refresh table {table}")
    assert answer["depth_after"] == depth(spark, table) == 1
    assert checksum(spark, table) == before
    assert "lake.sales.orders: reclustered 6 blocks into 1" in done.err

    again = jobs.submit("recluster", "lake.sales.orders", "--depth", "1")
    assert again.code == 0, again.out + again.err
    assert again.out.startswith("lake.sales.orders: nothing to do, ")


def test_wrong_usage_and_failures_through_spark_submit(spark: Any, catalog: str, jobs: Jobs) -> None:
    wrong = jobs.submit("recluster", "lake.sales.orders", "--depth", "none", "--json")
    assert wrong.code == 2
    assert "argument --depth: it must be a number of at least 1" in wrong.answer["error"]
    assert wrong.answer["error"] in wrong.err
    assert "Traceback" not in wrong.err

    table = keyed(spark, catalog, "orders")
    failed = jobs.submit("recluster", "lake.sales.nowhere", "lake.sales.orders", "--depth", "1", "--json")
    assert failed.code == 1, failed.out + failed.err
    nowhere, orders = failed.answer["tables"]
    assert nowhere["error"].startswith("lake.sales.nowhere cannot be loaded: ")
    assert nowhere["error"] in failed.err
    assert "Traceback" not in failed.err
    spark.sql(f"refresh table {table}")
    assert orders["depth_after"] == depth(spark, table) == 1


def test_a_spark_without_iceberg_says_what_is_missing(jobs: Jobs) -> None:
    for name in ("spark.driver.extraClassPath", "spark.sql.extensions"):
        del jobs.settings[name]
    done = jobs.submit("information", "lake.sales.orders", "--json")  # by itself the command brings them
    assert done.code == 1
    assert "dbt-recluster: This Spark session lacks what clustering needs:" in done.err
    assert "- Iceberg's classes are not loaded." in done.err
    assert (
        f"- Iceberg's SQL extensions are not loaded. Start the session with spark.sql.extensions={EXTENSIONS}"
        in done.err
    )
    assert "Traceback" not in done.err


def test_ctrl_c_in_the_middle_of_a_merge_changes_nothing(spark: Any, catalog: str, jobs: Jobs) -> None:
    table = make_table(spark, f"{catalog}.sales", name="orders", files=4, rows=400_000, keys=1_000_000)
    before, snapshot = checksum(spark, table), metadata_file(spark, table)
    # Many small tasks, so that the first of them to be seen as done is not the last one.
    options = ("--cluster-by", "k", "--depth", "1", "--block-rows", "20000")
    code, shown = jobs.run_on_terminal("recluster", "lake.sales.orders", *options, interrupt_at=" % done")
    assert code == 130, shown
    assert "lake.sales.orders: round 1 merges 4 blocks in 1 set" in shown
    assert "dbt-recluster: interrupted; a round that was not committed changed nothing" in shown
    assert "Traceback" not in shown
    spark.sql(f"refresh table {table}")
    assert checksum(spark, table) == before
    assert len(clustering_history(spark, table)) == 1
    assert metadata_file(spark, table) == snapshot
    assert orphans(spark, table) == set()


def test_a_model_s_key_and_options_reach_the_job(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    jobs = Jobs(tmp_path, tmp_path / "warehouse")
    catalog = {name: value for name, value in jobs.settings.items() if name.startswith("spark.sql.catalog")}
    settings = session_settings(tmp_path, **catalog, **{"spark.sql.defaultCatalog": "lake"})
    profile = {"method": "session", "server_side_parameters": settings}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    for _ in range(2):
        out = project.succeed("run")
        assert "reclustered " not in out

    everything = jobs.run("recluster", "--catalog", "lake", "--json")
    assert everything.code == 0, everything.out + everything.err
    assert everything.answer["tables"] == []
    assert "1 table of lake left out, by automatic_clustering: false" in everything.err

    named = jobs.run("recluster", "lake.analytics.events", "--json")
    assert named.code == 0, named.out + named.err
    (answer,) = named.answer["tables"]
    assert (answer["cluster_key"], answer["rows"], answer["depth_after"]) == ("k", 2000, 1)
    assert answer["blocks_out"] >= 2000 / 250


def test_executors_need_no_python(
    spark: Any, catalog: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On a standalone cluster whose workers have no Python on their PATH."""
    table = keyed(spark, catalog, "orders")
    before = checksum(spark, table)
    directory = tmp_path_factory.mktemp("cluster")
    with cluster(directory, path=str(commands_without_python(directory))) as master:
        jobs = Jobs(
            directory,
            tmp_path,
            {
                "spark.master": master,
                "spark.driver.host": HOST,
                "spark.executor.memory": "512m",
                "spark.executor.extraClassPath": str(iceberg_jar()),
                "spark.pyspark.driver.python": sys.executable,
                "spark.pyspark.python": "python3",
            },
        )
        done = jobs.submit("recluster", "lake.sales.orders", "--depth", "1", "--block-rows", "1000", "--json")
        assert done.code == 0, done.out + done.err
        control = directory / "python_worker.py"
        control.write_text(PYTHON_WORKER)
        failed = jobs.submit_file(control)
    assert done.answer["tables"][0]["depth_after"] == 1
    spark.sql(f"refresh table {table}")
    assert depth(spark, table) == 1
    assert checksum(spark, table) == before
    assert failed.code == 1
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
