"""Operations through dbt that change tables, and the config that maintains after a build."""

import json
from typing import Any

import pytest
from clustered_models import Clustering, run_load
from dbt.cli.main import dbtRunner
from dbt.tests.util import run_dbt_and_capture
from operations import EVENTS, Operations, load_once, operate, operate_json
from tables import make_table

BY_HAND = EVENTS.replace("block_rows=500", "block_rows=500, recluster_depth=2")


class TestRunOperation(Clustering):
    MODELS = {"events.sql": BY_HAND, "others.sql": BY_HAND.replace("'k'", "'ts'")}

    def test_tables_are_reclustered_by_hand(self, project: Any, sql: Any, spark: Any) -> None:
        schema = project.test_schema
        assert f"1 of 2 {schema}.events: not built yet" in operate("recluster")
        for load in range(4):
            run_load(load)
        log = operate("recluster", f"{{table: [events, {schema}.others], final: true, depth: 1}}")
        assert f"1 of 2 {schema}.events: reclustered" in log
        assert f"2 of 2 {schema}.others: " in log
        assert self.depth(project, spark, "events") <= 2
        assert sql("select count(*), count(distinct id) from {schema}.events")[0][:] == (4000, 4000)

        log = operate("recluster", "{table: events, cluster_by: K, where: 'k < 10', max_bytes: 1 GB}")
        assert "events: nothing to do" in log
        quiet = ("--quiet", "run-operation", "recluster", "--args", "{table: events, dry_run: true}")
        assert "events: nothing to do" in run_dbt_and_capture(list(quiet))[1]
        log = operate("recluster", "{table: events, cluster_by: ts}", passes=False)
        assert "events has cluster_by k; change it there instead of naming ts here" in log
        assert self.order(sql, "events") == "k ASC NULLS FIRST"

    def test_a_key_for_a_table_that_has_none(self, project: Any, sql: Any, spark: Any) -> None:
        """A table that dbt did not build gets its key here; a model's key is its model's business."""
        table = make_table(spark, project.test_schema, name="raw_trips", files=4)
        for more, passes, message in (
            ("", False, " has no cluster key: neither the property recluster.cluster_by nor a sort order"),
            (", cluster_by: k, depth: 1, dry_run: true", True, ": would recluster"),
            (
                ", cluster_by: [k, to_date(v)]",
                False,
                "to_date(v): v is string, and this expression needs date",
            ),
        ):
            assert message in operate("recluster", f"{{table: {table}{more}}}", passes=passes)
            assert self.order(sql, "raw_trips") == ""
        log = operate("recluster", f"{{table: {table}, cluster_by: k, depth: 1}}")
        assert f"{table}: reclustered 4 blocks" in log
        assert self.order(sql, "raw_trips") == "k ASC NULLS FIRST"
        assert self.depth(project, spark, "raw_trips") == 1
        assert f"{table}: nothing to do" in operate("recluster", f"{{table: {table}}}")


class TestTablesThatAreNot(Clustering):
    MODELS = {"events.sql": BY_HAND, "others.sql": BY_HAND}

    def test_what_is_no_table_of_iceberg_is_passed_over(self, project: Any, sql: Any) -> None:
        """After `dbt clone`, a model's relation is a view."""
        for name, create in (("events", "view {} as"), ("others", "table {} using parquet as")):
            relation = f"{project.test_schema}.{name}"
            sql(f"create {create.format(relation)} select 1L as id, 1 as k")
            assert f"{relation}: not built yet as an Iceberg table" in operate("recluster")
        of_target = f"is built yet for the target default, whose schema is {project.test_schema}."
        assert of_target in operate("clustering_information")
        assert "2 tables: 2 missing" in operate("clustering_overview")


MAINTAINED = EVENTS.replace("automatic_clustering=false", "recluster_maintain=true, recluster_depth=1")
TAGGED = "{{ config(materialized='table', tags=['hourly'], cluster_by='id') }} select id from range(10)"
VERSIONS = "models: [{name: ver, latest_version: 2, versions: [{v: 1}, {v: 2, config: {tags: [hourly]}}]}]"


class TestOperations(Operations):
    LOADS = 3
    MODELS = {
        "events.sql": EVENTS,
        "tagged.sql": TAGGED,
        "ver_v1.sql": TAGGED.replace("['hourly']", "[]"),
        "ver_v2.sql": TAGGED,
        "versions.yml": VERSIONS,
    }

    def test_expiry_keeps_recent_snapshots_unless_forced(self, project: Any, table: str, sql: Any) -> None:
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

    def test_a_table_has_to_be_named(self, project: Any) -> None:
        told = operate("expire_snapshots", passes=False)
        assert "expire_snapshots needs a table: --args '{table: schema.name}'" in told

    @pytest.mark.thorough
    def test_each_maintenance_operation_says_what_it_did(self, project: Any, table: str) -> None:
        for name, more, message in (
            ("remove_orphan_files", "", "no orphan file older than "),
            ("rewrite_manifests", ", dry_run: true", "would rewrite 3 manifests into 1"),
            ("rewrite_manifests", "", "rewrote 3 manifests into 1"),
            ("rewrite_position_delete_files", "", "no position delete file to rewrite"),
            ("maintain", "", "nothing to do"),
        ):
            assert f"{table}: {message}" in operate(name, f"{{table: events{more}}}")
        refused = operate("maintain", passes=False)
        assert "No model of this project has recluster_maintain: true" in refused

    def test_tables_are_named_as_dbt_lists_them(self, project: Any) -> None:
        listed = dbtRunner().invoke(["--quiet", "ls", "--select", "tag:hourly", "--output", "name"]).result
        printed = operate_json("maintain", json.dumps({"table": listed, "format": "json"}))
        assert [each["table"].rpartition(".")[2] for each in printed] == ["tagged", "ver_v2"]
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

    def test_failed_maintenance_after_a_build_is_a_warning(self, project: Any, table: str, sql: Any) -> None:
        project.run_sql(f"alter table {table} set tblproperties ('history.expire.min-snapshots-to-keep' = 'few')")
        _, log = run_dbt_and_capture(["run", "--vars", '{"load": 3}'])
        assert f"{table} was built but not maintained: " in log
        assert "the property history.expire.min-snapshots-to-keep = 'few', which must be a whole number" in log
        assert sql("select count(*) from {schema}.events")[0][0] == 4000


class TestRemoval(Operations):
    LOADS = 1

    def test_models_without_a_key_are_taken_too(self, project: Any, table: str) -> None:
        removed = "the sort order k ASC NULLS FIRST and recluster."
        assert f"{table}: would remove {removed}" in operate("remove_clustering", "{table: events, dry_run: true}")
        printed = operate("remove_clustering", "{table: [events, plain]}")
        assert "write.distribution-mode" in printed
        assert f"{table}: removed {removed}" in printed
        assert f"{table}: its model has cluster_by, and sets it again at its next run" in printed
        assert f"{project.test_schema}.plain: nothing to remove" in printed
        project.run_sql(f"alter table {table} write ordered by v")
        kept = operate("remove_clustering", "{table: events}")
        assert "its sort order v ASC NULLS FIRST was set by somebody else and stays" in kept
