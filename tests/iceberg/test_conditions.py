"""Conditions for a recluster on a real table: which of them holds, after what."""

import json
import time
from typing import Any

import pytest
from dbt.adapters.spark.relation import SparkRelation
from tables import Meanwhile, call, create_table, expire, metadata_file

from dbt_recluster.adapter.operations import clustering_violations
from dbt_recluster.api import ClusteredTable, recluster
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, ReclusterOptions
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.table_properties import CHANGES


@pytest.fixture
def table(spark: Any, schema: str) -> str:
    properties = {"format-version": 2, "write.delete.mode": "merge-on-read"}
    return create_table(spark, f"{schema}.t", "k bigint", properties)


def load(spark: Any, table: str, times: int = 1) -> None:
    for _ in range(times):
        spark.range(0, 1000, 1, 10).selectExpr("id as k").writeTo(table).append()


def after_build(
    spark: Any, table: str, after: Any = None, when: Any = None, trigger: str = "run", **given: Any
) -> ReclusterResult:
    given = {"depth": 2, "block_rows": 100, "after": after, "when": when, **given}
    read = {name: RECLUSTER_OPTIONS[name].read(name, value) for name, value in given.items()}
    return Recluster(ClusteredTable(spark, table, "k"), ReclusterOptions(trigger=trigger, **read)).run()


def unmet(spark: Any, table: str, after: Any = None, when: Any = None, **given: Any) -> str:
    """Return why a build is not followed by a recluster."""
    done = after_build(spark, table, after, when, **given)
    assert (done.rounds, done.condition_met) == ([], None)
    return done.reason.removeprefix("no condition met: ")


@pytest.mark.thorough
def test_changes_since_the_last_recluster(spark: Any, table: str) -> None:
    load(spark, table, 3)
    waits = after_build(spark, table, {"commits": 4, "rows": 4000})
    assert waits.reason == "no condition met: 3,000 of 4,000 rows changed, 3 of 4 commits"
    assert (waits.depth_after, waits.threshold, waits.blocks_after) == (3.0, 2.0, 30)
    file = metadata_file(spark, table)
    after_build(spark, table, {"commits": 4, "rows": 4000})
    assert metadata_file(spark, table) == file  # nothing is recorded where nothing is new
    load(spark, table)
    done = after_build(spark, table, {"commits": 4})
    assert (done.condition_met, len(done.rounds)) == ("4 of 4 commits", 1)
    # Counted from the recluster on; rows that are deleted count, and rewrites by others do not.
    load(spark, table)
    spark.sql(f"delete from {table} where k between 100 and 149")
    call(spark, "rewrite_data_files", table)
    reason = unmet(spark, table, {"commits": 3, "share": 0.5})  # 1,000 and 250, of 4,750
    assert reason == "2 of 3 commits, 26.3% of 50.0% of the rows changed"


@pytest.mark.thorough
def test_a_load_during_a_recluster_counts_after_it(spark: Any, table: str) -> None:
    load(spark, table, 3)
    meanwhile = Meanwhile("commit", lambda: load(spark, table))
    done = recluster(spark, table, "k", depth=1, block_rows=1000, final=True, listener=meanwhile)
    assert (meanwhile.errors, len(done.rounds)) == ([], 2)
    assert unmet(spark, table, {"commits": 2, "rows": 2000}) == "1,000 of 2,000 rows changed, 1 of 2 commits"


@pytest.mark.thorough
def test_the_time_without_a_recluster(spark: Any, table: str) -> None:
    """It counts from the last recluster, or else from the first commit, whatever has expired since."""
    after, nothing = {"days": 2}, "0.0 of 2 days without a recluster"
    assert unmet(spark, table, after) == nothing
    load(spark, table, 2)
    assert unmet(spark, table, after) == nothing
    expire(spark, table)
    load(spark, table)
    changes = json.loads(ClusteredTable(spark, table).iceberg.properties[CHANGES])
    for hours, met in ((47.9, None), (48.1, "48.1 of 48 hours without a recluster")):
        text = json.dumps({**changes, "since": round(time.time() - 3600 * hours)})
        spark.sql(f"alter table {table} set tblproperties ('{CHANGES}' = '{text}')")
        expire(spark, table)
        done = after_build(spark, table, {"hours": 48})
        assert (done.condition_met, bool(done.rounds)) == (met, met is not None)
    load(spark, table)
    assert unmet(spark, table, after) == nothing


