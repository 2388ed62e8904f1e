"""Conditions for a recluster on a real table: which of them holds, after what."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tables import metadata_file

from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.table_properties import CHANGES
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
    options = ReclusterOptions(depth=2, block_rows=100, trigger="run", after=after, when=when, **given)
    return Recluster(ClusteredTable(spark, table, "k"), options).run()


@pytest.mark.thorough
def test_changes_since_the_last_recluster(spark: Any, table: str) -> None:
    load(spark, table, 3)
    unmet = after_build(spark, table, {"commits": 4, "rows": 4000})
    assert (unmet.reason, unmet.rounds, unmet.condition_met) == (
        "no condition met: 3,000 of 4,000 rows changed, 3 of 4 commits",
        [],
        None,
    )
    assert (unmet.depth_after, unmet.threshold, unmet.blocks_after) == (3.0, 2.0, 30)
    load(spark, table)
    done = after_build(spark, table, {"commits": 4})
    assert (done.condition_met, len(done.rounds)) == ("4 of 4 commits", 1)
    # Counted from the recluster on; rows that are deleted count, and rewrites by others do not.
    load(spark, table)
    spark.sql(f"delete from {table} where k between 100 and 149")
    spark.sql(f"call {spark.catalog.currentCatalog()}.system.rewrite_data_files('{table}')")
    reason = after_build(spark, table, {"commits": 3, "share": 0.5}).reason  # 1,000 and 250, of 4,750
    assert reason == "no condition met: 2 of 3 commits, 26.3% of 50.0% of the rows changed"


def expire(spark: Any, table: str) -> None:
    """Expire all snapshots but the current one, as an engine does that knows nothing of this package."""
    catalog = spark.catalog.currentCatalog()
    spark.sql(f"call {catalog}.system.expire_snapshots('{table}', timestamp '2100-01-01 00:00:00')")


@pytest.mark.thorough
def test_changes_in_snapshots_that_have_expired_count(spark: Any, table: str) -> None:
    after = {"commits": 8, "rows": 4300}
    for day in range(1, 5):
        load(spark, table)
        reason = f"no condition met: {1000 * day:,} of 4,300 rows changed, {day} of 8 commits"
        assert after_build(spark, table, after).reason == reason
        expire(spark, table)
        assert after_build(spark, table, after).reason == reason  # it counts nothing twice
    file = metadata_file(spark, table)
    assert after_build(spark, table, after).reason == reason
    assert metadata_file(spark, table) == file  # and records nothing where nothing is new
    spark.sql(f"delete from {table} where k between 100 and 149")
    assert (
        after_build(spark, table, after).reason
        == "no condition met: 4,200 of 4,300 rows changed, 5 of 8 commits"
    )
    expire(spark, table)
    load(spark, table)
    done = after_build(spark, table, after)
    assert (done.condition_met, len(done.rounds)) == ("5,200 of 4,300 rows changed", 1)
    expire(spark, table)
    load(spark, table)
    assert (
        after_build(spark, table, after).reason
        == "no condition met: 1,000 of 4,300 rows changed, 1 of 8 commits"
    )


@pytest.mark.thorough
def test_the_time_without_a_recluster(spark: Any, table: str) -> None:
    """It counts from the last recluster, or else from the first commit, whatever has expired since."""
    after = {"days": 2}
    assert after_build(spark, table, after).reason == "no condition met: 0.0 of 2 days without a recluster"
    load(spark, table, 2)
    assert after_build(spark, table, after).reason == "no condition met: 0.0 of 2 days without a recluster"
    expire(spark, table)
    load(spark, table)
    properties = ClusteredTable(spark, table).iceberg.properties
    changes = json.loads(properties[CHANGES])
    for hours, met in ((47.9, None), (48.1, "48.1 of 48 hours without a recluster")):
        text = json.dumps({**changes, "since": round(time.time() - 3600 * hours)})
        spark.sql(f"alter table {table} set tblproperties ('{CHANGES}' = '{text}')")
        expire(spark, table)
        done = after_build(spark, table, {"hours": 48})
        assert (done.condition_met, bool(done.rounds)) == (met, met is not None)
    load(spark, table)
    assert after_build(spark, table, after).reason == "no condition met: 0.0 of 2 days without a recluster"
    assert after_build(spark, table, {"hours": 1e-6}).condition_met is not None


@pytest.mark.thorough
def test_the_clustering_ratio(spark: Any, table: str) -> None:
    load(spark, table, 3)  # 3 blocks over each key: 100 * (1 - log10(3))
    assert after_build(spark, table, when={"ratio": 52.2}).reason == (
        "no condition met: the clustering ratio is 52.3, 52.2 wanted"
    )
    done = after_build(spark, table, {"days": 9}, {"ratio": 60})
    assert (done.condition_met, len(done.rounds)) == ("the clustering ratio is 52.3, 60 wanted", 1)
    assert after_build(spark, table, when={"ratio": 60}).rounds == []


@pytest.mark.thorough
def test_a_condition_stays_met(spark: Any, table: str) -> None:
    """A recluster that rewrites nothing, such as one without a gain, leaves the count as it is."""
    for _ in range(2):
        load(spark, table)
        done = after_build(spark, table, {"rows": 1000}, where="k > 5000")
        assert (done.rounds, done.condition_met is None) == ([], False)
        expire(spark, table)
    assert after_build(spark, table, {"rows": 2000}).condition_met == "2,000 of 2,000 rows changed"


def test_a_table_that_is_replaced(spark: Any, table: str) -> None:
    for build in range(3):
        rows = spark.range(0, 1000, 1, 10).selectExpr("id as k").writeTo(table).using("iceberg")
        rows.tableProperty("write.distribution-mode", "none").createOrReplace()
        changed = 1000 + 2000 * build  # each build after the first one also drops a thousand rows
        assert after_build(spark, table, {"rows": 9000, "commits": 4}).reason == (
            f"no condition met: {changed:,} of 9,000 rows changed, {build + 1} of 4 commits"
        )


@pytest.mark.thorough
def test_by_hand_they_do_not_count(spark: Any, table: str) -> None:
    load(spark, table, 3)
    options = ReclusterOptions(depth=2, block_rows=100, after={"rows": 1e9})
    assert Recluster(ClusteredTable(spark, table, "k"), options).run().rounds


@pytest.mark.thorough
def test_an_example_query(spark: Any, table: str) -> None:
    load(spark, table, 2)
    query = f"select * from {table} where k = 310"
    assert after_build(spark, table, when={"query": query, "opens": 2}).reason == (
        "no condition met: the example query opens 2 blocks, 2 wanted"
    )
    load(spark, table)
    assert after_build(spark, table, {"commits": 9}, {"query": query, "opens": 0.1}).reason.endswith(
        "the example query opens 3 blocks, 3 wanted"
    )
    slow = after_build(spark, table, when=[{"query": query, "opens": 9}, {"query": query, "seconds": 1e-6}])
    assert slow.condition_met is not None
    assert slow.condition_met.startswith("the example query takes ")
    assert slow.rounds
    for wrong in ("select * from nowhere", f"with x as (select 7 as k) insert into {table} select k from x"):
        with pytest.raises(PredicateError, match=r"cannot be planned|a command is no query"):
            after_build(spark, table, when={"query": wrong, "seconds": 1})
    assert spark.table(table).count() == 3000


def test_pruning_by_reads(spark: Any, table: str) -> None:
    load(spark, table, 3)
    when = {"skipped": 0.9}
    assert after_build(spark, table, when=when).reason == "no condition met: no reads of the key are known"
    reads = ["k between 310 and 320"]
    assert after_build(spark, table, when=when, reads=reads).reason == (
        "no condition met: reads skip 90.0% of the blocks, 90.0% wanted"
    )
    assert after_build(spark, table, when={"skipped": 0.95}, reads=reads).condition_met == (
        "reads skip 90.0% of the blocks, 95.0% wanted"
    )
