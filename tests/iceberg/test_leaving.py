"""What docs/guides/leaving.md says strips a table, and what docs/guides/not-reclustered.md says of reasons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tables import metadata_file

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.sort_order import remove_clustering
from dbt_recluster.iceberg.table_properties import PROPERTIES
from dbt_recluster.maintenance import recluster, suspend_recluster

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_statements_of_the_docs_strip_a_table(spark: Any, schema: str) -> None:
    table = f"{schema}.events"
    spark.sql(f"create table {table} (k int, v string) using iceberg")
    for _ in range(3):
        spark.sql(f"insert into {table} select id, 'a' from range(0, 100) order by rand(1)")
    before = spark.table(table).groupBy("k").count().collect()
    assert recluster(spark, table, "k", depth=1).rounds
    suspend_recluster(spark, table)
    (statements,) = re.findall(r"```sql\n(.*?)```", (DOCS / "guides" / "leaving.md").read_text(), re.DOTALL)
    assert {name for name in PROPERTIES if name.startswith("recluster.") and not name.endswith(".")} <= set(
        re.findall(r"'([^']*)'", statements)
    )
    for statement in statements.replace("lake.analytics.events", table).split(";"):
        if statement.strip():
            spark.sql(statement)
    left = {row.key for row in spark.sql(f"show tblproperties {table}").collect()}
    assert not {name for name in left if name.startswith("recluster.")}
    assert not left & {"sort-order", "write.distribution-mode"}
    spark.sql(f"insert into {table} values (1, 'b')")
    assert sorted(spark.table(table).where("v = 'a'").groupBy("k").count().collect()) == sorted(before)


def test_everything_in_the_summary_of_a_recluster_is_documented(spark: Any, schema: str) -> None:
    table = f"{schema}.events"
    spark.sql(f"create table {table} (k int) using iceberg")
    for _ in range(3):
        spark.sql(f"insert into {table} select id from range(0, 100)")
    assert recluster(spark, table, "k", depth=1, where="k >= 0").rounds
    last = spark.sql(f"select summary from {table}.snapshots order by committed_at desc").first().summary
    page = (DOCS / "reference" / "properties.md").read_text()
    ours = {name for name in last if name.startswith("recluster.")}
    assert len(ours) > 10
    assert not {name for name in ours if f"`{name}`" not in page}


@pytest.mark.thorough
@pytest.mark.parametrize("by_model", [True, False], ids=["a model's order", "an order set by hand"])
def test_an_operation_removes_what_is_kept_in_a_table(spark: Any, schema: str, by_model: bool) -> None:
    table = f"{schema}.events"
    spark.sql(f"create table {table} (k int, v string) using iceberg tblproperties ('mine' = 'stays')")
    for _ in range(3):
        spark.sql(f"insert into {table} select id, 'a' from range(0, 100)")
    assert recluster(spark, table, "k", depth=1).rounds
    if by_model:
        spark.sql(f"alter table {table} write ordered by k")
        spark.sql(f"alter table {table} set tblproperties ('recluster.cluster_by' = 'k')")
    loaded, file = IcebergTable.load(spark, table), metadata_file(spark, table)
    order, properties = remove_clustering(loaded, dry_run=True)
    assert metadata_file(spark, table) == file
    assert remove_clustering(loaded) == (order, properties)
    assert order == ("k ASC NULLS FIRST" if by_model else None)
    assert set(properties) >= {"recluster.levels", "recluster.checkpoint"}
    now = IcebergTable.load(spark, table)
    assert [name for name in now.properties if name.startswith("recluster.")] == []
    assert now.properties["mine"] == "stays"
    assert ("write.distribution-mode" in properties) is by_model
    assert "write.distribution-mode" not in now.properties
    assert bool(now.java.sortOrder().isSorted()) is not by_model
    assert remove_clustering(loaded) == (None, [])
    spark.sql(f"insert into {table} select id, 'b' from range(100) order by rand(1)")
    assert spark.table(table).count() == 400


def test_a_distribution_mode_that_no_model_sets_stays(spark: Any, schema: str) -> None:
    table = f"{schema}.events"
    spark.sql(f"create table {table} (k int) using iceberg")
    spark.sql(f"alter table {table} write ordered by k")
    kept = "'recluster.cluster_by' = 'k', 'write.distribution-mode' = 'hash'"
    spark.sql(f"alter table {table} set tblproperties ({kept})")
    assert remove_clustering(IcebergTable.load(spark, table))[1] == ["recluster.cluster_by"]
    assert IcebergTable.load(spark, table).properties["write.distribution-mode"] == "hash"