@pytest.mark.thorough
def test_figures_of_the_table_and_of_reads(spark: Any, table: str) -> None:
    load(spark, table, 3)  # 3 blocks over each key
    query, reads = f"select * from {table} where k = 310", ["k between 310 and 320"]
    for given, reason in (
        ({"when": {"ratio": 52.2}}, "the reducible ratio is 52.3, 52.2 wanted"),  # 100 * (1 - log10(3))
        ({"when": {"query": query, "opens": 3}}, "the example query opens 3 blocks, 3 wanted"),
        ({"when": {"query": query, "opens": 0.1}}, "the example query opens 3 blocks, 3 wanted"),
        ({"when": {"skipped": 0.9}}, "no reads of the key are known"),
        ({"when": {"skipped": 0.9}, "reads": reads}, "reads skip 90.0% of the blocks, 90.0% wanted"),
    ):
        assert unmet(spark, table, **given) == reason
    admits_no_block = {"where": "k > 5000"}
    for given, met in (
        ({"after": {"days": 9}, "when": {"ratio": 60}}, "the reducible ratio is 52.3, 60 wanted"),
        ({"when": [{"query": query, "opens": 2}]}, "the example query opens 3 blocks, 2 wanted"),
        ({"when": {"query": query, "seconds": 1e-6}}, "the example query takes "),
        ({"when": {"skipped": 0.95}, "reads": reads}, "reads skip 90.0% of the blocks, 95.0% wanted"),
    ):
        assert str(after_build(spark, table, **given, **admits_no_block).condition_met).startswith(met)
    for wrong in ("select * from nowhere", f"with x as (select 7 as k) insert into {table} select k from x"):
        with pytest.raises(PredicateError, match=r"cannot be planned|a command is no query"):
            after_build(spark, table, when={"query": wrong, "seconds": 1})
    assert spark.table(table).count() == 3000


def test_full_blocks_of_a_single_key_lower_no_ratio_that_a_recluster_waits_for(spark: Any, table: str) -> None:
    """Three days of two full blocks each: no merge can change them."""
    for day in (1, 2, 3) * 2:
        spark.range(10).selectExpr(f"cast({day} as bigint) as k").coalesce(1).writeTo(table).append()
    given: dict[str, Any] = {"when": {"ratio": 70}, "block_rows": 10}
    assert unmet(spark, table, **given) == "the reducible ratio is 100.0, 70 wanted"
    relation = SparkRelation.create(identifier=table.rpartition(".")[2])
    spark.sql(f"alter table {table} set tblproperties ('recluster.option.block_rows' = '10')")
    assert clustering_violations(relation, {"min_ratio": 70}, lambda _: ClusteredTable(spark, table, "k")) == []


def test_rows_deleted_and_updated_and_the_selectivity_of_a_query(spark: Any, table: str) -> None:
    spark.sql(f"alter table {table} set tblproperties ('write.update.mode' = 'merge-on-read')")
    load(spark, table, 3)  # blocks of a hundred keys
    spark.sql(f"delete from {table} where k between 100 and 149")
    spark.sql(f"update {table} set k = 9000 where k = 900")
    of_rows = {"deleted": 200, "updated": 5, "rows": 9000}
    reason = "3,156 of 9,000 rows changed, 150 of 200 rows deleted, 3 of 5 rows updated"
    waits = after_build(spark, table, of_rows)
    assert waits.reason == f"no condition met: {reason}"
    assert waits.waits_for == "5,844 more rows or 50 more rows deleted or 2 more rows updated"
    query = f"select * from {table} where k = 310"
    reason = "the example query returns 1.0% of the rows it opens, 1.0% wanted"
    assert unmet(spark, table, when={"query": query, "selectivity": 0.01}) == reason
    done = after_build(spark, table, when={"query": query, "selectivity": 0.011})
    assert (done.condition_met, bool(done.rounds)) == (reason.replace("1.0% wanted", "1.1% wanted"), True)


@pytest.mark.thorough
def test_a_condition_stays_met_and_counts_after_builds_only(spark: Any, table: str) -> None:
    """A recluster that rewrites nothing, such as one without a gain, leaves the count as it is."""
    for _ in range(3):
        load(spark, table)
        done = after_build(spark, table, {"rows": 1000}, where="k > 5000")
        assert (done.rounds, done.condition_met is None) == ([], False)
        expire(spark, table)
    assert after_build(spark, table, {"rows": 3000}, where="k > 5000").condition_met is not None
    assert after_build(spark, table, {"rows": 1e9}, trigger="manual").rounds


def test_a_rollback_takes_back_what_was_counted(spark: Any, table: str) -> None:
    load(spark, table)
    kept = ClusteredTable(spark, table).iceberg.snapshot_id
    load(spark, table, 2)
    assert unmet(spark, table, {"rows": 9000}) == "3,000 of 9,000 rows changed"
    call(spark, "rollback_to_snapshot", table, f"snapshot_id => {kept}")
    spark.sql(f"refresh table {table}")
    assert unmet(spark, table, {"rows": 9000}) == "1,000 of 9,000 rows changed"
    load(spark, table)
    assert unmet(spark, table, {"rows": 9000, "commits": 9}) == "2,000 of 9,000 rows changed, 2 of 9 commits"


def test_conditions_count_across_create_or_replace(spark: Any, table: str) -> None:
    for build in range(3):
        rows = spark.range(0, 1000, 1, 10).selectExpr("id as k").writeTo(table).using("iceberg")
        rows.tableProperty("write.distribution-mode", "none").createOrReplace()
        changed = 1000 + 2000 * build  # each build after the first one also drops a thousand rows
        reason = unmet(spark, table, {"rows": 9000, "commits": 4})
        assert reason == f"{changed:,} of 9,000 rows changed, {build + 1} of 4 commits"
