"""`dbt run-operation recluster`."""

from __future__ import annotations

from typing import Any

import pytest
from clustered_models import EVENTS, Clustering, config, run_load
from operations import operate
from tables import make_table


class TestRunOperation(Clustering):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "events.sql": EVENTS.replace("cluster_by='k'", "cluster_by='k', automatic_clustering=false"),
            "others.sql": EVENTS.replace("cluster_by='k'", "cluster_by='ts', automatic_clustering=false"),
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
            ("{table: nope}", "nope is no model, seed or snapshot of this project"),
            ("{table: events, final: perhaps}", "final must be true or false"),
            ("{table: events, max_bytes: lots}", "max_bytes must be a number of bytes"),
            ("{table: events, depth: 0}", "depth must be a number of at least 1"),
            ("{table: events, strategy: best}", "strategy must be one of"),
            ("{table: [plain, events], where: 'nope = 1'}", "2 of 2 tables failed"),
            ("{table: no.table}", "the table failed: no.table"),
            ("{tables: events}", "recluster has no argument 'tables'; did you mean table?"),
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
