"""`dbt source freshness` without a loaded_at_field: commits that only rewrite files do not make a source fresh."""

import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from dbt.adapters.events.types import SQLQuery
from dbt.tests.util import run_dbt
from dbt_common.events.event_catcher import EventCatcher
from tables import add_catalog, call, compact, expire

from dbt_recluster.api import recluster

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
ICEBERG = ["events", "other", "never", "branched", "expired", "reclustered"]
BESIDE = ["events", "Events", "An-Odd'Name"]
SOURCES = """
sources:
  - name: loaded
    schema: "{{ target.schema }}"
    config: {freshness: {error_after: {count: 1, period: day}}}
    tables:
      - {name: with_query, identifier: parquet, config: {loaded_at_query: select timestamp '2020-01-01'}}
      - {name: LOADED}
  - name: beside
    database: freshness
    schema: "{{ target.schema }}"
    config: {freshness: {error_after: {count: 1, period: day}}}
    tables: [{name: events}, {name: Events}, {name: An-Odd'Name, quoting: {identifier: true}}]
""".replace("LOADED", "}\n      - {name: ".join([*ICEBERG, "parquet", "a_view", "missing"]))


class TestFreshness:
    MODELS = {"sources.yml": SOURCES}

    @pytest.fixture(scope="class", autouse=True)
    def tables(self, project: Any, spark: Any, tmp_path_factory: Any) -> None:
        warehouse = tmp_path_factory.mktemp("freshness").as_uri()
        add_catalog(spark, "freshness", type="hadoop", warehouse=warehouse)
        schema = project.test_schema
        here = [f"{schema}.{table}" for table in ICEBERG]
        for table in (*here, *(f"freshness.{schema}.`{table}`" for table in BESIDE)):
            spark.sql(f"create table {table} (k int) using iceberg")
            for k in range(2 if not table.endswith(".never") else 0):
                spark.sql(f"insert into {table} values ({k}), (3)")
        spark.sql(f"alter table {schema}.branched create branch audit")
        spark.sql(f"insert into {schema}.branched.branch_audit values (9)")
        spark.sql(f"create table {schema}.parquet using parquet as select 1 as k")
        spark.sql(f"create view {schema}.a_view as select 1 as k")

    def test_a_batch_is_one_statement_for_each_catalog(self, project: Any, spark: Any) -> None:
        select = " ".join(["source:beside", *(f"source:loaded.{name}" for name in ICEBERG[:4])])
        found, statements = freshness(select, passes=False)
        schema = project.test_schema
        assert len(statements) == 2
        assert found["loaded.events"] == last_load(spark, f"{schema}.events")
        for table in BESIDE:
            assert found[f"beside.{table}"] == last_load(spark, f"freshness.{schema}.`{table}`")
        assert len(set(found.values())) == len(found)
        assert found["loaded.never"].year == 1
        on_branch = last_load(spark, f"{schema}.branched")
        assert found["loaded.branched"] < on_branch

    def test_what_rewrites_files_does_not_make_a_source_fresh(self, project: Any, spark: Any, monkeypatch: Any) -> None:
        monkeypatch.setenv("TZ", "America/New_York")
        time.tzset()
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        try:
            schema = project.test_schema
            before, _ = freshness("source:loaded.events source:loaded.other")
            assert before["loaded.events"] == last_load(spark, f"{schema}.events")
            recluster(spark, f"{schema}.events", cluster_by="k", depth=1)
            for table in (f"{schema}.events", f"{schema}.other"):
                compact(spark, table)
                call(spark, "rewrite_manifests", table)
            after, _ = freshness("source:loaded.events source:loaded.other")
            assert after == before
            spark.sql(f"delete from {schema}.events where k = 3")
            assert freshness("source:loaded.events")[0]["loaded.events"] > before["loaded.events"]
        finally:
            spark.conf.unset("spark.sql.session.timeZone")
            monkeypatch.undo()
            time.tzset()

    def test_sources_without_snapshots_say_what_to_do(self, project: Any, spark: Any) -> None:
        schema = project.test_schema
        names = ("events", "parquet", "a_view", "missing", "with_query")
        found, statements = freshness(" ".join(f"source:loaded.{name}" for name in names), passes=False)
        assert found["loaded.events"] == last_load(spark, f"{schema}.events")
        assert found["loaded.with_query"].year == 2020
        instead = "so its load time is unknown: give the source a loaded_at_field or"
        assert f"{schema}.parquet is no Iceberg table, {instead}" in found["loaded.parquet"]
        assert f"{schema}.a_view is a view, {instead}" in found["loaded.a_view"]
        assert f"there is no table {schema}.missing" in found["loaded.missing"]
        assert sum("union all" in statement for statement in statements) == 1

    def test_where_the_load_has_expired_nobody_can_tell(self, project: Any, spark: Any) -> None:
        table = f"{project.test_schema}.expired"
        compact(spark, table)
        expire(spark, table)
        found, _ = freshness("source:loaded.expired source:loaded.other", passes=False)
        assert f"the snapshot of the last load of {table} has expired" in found["loaded.expired"]
        assert found["loaded.other"] == last_load(spark, f"{project.test_schema}.other")

    def test_a_recluster_remembers_the_load_that_expires(self, project: Any, spark: Any) -> None:
        table = f"{project.test_schema}.reclustered"
        loaded = last_load(spark, table)
        recluster(spark, table, cluster_by="k", depth=1)
        expire(spark, table)
        compact(spark, table)
        kinds = {row[0] for row in spark.sql(f"select operation from {table}.snapshots").collect()}
        assert kinds == {"replace"}
        assert freshness("source:loaded.reclustered")[0]["loaded.reclustered"] == loaded

    def test_freshness_follows_a_fast_forwarded_branch(self, project: Any, spark: Any) -> None:
        """Its snapshots are not in the table's history, only in the chain of parents."""
        table = f"{project.test_schema}.branched"
        spark.sql(f"insert into {table}.branch_audit values (10)")
        loaded = last_load(spark, table)
        spark.sql(f"call spark_catalog.system.fast_forward('{table}', 'main', 'audit')")
        assert freshness("source:loaded.branched")[0]["loaded.branched"] == loaded
        first = spark.sql(f"select snapshot_id from {table}.snapshots order by committed_at").first()[0]
        spark.sql(f"call spark_catalog.system.rollback_to_snapshot('{table}', {first})")
        assert freshness("source:loaded.branched")[0]["loaded.branched"] < loaded


def last_load(spark: Any, table: str) -> datetime:
    """Return when the last commit was that was no rewrite, on any branch."""
    sql = f"select max(unix_micros(committed_at)) from {table}.snapshots where operation <> 'replace'"
    return EPOCH + timedelta(microseconds=spark.sql(sql).first()[0])


def freshness(select: str, *, passes: bool = True) -> tuple[dict[str, Any], list[str]]:
    """Return when each source was loaded, or why nobody can tell, and the statements on snapshots."""
    asked = EventCatcher(SQLQuery, predicate=lambda event: ".snapshots" in event.data.sql)
    command = ["source", "freshness", "--select", *select.split()]
    done = run_dbt(command, expect_pass=passes, callbacks=[asked.catch])
    found = {
        f"{result.node.source_name}.{result.node.name}": getattr(result, "max_loaded_at", result.message)
        for result in done.results
    }
    return found, [event.data.sql for event in asked.caught_events]
