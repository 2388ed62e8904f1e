"""Suspended tables, the budget of a whole run, and the plan of a dry run with the time that it takes."""

import json
import re
from dataclasses import asdict
from typing import Any

import pytest
from clustered_models import run_load
from dbt.tests.util import run_dbt, run_dbt_and_capture
from operations import EVENTS, Operations, load_once, operate, operate_json

from dbt_recluster.api import (
    clustering_depth,
    import_reads,
    recluster,
    resume_recluster,
    suspend_recluster,
)
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_state import Suspension
from dbt_recluster.iceberg.table_properties import SUSPENDED
from dbt_recluster.text import moment_text

AUTOMATIC = EVENTS.replace(", automatic_clustering=false", ", recluster_depth=1")


def files(sql: Any, name: str) -> set[str]:
    return {row[0] for row in sql(f"select file_path from {{schema}}.{name}.files")}


class TestDryRun(Operations):
    PLAN = "{table: events, dry_run: true, depth: 1%s}"

    def test_a_dry_run_shows_the_plan_and_changes_nothing(self, project: Any, table: str, sql: Any) -> None:
        before = files(sql, "events")
        log = operate("recluster", self.PLAN % "")
        held = "a build would recluster nothing now: automatic clustering is off; by hand, it would recluster 4 blocks"
        assert f"1 of 1 {table}: {held}" in log
        assert "set   level  blocks  into   rows" in log
        assert "duration unknown, because the snapshots record no recluster" in log
        assert "depth 4.0, above 1, waiting\n" in log
        plan = operate_json("recluster", self.PLAN % ", format: json")["plan"]
        assert plan["estimated_seconds"] is None
        (planned,) = plan["sets"]
        assert (planned["level"], planned["blocks"], planned["rows"]) == (0, 4, 4000)
        assert int(planned["lower"]) < int(planned["upper"])
        assert files(sql, "events") == before

    def test_time_and_progress_by_the_speed_of_the_history(self, table: str, spark: Any) -> None:
        recluster(spark, table, depth=1, block_rows=500)
        for load in range(4, 8):
            load_once(load)
        found = operate_json("recluster", self.PLAN % ", format: json")
        assert found["plan"]["estimated_seconds"] > 0
        assert found["rounds"] == 0
        assert "at the speed of this table's earlier reclusters" in operate("recluster", self.PLAN % "")
        log = operate("recluster", "{table: events, depth: 1}")
        assert f"{table}: round 1 merges" in log
        assert "by this table's history" in log
        assert f"{table}: round 1 merged" in log


class TestSuspension(Operations):
    MODELS = {"events.sql": AUTOMATIC}

    def test_a_suspended_table_is_reclustered_by_nobody(self, project: Any, table: str, sql: Any, spark: Any) -> None:
        assert f"{table}: suspended since " in operate("suspend_recluster", "{table: events}")
        found = operate_json("suspend_recluster", "{table: events, format: json}")
        iso, user = found["suspended"], found["suspension"]["by"]
        since = moment_text(iso)
        load_once(4)
        (result,), log = run_load(5)
        before, depth = files(sql, "events"), clustering_depth(spark, table)["average_depth"]
        assert depth > 2
        assert f"(not reclustered: suspended since {since} by {user}, depth {depth}, above 1)" in log
        assert result.adapter_response["recluster_suspended"] == iso
        assert f"{table} by k, suspended since {since} by {user}\n" in operate("clustering_information")
        log = operate("recluster", "{table: events, final: true}")
        assert f"{table}: not reclustered: suspended since {since} by " in log
        assert f"to resume: dbt run-operation resume_recluster --args '{{table: {table}}}'" in log
        report = recluster(spark, table, ["id"], depth=1)
        assert (report.rounds, report.suspended) == ([], iso)
        assert files(sql, "events") == before
        assert dict(map(tuple, sql("show tblproperties {schema}.events")))["sort-order"].startswith("k ")
        # a plan changes nothing, so it is still shown
        assert "would recluster" in operate("recluster", "{table: events, dry_run: true, depth: 1}")

        resumed = f"{table}: resumed, was suspended since {since}"
        assert resumed in operate("resume_recluster", "{table: events}")
        assert f"{table}: was not suspended" in operate("resume_recluster", "{table: events}")
        assert ClusteredTable(spark, table).suspended is None
        load_once(6)
        assert clustering_depth(spark, table)["average_depth"] < depth

    def test_a_suspension_shows_who_why_and_until_when(self, project: Any, table: str, spark: Any) -> None:
        reason = 'it\'s a "backfill", until Friday'
        more = f"reason: {json.dumps(reason)}, until: 2999-12-04"
        log = operate("suspend_recluster", f"{{table: events, {more}}}")
        shown = f" by {spark.sparkContext.sparkUser()} until 2999-12-04 00:00:00 UTC: {reason}"
        assert f"{shown}; to resume: " in log
        for name in ("recluster", "clustering_depth", "clustering_overview"):
            assert shown in operate(name, "{table: events}")
        until = "until: 2998-12-04T10:00:00+02:00"
        found = operate_json("suspend_recluster", f"{{table: events, {until}, format: json}}")
        assert found["suspension"]["since"] == found["suspended"]
        assert found["suspension"]["until"] == "2998-12-04T08:00:00+00:00"
        assert found["suspension"]["reason"] == reason
        past = Suspension("2026-01-01T00:00:00+00:00", until="2026-01-02T00:00:00+00:00")
        ClusteredTable(spark, table).iceberg.set_property(SUSPENDED, SUSPENDED.dump(asdict(past)))
        assert "suspended" not in operate("recluster", "{table: events, depth: 1}")
        assert f"{table}: was not suspended" in operate("resume_recluster", "{table: events}")
        assert SUSPENDED not in ClusteredTable(spark, table).iceberg.properties

    @pytest.mark.parametrize(
        ("argument", "message"),
        [
            ("until: 2020-01-01", "until must be a date such as 2026-12-04, or a time, that is to come"),
            ("until: '9999-12-31T23:59:59-23:59'", "until must be a date such as "),
            (f"reason: {'x' * 201}", "reason must be a line of at most 200 characters"),
        ],
    )
    def test_wrong_arguments_do_not_suspend(self, table: str, spark: Any, argument: str, message: str) -> None:
        assert message in operate("suspend_recluster", f"{{table: events, {argument}}}", passes=False)
        assert ClusteredTable(spark, table).suspended is None


