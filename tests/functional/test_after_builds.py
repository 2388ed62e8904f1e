"""What follows a build: conditions, reads of a model or of the project, and what the line of a model says of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture
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
    MODELS = {"events.sql": SUSPENDED}
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


class TestCosts(Operations):
    LOADS = 4
    MODELS = {"events.sql": EVENTS, "losing.sql": LOSING}

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


DUE = """
{{ config(materialized='incremental', cluster_by='k', recluster_depth=2, block_rows=100, sort_on_load=false,
          recluster_after=var('after', {'commits': 3}), recluster_maintain=true,
          tblproperties={'history.expire.max-snapshot-age-ms': '1'},
          recluster_when={'query': 'select * from ' ~ this ~ ' where k = 310', 'opens': 20}) }}
select /*+ repartition_by_range(10, k) */ id as k from range(1000)
"""


class TestDueModels:
    MODELS = {"events.sql": DUE}

    def test_a_build_is_followed_by_a_recluster_when_one_fires(self, project: Any) -> None:
        """Each build expires the snapshots before it, which count all the same."""
        for number in (1, 2):
            results, log = run_dbt_and_capture(["run"])
            waits = rf"\(depth {number}\.\d of 2; next recluster after {3 - number} more commit{'s' * (number == 1)}\)"
            assert re.search(waits, log)
            response = results[0].adapter_response
            assert response["recluster_reason"] == (
                f"no condition met: {number} of 3 commits, the example query opens {number} blocks, 20 wanted"
            )
            assert "recluster_condition_met" not in response  # dbt leaves out what is None
            (snapshots,) = project.run_sql(
                f"select count(*) from {project.test_schema}.events.snapshots", fetch="all"
            )
            assert snapshots[0] == 1
        results, log = run_dbt_and_capture(["run"])
        assert "events: recluster condition met, 3 of 3 commits" in log.replace("`", "")
        assert results[0].adapter_response["recluster_condition_met"] == "3 of 3 commits"
        assert results[0].adapter_response["blocks_rewritten"] == 30

    def test_a_wrong_value_is_an_error_before_anything_is_written(self, project: Any) -> None:
        results = run_dbt(["run", "--vars", json.dumps({"after": {"weeks": 2}})], expect_pass=False)
        assert "recluster_after must be a mapping of commits, rows, share" in results[0].message
        assert "such as {commits: 5}, not {'weeks': 2}" in results[0].message


# Each load covers all keys, in ten files.
READ = """
{{ config(materialized='incremental', cluster_by='k', recluster_depth=var('depth', 2), block_rows=100,
          sort_on_load=false, recluster_reads=var('reads', none)) }}
