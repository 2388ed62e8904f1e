"""Operations through dbt that change tables, and the config that maintains after a build."""

from __future__ import annotations

import json
from typing import Any

import pytest
from clustered_models import Clustering, config, run_load
from dbt.cli.main import dbtRunner
from dbt.tests.util import run_dbt_and_capture
from operations import EVENTS, Operations, load_once, operate, operate_json
from tables import make_table

BY_HAND = EVENTS.replace("block_rows=500", "block_rows=500, recluster_depth=2")


class TestRunOperation(Clustering):
    MODELS = {
        "events.sql": BY_HAND,
        "others.sql": BY_HAND.replace("'k'", "'ts'"),
        "plain.sql": config(materialized="table") + "select 1 as id",
    }

    def operate(self, arguments: str, *, passes: bool = True) -> str:
        return operate("recluster", arguments, passes=passes)

    def test_by_hand(self, project: Any, sql: Any, spark: Any) -> None:
        assert f"1 of 2 {project.test_schema}.events: not built yet" in self.operate("{}")
        for load in range(4):
            run_load(load)
        schema = project.test_schema
        before = sql("select snapshot_id from {schema}.events.snapshots")

        log = self.operate("{table: events, dry_run: true}")
        assert f"1 of 1 {schema}.events: would recluster" in log
        assert sql("select snapshot_id from {schema}.events.snapshots") == before

        log = self.operate("{table: [events, " + f"{schema}.others], final: true, depth: 1}}")
        assert f"1 of 2 {schema}.events: reclustered" in log
        assert f"2 of 2 {schema}.others: " in log
        assert self.depth(project, spark, "events") <= 2
        assert sql("select count(*), count(distinct id) from {schema}.events")[0][:] == (4000, 4000)

        log = self.operate("{table: events, where: 'k < 10', depth: 1, max_bytes: 1 GB}")
        assert "events: nothing to do" in log

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("{table: events, strategy: best}", "strategy must be one of"),
            ("{table: [plain, events], where: 'nope = 1'}", "2 of 2 tables failed"),
            ("{table: no.table}", "the table failed: no.table"),
        ],
    )
    def test_bad_input(self, project: Any, arguments: str, message: str) -> None:
        assert message in self.operate(arguments, passes=False)

    def test_a_key_for_a_table_that_has_none(self, project: Any, sql: Any, spark: Any) -> None:
        """A table that dbt did not build gets its key here; a model's key is its model's business."""
        table = make_table(spark, project.test_schema, name="raw_trips", files=4)
        message = self.operate(f"{{table: {table}}}", passes=False)
        assert (
            f"{table} has no cluster key: neither the property recluster.cluster_by nor a sort order"
            in message
        )

        log = self.operate(f"{{table: {table}, cluster_by: k, depth: 1, dry_run: true}}")
        assert f"{table}: would recluster" in log
        assert self.order(sql, "raw_trips") == ""

        log = self.operate(f"{{table: {table}, cluster_by: [k, to_date(v)]}}", passes=False)
        assert "to_date(v): v is string, and this expression needs date or timestamp" in log
        assert self.order(sql, "raw_trips") == ""

        log = self.operate(f"{{table: {table}, cluster_by: k, depth: 1}}")
        assert f"{table}: reclustered 4 blocks" in log
        assert self.order(sql, "raw_trips") == "k ASC NULLS FIRST"
        assert self.depth(project, spark, "raw_trips") == 1
        assert f"{table}: nothing to do" in self.operate(f"{{table: {table}}}")

    def test_a_key_that_is_not_its_models(self, project: Any, sql: Any) -> None:
        run_load(9)
        before = self.order(sql, "events"), self.order(sql, "plain")
        message = self.operate("{table: events, cluster_by: ts}", passes=False)
        assert "events has cluster_by k; change it there instead of naming ts here" in message
        assert "events: nothing to do" in self.operate("{table: events, cluster_by: K}")
        message = self.operate("{table: [events, others], cluster_by: k}", passes=False)
        assert "cluster_by is for a single table: name it" in message
        message = self.operate("{cluster_by: k}", passes=False)
        assert "cluster_by is for a single table: name it" in message
        assert (self.order(sql, "events"), self.order(sql, "plain")) == before


MAINTAINED = EVENTS.replace("automatic_clustering=false", "recluster_maintain=true, recluster_depth=1")
TAGGED = "{{ config(materialized='table', tags=['hourly'], cluster_by='id') }} select id from range(10)"
VIEW = "{{ config(materialized='view', tags=['a_view']) }} select 1 as id"
VERSIONS = "models: [{name: ver, latest_version: 2, versions: [{v: 1}, {v: 2, config: {tags: [hourly]}}]}]"