class TestBudget(Operations):
    """One budget for a whole run over all models."""

    MODELS = dict.fromkeys(("one.sql", "two.sql", "three.sql"), AUTOMATIC)
    LOADS = 0

    @pytest.mark.thorough
    def test_a_budget_bounds_all_tables_of_a_run(self, project: Any) -> None:
        for load in range(3):
            self.run(load, automatic_clustering=False)
        assert 0 < self.run(3, recluster_max_bytes="60 KB") <= 60 * 1024 < self.run(4)

    @staticmethod
    def run(load: int, **variables: Any) -> int:
        """Load once more; return the bytes rewritten of all models."""
        results = run_dbt(["run", "--vars", json.dumps({"load": load, **variables})])
        return sum(result.adapter_response.get("bytes_rewritten", 0) for result in results)

    def test_a_limit_that_stops_a_needed_recluster(self, project: Any) -> None:
        """It stands on the model's line, in the response, and is a warning that --warn-error makes an error."""
        for load in (6, 7):
            self.run(load, automatic_clustering=False)
        limited = ["--select", "one", "--vars", '{"load": 8, "recluster_max_bytes": "1 KB"}']
        (result,), log = run_load(8, *limited)
        reason = result.adapter_response["recluster_reason"]
        assert "no block set fits into 1.0 KB; " in reason
        assert re.search(r"; it needs [\d.]+ KB$", reason)
        assert result.adapter_response["blocks_rewritten"] == 0
        assert re.search(r"\(depth \d\.\d, above \d: .*no block set fits into ", log)
        why = reason.partition(", and ")[2]
        assert log.count(f"one was built but not reclustered: {why}, depth ") == 1
        results = run_dbt(["run", *limited, "--warn-error"], expect_pass=False)
        assert "no block set fits into 1.0 KB; " in str(results)

    def test_a_budget_by_hand_goes_to_the_most_gain_for_a_byte(self, project: Any, sql: Any, spark: Any) -> None:
        sql("create table {schema}.deep (k int) using iceberg")
        for _ in range(6):
            sql("insert into {schema}.deep values (1), (9)")
        sql("alter table {schema}.deep write ordered by k")
        tables = f"[one, {project.test_schema}.deep]"
        more = ("--vars", json.dumps({"recluster_max_bytes": "10 KB"}))
        log = operate("recluster", f"{{table: {tables}, depth: 1}}", more=more)
        assert f"1 of 2 {project.test_schema}.deep: reclustered" in log

    def test_a_wrong_budget_stops_before_the_build(self, project: Any, sql: Any) -> None:
        before = files(sql, "one")
        results = run_dbt(["run", "--vars", '{"load": 9, "recluster_max_bytes": "lots"}'], expect_pass=False)
        assert "var recluster_max_bytes must be a number of bytes above 0" in results[0].message
        assert files(sql, "one") == before
        _, log = run_dbt_and_capture(["run", "--vars", '{"load": 9, "recluster_max_byte": "1 KB"}'])
        meant = "there is no var or environment variable recluster_max_byte; did you mean recluster_max_bytes?"
        assert log.count(meant) == 1


