"""What a model's line of `dbt run` says beside OK: what a user has to know without opening a report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dbt.tests.util import run_dbt_and_capture, write_file
from operations import EVENTS, Operations, operate, operate_json

SUSPENDED = EVENTS.replace(", automatic_clustering=false", ", recluster_depth=1")
# Small loads over the whole key, and a read that is seldom: it is cheaper to leave it alone.
LOSING = SUSPENDED.replace("block_rows=500", "recluster_reads=[{'where': 'k = 5', 'weight': 0.01}]")


def run(load: int, *more: str) -> tuple[Any, str]:
    results, log = run_dbt_and_capture(["run", "--vars", json.dumps({"load": load}), *more])
    return results, log


def line_of(log: str, model: str) -> str:
    (line,) = (line for line in log.splitlines() if f".{model} " in line and " OK " in line)
    return line


class TestSuspended(Operations):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": SUSPENDED}

    LOADS = 1

    def test_a_suspended_table(self, project: Any, table: str) -> None:
        operate("suspend_recluster", "{table: events}")
        suspension = operate_json("clustering_information", "{table: events, format: json}")["suspension"]
        since, user = suspension["since"], suspension["by"]
        results, log = run(1)
        assert f"(not reclustered: suspended since {since} by {user}, depth 2.0 of 1)" in line_of(
            log, "events"
        )
        assert results[0].adapter_response["recluster_suspended"] == since
        assert f"{table} by k, suspended since {since} by {user}\n" in operate("clustering_information")
        assert f"{table} by k: 2, suspended since {since} by {user}\n" in operate("clustering_depth")


class TestKeys(Operations):
    LOADS = 3

    @pytest.mark.thorough
    def test_a_key_that_changes_and_goes(self, project: Any, table: str) -> None:
        by_id = EVENTS.replace("cluster_by='k'", "cluster_by=['v']")
        write_file(by_id, project.project_root, "models", "events.sql")
        _, log = run(3, "--select", "events")
        assert "(cluster_by was k, depth now 2.0)" in line_of(log, "events")
        _, log = run(4, "--select", "events")
        assert "cluster_by was" not in log
        write_file(EVENTS.replace("cluster_by='k', ", ""), project.project_root, "models", "events.sql")
        _, log = run(5, "--select", "events")
        assert "(cluster_by removed, was v: no longer sorted or reclustered)" in line_of(log, "events")
        _, log = run(6, "--select", "events")
        assert "cluster_by removed" not in log


class TestCosts(Operations):
    LOADS = 4

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": EVENTS, "losing.sql": LOSING}

    @pytest.mark.thorough
    def test_what_costs_more_than_it_saves(self, project: Any, table: str, spark: Any) -> None:
        _, log = run(4)
        assert "reclustered" in line_of(log, "losing")
        assert "more than it saves" not in log  # of the first week
        expire = "call spark_catalog.system.expire_snapshots('{}.losing', timestamp '2100-01-01', 4)"
        spark.sql(expire.format(project.test_schema))
        results, log = run(5)
        line = line_of(log, "losing")
        assert " a day more than it saves; consider recluster_depth: auto, or no cluster_by)" in line
        response = next(r.adapter_response for r in results if r.node.name == "losing")
        assert response["recluster_loss"] > 0
        few = f"{project.test_schema}.losing: fewer than 8 blocks, so a query opens few anyhow; do not cluster it yet"
        assert log.count(few) == 1