class TestOperations(Operations):
    LOADS = 3
    MODELS = {
        "events.sql": EVENTS,
        "tagged.sql": TAGGED,
        "a_view.sql": VIEW,
        "ver_v1.sql": TAGGED.replace("['hourly']", "[]"),
        "ver_v2.sql": TAGGED,
        "versions.yml": VERSIONS,
    }

    def test_expire_snapshots(self, project: Any, table: str, sql: Any) -> None:
        said = operate("expire_snapshots", "{table: events, dry_run: true}")
        assert f"{table}: no snapshot to expire, 3 snapshots kept" in said
        recent = "{table: events, older_than: 0 minutes%s}"
        refused = operate("expire_snapshots", recent % "", passes=False)
        assert "a query that began before older_than may still read what would be deleted" in refused
        planned = operate("expire_snapshots", recent % ", force: true, dry_run: true")
        assert f"{table}: would expire 2 snapshots and free 0 files (0 bytes); history begins at " in planned
        found = operate_json("expire_snapshots", recent % ", force: true, retain_last: 2, format: json")
        assert (found["task"], found["snapshots"], found["kept"]) == ("expire_snapshots", 1, 2)
        assert sql("select count(*) from {schema}.events.snapshots")[0][0] == 2

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("{}", "expire_snapshots needs a table: --args '{table: schema.name}'"),
            ("{table: events, older_than: 2999-01-01}", "older_than lies in the future"),
            ("{table: []}", "table must be a relation"),
            ("{table: ''}", "table must be a relation"),
            ("{select: tag:hourly}", "expire_snapshots has no argument 'select'; it takes table, format"),
            (
                "{table: [events, ver]}",
                "ver may be model.test.ver.v1 or model.test.ver.v2; give one of these",
            ),
        ],
    )
    def test_bad_input(self, project: Any, arguments: str, message: str) -> None:
        assert message in operate("expire_snapshots", arguments, passes=False)

    @pytest.mark.thorough
    def test_the_others(self, project: Any, table: str) -> None:
        said = operate("remove_orphan_files", "{table: events}")
        assert f"{table}: no orphan file older than " in said
        assert f"{table}: would rewrite 3 manifests into 1" in operate(
            "rewrite_manifests", "{table: events, dry_run: true}"
        )
        assert f"{table}: rewrote 3 manifests into 1" in operate("rewrite_manifests", "{table: events}")
        said = operate("rewrite_position_delete_files", "{table: events}")
        assert f"{table}: no position delete file to rewrite" in said
        refused = operate("maintain", passes=False)
        assert "No model of this project has recluster_maintain: true" in refused
        assert f"{table}: nothing to do" in operate("maintain", "{table: events}")

    def test_names_unique_ids_and_what_dbt_lists(self, project: Any) -> None:
        def tables(given: list[str]) -> list[str]:
            printed = operate_json("maintain", json.dumps({"table": given, "format": "json"}))
            return [each["table"].rpartition(".")[2] for each in printed]

        assert tables(["ver.v1", "model.test.tagged"]) == ["ver_v1", "tagged"]
        arguments = ["--quiet", "ls", "--select", "tag:hourly", "--output", "name"]
        listed = dbtRunner().invoke(arguments).result
        assert tables(listed) == ["tagged", "ver_v2"]
        assert "tagged: nothing to do" in operate("recluster", json.dumps({"table": listed, "dry_run": True}))


class TestConfig(Operations):
    LOADS = 2
    MODELS = {"events.sql": MAINTAINED}

    def test_each_build_does_what_is_due(self, project: Any, table: str, sql: Any) -> None:
        before = sql("select count(*) from {schema}.events.snapshots")[0][0]
        assert before > 1
        project.run_sql(f"alter table {table} set tblproperties ('history.expire.max-snapshot-age-ms' = '1')")
        load_once(2)
        assert sql("select count(*) from {schema}.events.snapshots")[0][0] == 1
        assert sql("select count(*) from {schema}.events")[0][0] == 3000
        assert f"{table}: nothing to do" in operate("maintain")

    def test_a_failure_is_a_warning(self, project: Any, table: str, sql: Any) -> None:
        project.run_sql(
            f"alter table {table} set tblproperties ('history.expire.min-snapshots-to-keep' = 'few')"
        )
        _, log = run_dbt_and_capture(["run", "--vars", '{"load": 3}'])
        assert f"{table} was built but not maintained: " in log
        assert (
            "the property history.expire.min-snapshots-to-keep = 'few', which must be a whole number" in log
        )
        assert sql("select count(*) from {schema}.events")[0][0] == 4000


class TestRemoval(Operations):
    LOADS = 1

    def test_models_without_a_key_are_taken_too(self, project: Any, table: str) -> None:
        planned = operate("remove_clustering", "{table: events, dry_run: true}")
        assert f"{table}: would remove the sort order k ASC NULLS FIRST and recluster." in planned
        assert "is not a model's and stays" not in planned
        printed = operate("remove_clustering", "{table: [events, plain]}")
        assert (
            planned.partition(": would remove ")[2].split()[0]
            == printed.partition(": removed ")[2].split()[0]
        )
        assert "write.distribution-mode" in printed
        assert f"{table}: removed the sort order k ASC NULLS FIRST and recluster." in printed
        assert f"{table}: its model has cluster_by, and sets it again at its next run" in printed
        assert f"{project.test_schema}.plain: nothing to remove" in printed
        project.run_sql(f"alter table {table} write ordered by v")
        kept = operate("remove_clustering", "{table: events}")
        assert "its sort order v ASC NULLS FIRST is not a model's and stays" in kept