select /*+ repartition_by_range(10, k) */ id as k, {{ var('load', 0) }} as load from range(1000)
"""
READS = [{"where": "k between 310 and 750", "weight": 9}]


class TestReadsOfModels:
    MODELS = {"events.sql": READ}

    @pytest.mark.thorough
    def test_they_are_followed_and_recorded(self, project: Any) -> None:
        def run(load: int, reads: Any) -> tuple[dict[str, Any], str]:
            results, log = run_dbt_and_capture(["run", "--vars", json.dumps({"load": load, "reads": reads})])
            return results[0].adapter_response, log

        for load in range(2):
            assert run(load, READS)[0]["blocks_rewritten"] == 0
        response, _ = run(2, READS)
        assert response["blocks_rewritten"] == 6
        assert response["recluster_reason"] == "reducible read depth 1 is at most 2"
        properties = dict(project.run_sql(f"show tblproperties {project.test_schema}.events", fetch="all"))
        assert json.loads(properties["recluster.option.reads"]) == [
            {"where": "k between 310 and 750", "weight": 9.0}
        ]
        _, log = run_dbt_and_capture(["run-operation", "clustering_information", "--args", "{table: events}"])
        assert re.search(r"by k\n  read depth +1 of 2, well clustered\n", log)
        response, log = run(3, ["nope = 1", *READS])
        assert "events: reads: left out, 'nope = 1' cannot choose blocks of" in log
        assert response["recluster_reason"].startswith("reducible read depth 2 is at most 2")
        run(4, None)
        properties = dict(project.run_sql(f"show tblproperties {project.test_schema}.events", fetch="all"))
        assert "recluster.option.reads" not in properties
        # A hundred thousand reads a day pay for a threshold of 1.5.
        often = json.dumps({"reads": [{"where": "k = 310", "weight": 100000}], "depth": "auto"})
        results = run_dbt(["run", "--vars", often])
        assert results[0].adapter_response["blocks_rewritten"]
        assert results[0].adapter_response["recluster_reason"] == "reducible read depth 3 is above 1.5"
        properties = dict(project.run_sql(f"show tblproperties {project.test_schema}.events", fetch="all"))
        assert properties["recluster.option.depth"] == "auto"
        assert json.loads(properties["recluster.auto_depth"])["depth"] == 1.5
        # A warning as dbt's own: it counts no node of a run as one with a warning, whatever warns.
        bad = ["--warn-error", "run", "--vars", json.dumps({"load": 5, "reads": ["nope = 1"]})]
        assert "reads: left out, 'nope = 1'" in str(run_dbt(bad, expect_pass=False)[0].message)

    def test_a_wrong_value_is_an_error_before_anything_is_written(self, project: Any) -> None:
        results = run_dbt(["run", "--vars", json.dumps({"reads": [{"weight": 2}]})], expect_pass=False)
        assert "recluster_reads: a read must be a SQL predicate" in results[0].message


ALL_KEYS = READ.replace("var('reads', none)", "var('reads', 'project')")
RECENT = "select * from {{ ref('events') }} where k >= 310"
MART = (
    "{{ config(materialized='table') }} select count(load) as loads from {{ ref('recent') }} where k <= 750"
)
OTHER = "{{ config(materialized='table') }} select max(load) as load from {{ ref('events') }} where load > 1"
ONE = "{{ config(materialized='table') }} select 1 as one"


def operation(name: str, fails: bool = False, **arguments: Any) -> str:
    return operate(name, json.dumps(arguments), passes=not fails)


def as_json(name: str, **arguments: Any) -> Any:
    return operate_json(name, json.dumps({**arguments, "format": "json"}))


@pytest.mark.thorough
class TestReadsOfProjects:
    MODELS = {
        "events.sql": ALL_KEYS,
        "recent.sql": RECENT,
        "mart.sql": MART,
        "other.sql": OTHER,
        "one.sql": ONE,
    }
    TESTS = {"late.sql": "select * from {{ ref('events') }} where k = 5 and load < 0"}
    PROJECT_CONFIG_UPDATE = {"models": {"test": {"recent": {"materialized": "view"}}}}

    def test_merges_follow_what_the_project_reads(self, project: Any) -> None:
        def run(load: int, *select: str, reads: str = "project") -> dict[str, Any]:
            variables = json.dumps({"load": load, "reads": reads})
            results = run_dbt(["build", "--vars", variables, *(["--select", *select] if select else [])])
            return {result.node.name: result.adapter_response for result in results}["events"]

        # Nothing is compiled before the first run.
        log = operation("import_reads", fails=True, table="events")
        assert "nothing of this project that reads it is compiled; run dbt compile first" in log
        assert run(0)["blocks_rewritten"] == 0
        assert run(1)["blocks_rewritten"] == 0
        response = run(2, "events")
        assert response["recluster_reason"] == "reducible read depth 1 is at most 2"
        # Three loads, over 5, 310 and 750. What stays is as deep as before.
        assert response["blocks_rewritten"] == 9
        reads = as_json("clustering_reads", table="events")
        assert sorted(
            (read["source"], read["imported_from"], *read["columns"].get("k", [])) for read in reads["reads"]
        ) == [
            ("recorded", "project"),
            ("recorded", "project", 5, 5),
            ("recorded", "project", 310, 750),
        ]
        assert reads["share_wasted"] == 0
        text = operation("clustering_reads", table="events")
        assert re.search(r"events`? by k: \d+ blocks; of the blocks that reads open, 0% are wasted", text)
        assert re.search(r"recorded \(project\) +1 +\d+ +0\.0 +[\d.]+ KB +k from 310 to 750\n", text)
        assert "load from 2 (not of the key)" in text
        # Whoever reclusters by hand follows them too; `even` does not.
        assert "nothing to do, read depth" in operation("recluster", table="events")
        assert run(3, "events", reads="even")["blocks_rewritten"] > 9
        assert "3 ranges forgotten" in operation("forget_reads", table="events")
        assert "no reads are known" in operation("clustering_reads", table="events")

    def test_by_hand(self, project: Any) -> None:
        imported = as_json("import_reads", table="events")
        assert (imported["imported_from"], imported["recorded"], imported["left_out"]) == ("project", 3, [])
        text = operation("import_reads", table="events")
        assert re.search(
            r"events`?: 3 scans in the project, 3 ranges; 3 ranges recorded with the table", text
        )
        assert "nothing of this project that reads it" in operation("import_reads", fails=True, table="one")

    def test_a_key_for_what_the_project_reads(self, project: Any) -> None:
        suggestion = as_json("suggest_cluster_by", table="events")
        names = [name.rpartition(".")[2] for name in suggestion["queries"]]
        assert sorted(names) == ["late", "mart", "other"]
        keys = {
            tuple(key["cluster_by"]): dict(zip(names, key["opened"], strict=True))
            for key in suggestion["candidates"]
        }
        assert keys["k",]["late"] < keys["k",]["mart"] < suggestion["blocks"]
        text = operation("suggest_cluster_by", table="events")
        assert re.search(r"blocks opened by  now  by ", text)
        assert re.search(r"model\.test\.mart +\d+ +\d+", text)

    def test_bad_arguments(self, project: Any, tmp_path: Path) -> None:
        for arguments, message in [
            ({}, "import_reads needs a table"),
            ({"table": "events", "event_log": 7}, "event_log must be a directory of Spark's event logs"),
            ({"table": "events", "event_log": str(tmp_path / "no")}, "cannot be listed"),
            ({"table": "events", "since": "soon"}, "since must be"),
            ({"table": "events", "since": "7 days"}, "are about Spark's event logs"),
            ({"table": "events", "logged_as": "events"}, "logged_as must be a table's full name"),
            ({"table": "events", "events": "x"}, "import_reads has no argument 'events'"),
        ]:
            assert message in operation("import_reads", fails=True, **arguments), arguments
