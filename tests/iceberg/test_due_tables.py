"""Conditions for a recluster on a real table: which of them holds, after what."""

from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.clustering.due_conditions import DueConditions, parse_after, parse_when
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.maintenance import ClusteredTable


@pytest.fixture
def table(spark: Any, schema: str) -> str:
    name = f"{schema}.t"
    spark.sql(
        f"create table {name} (k bigint) using iceberg tblproperties ('write.distribution-mode' = 'none', "
        "'format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    return name


def load(spark: Any, table: str, times: int = 1) -> None:
    for _ in range(times):
        spark.range(0, 1000, 1, 10).selectExpr("id as k").writeTo(table).append()


def after_build(spark: Any, table: str, after: Any = None, when: Any = None, **given: Any) -> ReclusterResult:
    conditions = DueConditions(parse_after("after", after), parse_when("when", when))
    options = ReclusterOptions(depth=2, block_rows=100, trigger="run", due_conditions=conditions, **given)
    return ClusteredTable(spark, table, "k").recluster(options)


def test_changes_since_the_last_recluster(spark: Any, table: str) -> None:
    load(spark, table, 3)
    not_due = after_build(spark, table, {"commits": 4, "rows": 4000})
    assert (not_due.reason, not_due.rounds, not_due.fired) == (
        "not due: 3,000 of 4,000 rows changed, 3 of 4 commits",
        [],
        None,
    )
    assert (not_due.depth_after, not_due.blocks_after) == (None, 30)
    load(spark, table)
    done = after_build(spark, table, {"commits": 4})
    assert (done.fired, len(done.rounds)) == ("4 of 4 commits", 1)
    # Counted from the recluster on; rows that are deleted count, and rewrites by others do not.
    load(spark, table)
    spark.sql(f"delete from {table} where k between 100 and 149")
    spark.sql(f"call {spark.catalog.currentCatalog()}.system.rewrite_data_files('{table}')")
    reason = after_build(spark, table, {"commits": 3, "share": 0.5}).reason  # 1,000 and 250, of 4,750
    assert reason == "not due: 2 of 3 commits, 26.3% of 50.0% of the rows changed"


def test_by_hand_they_do_not_count(spark: Any, table: str) -> None:
    load(spark, table, 3)
    options = ReclusterOptions(
        depth=2, block_rows=100, due_conditions=DueConditions(parse_after("after", {"rows": 1e9}))
    )
    assert ClusteredTable(spark, table, "k").recluster(options).rounds


def test_an_example_query(spark: Any, table: str) -> None:
    load(spark, table, 2)
    query = f"select * from {table} where k = 310"
    assert after_build(spark, table, when={"query": query, "opens": 2}).reason == (
        "not due: the example query opens 2 blocks, 2 wanted"
    )
    load(spark, table)
    assert after_build(spark, table, {"commits": 9}, {"query": query, "opens": 0.1}).reason.endswith(
        "the example query opens 3 blocks, 3 wanted"
    )
    slow = after_build(spark, table, when=[{"query": query, "opens": 9}, {"query": query, "seconds": 1e-6}])
    assert slow.fired is not None
    assert slow.fired.startswith("the example query takes ")
    assert slow.rounds
    for wrong in ("select * from nowhere", f"with x as (select 7 as k) insert into {table} select k from x"):
        with pytest.raises(PredicateError, match=r"cannot be planned|a command is no query"):
            after_build(spark, table, when={"query": wrong, "seconds": 1})
    assert spark.table(table).count() == 3000


def test_pruning_by_known_reads(spark: Any, table: str) -> None:
    load(spark, table, 3)
    when = {"skipped": 0.9}
    assert after_build(spark, table, when=when).reason == "not due: no reads of the key are known"
    reads = ["k between 310 and 320"]
    assert after_build(spark, table, when=when, reads=reads).reason == (
        "not due: known reads skip 90.0% of the blocks, 90.0% wanted"
    )
    assert after_build(spark, table, when={"skipped": 0.95}, reads=reads).fired == (
        "known reads skip 90.0% of the blocks, 95.0% wanted"
    )
