"""``dbt-recluster`` on real tables, through spark-submit and in a session of its own. dbt cannot be imported there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import Jobs
from tables import checksum, make_table

from dbt_recluster.maintenance import clustering_information


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