OF_SEED = "write.metadata.previous-versions-max"


class TestTablesThatAreMadeAnew(Operations):
    """What somebody has said of a table by hand outlives the table; the rest is the model's, or begins anew."""

    LOADS = 0

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        rows = "select id, id as k, concat('v', id) as url from range(9)"
        return {
            "events.sql": "{{ config(materialized='incremental', cluster_by='k', recluster_depth=var('depth', 2), "
            f"recluster_after={{'commits': 9}}) }}}} {rows}",
            "unkeyed.sql": f"{{{{ config(materialized='table') }}}} {rows}",
        }

    SEEDS = {
        **dict.fromkeys(("sown.csv", "Capital.csv"), "k,url\n1,a\n"),
        "sown.yml": f"seeds: [{{name: sown, config: {{tblproperties: {{'{OF_SEED}': 7}}}}}}]",
    }

    @staticmethod
    def properties(spark: Any, table: str) -> dict[str, str]:
        spark.sql(f"refresh table {table}")
        return {
            name: value
            for name, value in ClusteredTable(spark, table).iceberg.properties.items()
            if name.startswith("recluster.")
        }

    @pytest.mark.parametrize("name", ["sown", "capital"])
    def test_a_seed_is_replaced_in_place(self, project: Any, sql: Any, name: str) -> None:
        """As a model is: a property set by hand and a branch stay."""
        run_dbt(["seed"])
        sql(f"alter table {{schema}}.{name} set tblproperties ('by.hand' = 'yes')")
        sql(f"alter table {{schema}}.{name} create branch audit")
        for flags in ([], ["--full-refresh"]):
            run_dbt(["seed", *flags])
            shown = dict(row[:2] for row in sql(f"show tblproperties {{schema}}.{name}"))
            assert shown["by.hand"] == "yes"
            assert shown.get(OF_SEED) == ("7" if name == "sown" else None)
            assert {row[0] for row in sql(f"select name from {{schema}}.{name}.refs")} == {"main", "audit"}
            assert sql(f"select * from {{schema}}.{name}")[0][:] == (1, "a")

    def test_a_full_refresh_keeps_what_was_set_by_hand(self, project: Any, sql: Any, spark: Any) -> None:
        tables = [f"{project.test_schema}.{name}" for name in ("events", "unkeyed", "sown")]
        for _ in range(2):
            run_dbt(["build"])
        carried, since = {}, {}
        for table in tables:
            # Spark shows neither the property of reads of such a column, nor its own.
            import_reads(spark, table, queries={"q": f"select * from {table} where url = 'v1' and k < 2"})
            recorded = self.properties(spark, table)["recluster.reads"]
            since[table] = suspend_recluster(spark, table, reason='the token\'s "password"', until="2999-01-01")[
                "suspended"
            ]
            suspended = self.properties(spark, table)["recluster.suspended"]
            carried[table] = {"recluster.suspended": suspended, "recluster.reads": recorded}
        events = tables[0]
        assert {"recluster.changes", "recluster.option.depth"} <= self.properties(spark, events).keys()

        _, log = run_dbt_and_capture(["build", "--full-refresh", "--vars", "{depth: 3}"])
        assert log.count(f"(not reclustered: suspended since {moment_text(since[events])} by ") == 1
        carried[events] |= {"recluster.cluster_by": "k", "recluster.option.depth": "3"}
        kept = {table: self.properties(spark, table) for table in tables}
        assert json.loads(kept[events].pop("recluster.changes"))["commits"] == 2
        assert kept == carried
        assert sql("select count(*) from {schema}.events")[0][0] == 9

        run_dbt(["build"])  # replaces the tables without a key
        for table in tables:
            assert carried[table]["recluster.suspended"] in self.properties(spark, table).values()
            assert resume_recluster(spark, table)["was_suspended"]
        run_dbt(["build", "--full-refresh"])
        assert not any("recluster.suspended" in self.properties(spark, table) for table in tables)
