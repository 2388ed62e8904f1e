"""What keeping a table clustered costs, where commits replace blocks: by the summaries, and played through for real."""

from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.maintenance import clustering_history, estimate_clustering_cost, recluster


def make(spark: Any, schema: str, name: str) -> str:
    """A table whose updates write whole blocks again, each of rows of many others."""
    table = f"{schema}.{name}"
    properties = {
        **{f"write.{change}.mode": "copy-on-write" for change in ("delete", "update", "merge")},
        # Every block is written again by a task of its own.
        **{f"write.{change}distribution-mode": "none" for change in ("", "delete.", "update.", "merge.")},
        "read.split.target-size": "6000",
        "read.split.open-file-cost": "1",
    }
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(
        f"create table {table} (id bigint, k int, p int) using iceberg partitioned by (p) tblproperties ({listed})"
    )
    spark.sql(f"alter table {table} write locally ordered by k")
    load(spark, table, 0)
    return table


def load(spark: Any, table: str, number: int) -> None:
    spark.sql(
        f"insert into {table} select /*+ repartition(4) */ id, cast(pmod(hash(id), 1000) as int) as k, 0 as p "
        f"from range({number * 4000}, {number * 4000 + 4000})"
    )


@pytest.mark.thorough
def test_rows_of_every_kind_of_commit(spark: Any, schema: str) -> None:
    table = make(spark, schema, "t")
    spark.conf.unset("spark.sql.sources.partitionOverwriteMode")  # dbt sets it in this session
    new = [4000]
    for statement, rows in [
        (f"update {table} set p = p where id % 100 = 1", 0),
        (f"delete from {table} where id < 1000", 0),
        (f"delete from {table} where p = 7", 0),
        (
            f"merge into {table} t using (select id, 1 as k, 0 as p from range(3500, 4500)) s on t.id = s.id "
            "when matched then delete when not matched then insert *",
            0,
        ),
        (f"insert into {table} select id, 1, 1 from range(4500, 4600)", 100),
        (f"delete from {table} where p = 1", 0),
        (f"insert overwrite {table} partition (p = 2) select id, 1 from range(5000, 5100)", 100),
        (f"insert overwrite {table} partition (p = 2) select id, 1 from range(5000, 5150)", 50),
    ]:
        spark.sql(statement)
        new.append(rows)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        spark.sql(f"insert overwrite {table} select id, 1, 2 from range(5000, 5150)")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    new.append(150)
    # A deletion vector's rows are not written again with the block.
    spark.sql(
        f"alter table {table} set tblproperties ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.sql(f"delete from {table} where p = 2 and id < 5100")
    spark.sql(f"update {table} set k = 2 where p = 2 and id = 5120")
    new += [0, 0]
    recluster(spark, table, depth=1, block_rows=500, final=True)
    history = [entry for entry in clustering_history(spark, table) if not entry.is_recluster]
    assert [entry.rows_loaded for entry in history] == new
    assert all(entry.bytes_loaded <= entry.bytes_out for entry in history)


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("change", ["merge", "update", "delete", "overwrite"])
def test_replaced_blocks_leave(spark: Any, schema: str, change: str) -> None:
    """Twin: the same commits on a table that is reclustered after each."""

    def commits(table: str) -> Any:
        for number in range(1, 5):
            if change == "update":
                spark.sql(f"update {table} set k = pmod(hash(id + {number}), 1000)")
            elif change == "delete":
                spark.sql(f"delete from {table} where id % 10 = {number}")
            elif change == "merge":
                spark.sql(
                    f"merge into {table} t using (select id, cast(pmod(hash(id, {number}), 1000) as int) as k, 0 as p "
                    f"from range({number * 1000}, {number * 1000 + 4000})) s on t.id = s.id "
                    "when matched then update set * when not matched then insert *"
                )
            else:
                spark.sql(
                    f"insert overwrite {table} select /*+ repartition(4) */ id, cast(pmod(hash(id), 1000) as int), 0 "
                    f"from range({number}, {number + 4000})"
                )
            yield

    played = make(spark, schema, "played")
    spent = recluster(spark, played, depth=1, block_rows=1000).bytes_in
    for _ in commits(played):
        spent += recluster(spark, played, depth=1, block_rows=1000).bytes_in
    found = estimate_clustering_cost(spark, played, depth=1, block_rows=1000)
    assert found.actual_bytes_per_day == spent
    assert found.bytes_per_day[0] == pytest.approx(spent, rel=0.3)
    if change == "delete":
        return  # what is rewritten block by block stays as clustered as it was
    forecast = make(spark, schema, "forecast")
    for _ in commits(forecast):
        pass
    found = estimate_clustering_cost(spark, forecast, depth=1, block_rows=1000)
    assert found.actual_bytes_per_day == 0
    assert found.bytes_per_day[0] == pytest.approx(spent, rel=0.2)
