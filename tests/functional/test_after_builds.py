"""What follows a build: conditions, reads of a model or of the project, and what the line of a model says of it."""

import json
import re
from typing import Any

import pytest
from clustered_models import Clustering, run_load
from dbt.tests.util import run_dbt, run_dbt_and_capture
from operations import EVENTS, Operations, ProjectSql, operate, operate_json
from tables import expire

# Small loads over the whole key, and a read that is seldom: it is cheaper to leave it alone.
LOSING = EVENTS.replace(
    "block_rows=500, automatic_clustering=false",
    "recluster_depth=1, block_rows=100, recluster_reads=[{'where': 'k = 5', 'weight': 0.01}]",
)


class TestCosts(Operations):
    LOADS = 4
    MODELS = {"events.sql": LOSING}

    @pytest.mark.thorough
    def test_a_table_that_costs_more_than_it_saves_is_named(self, table: str, spark: Any) -> None:
        _, log = run_load(4)
        assert " blocks into " in log
        assert "more than it saves" not in log  # of the first week
        expire(spark, table, keep=4)
        (result,), log = run_load(5)
        told = " a day more than it saves; consider recluster_depth: auto, or no cluster_by)"
        assert told in result.adapter_response["_message"]
        assert result.adapter_response["recluster_loss"] > 0


class TestSmallTable(Operations):
    """Fewer than eight full blocks are not merged for their depth after a build, nor is that said at each."""

    MODELS = {"events.sql": EVENTS.replace(", block_rows=500, automatic_clustering=false", "")}

    def test_it_is_merged_only_when_a_depth_is_given(self, table: str) -> None:
        few = "the table has fewer than 8 full blocks, so its depth matters little"
        (result,), log = run_load(4)
        assert re.search(r"OK created .*events .*\(depth 5\.0\)", log)
        assert "8 full blocks" not in log
        assert result.adapter_response["recluster_reason"] == f"depth 5 is above 4, and {few}"
        assert result.adapter_response["verdict"] == "well clustered"
        line = f"{table}: nothing to do, depth 5.0, above 4, well clustered: {few}"
        assert line in operate("recluster", "{table: events}")
        assert f"{table}: {few}" in operate("clustering_overview")
        assert f"{table}: reclustered 5 blocks into 1" in operate("recluster", "{table: events, depth: 1}")


DUE = """
{{ config(materialized='incremental', cluster_by='k', recluster_depth=2, block_rows=100, sort_on_load=false,
          recluster_after=var('after', {'commits': 3}), recluster_maintain=true,
          tblproperties={'history.expire.max-snapshot-age-ms': '1'},
          recluster_when={'query': 'select * from ' ~ this ~ ' where k = 310', 'opens': 20}) }}
select /*+ repartition_by_range(10, k) */ id as k from range(1000)
"""


class TestDueModels(ProjectSql):
    MODELS = {"events.sql": DUE}

    def test_a_build_is_followed_by_a_recluster_when_a_condition_is_met(self, project: Any, sql: Any) -> None:
        """Each build expires the snapshots before it, which count all the same."""
        for number in (1, 2):
            (result,), log = run_dbt_and_capture(["run"])
            more = f"{3 - number} more commit{'s' * (number == 1)}"
            waits = rf"\(depth {number}\.\d, (below|at most|above) 2; next recluster after {more}\)"
            assert re.search(waits, log)
            assert result.adapter_response["recluster_reason"] == (
                f"no condition met: {number} of 3 commits, the example query opens {number} blocks, 20 wanted"
            )
            assert "recluster_condition_met" not in result.adapter_response  # dbt leaves out what is None
            assert sql("select count(*) from {schema}.events.snapshots")[0][0] == 1
        (result,), log = run_dbt_and_capture(["run"])
        assert "events: recluster condition met, 3 of 3 commits" in log.replace("`", "")
        assert result.adapter_response["recluster_condition_met"] == "3 of 3 commits"
        assert result.adapter_response["blocks_rewritten"] == 30


# Each load covers all keys, in ten files.
READ = """
{{ config(materialized='incremental', cluster_by='k', recluster_depth=var('depth', 2), block_rows=100,
          sort_on_load=false, recluster_reads=var('reads', none)) }}
select /*+ repartition_by_range(10, k) */ id as k, {{ var('load', 0) }} as load from range(1000)
"""
READS = [{"where": "k between 310 and 750", "weight": 9}]


class TestReadsOfModels(Clustering):
    MODELS = {"events.sql": READ}

    @pytest.mark.thorough
    def test_reads_of_a_model_decide_its_recluster_and_are_recorded(self, project: Any, sql: Any) -> None:
        def run(load: int, reads: Any, *flags: str, **more: Any) -> tuple[Any, str]:
            variables = json.dumps({"load": load, "reads": reads, **more})
            (result,), log = run_dbt_and_capture(["run", "--vars", variables, *flags], expect_pass=not flags)
            return result, log

        for load in range(2):
            assert run(load, READS)[0].adapter_response["blocks_rewritten"] == 0
        response = run(2, READS)[0].adapter_response
        assert response["blocks_rewritten"] == 6
        assert response["recluster_reason"] == "depth 1 at the ends of reads is at most 2"
        recorded = self.properties(sql, "events")["recluster.option.reads"]
        assert json.loads(recorded) == [{"where": "k between 310 and 750", "weight": 9.0}]
        log = operate("clustering_information", "{table: events}")
        assert re.search(r"by k\n  depth +1\.0, at most 2, well clustered\n", log)
        result, log = run(3, ["nope = 1", *READS])
        assert "events: reads: left out, 'nope = 1' cannot choose blocks of" in log
        reason = result.adapter_response["recluster_reason"]
        assert reason.startswith("depth 2 at the ends of reads is at most 2")
        run(4, None)
        assert "recluster.option.reads" not in self.properties(sql, "events")
        # A hundred thousand reads a day pay for a threshold of 1.
        response = run(0, [{"where": "k = 310", "weight": 100000}], depth="auto")[0].adapter_response
        assert response["blocks_rewritten"]
        assert response["recluster_reason"] == "depth 1 at the ends of reads is at most 1"
        properties = self.properties(sql, "events")
        assert properties["recluster.option.depth"] == "auto"
        assert json.loads(properties["recluster.auto_depth"])["depth"] == 1
        # A warning as dbt's own: it counts no node of a run as one with a warning, whatever warns.
        assert "reads: left out, 'nope = 1'" in str(run(5, ["nope = 1"], "--warn-error")[0].message)


ALL_KEYS = READ.replace("var('reads', none)", "var('reads', 'project')")
RECENT = "select * from {{ ref('events') }} where k >= 310"
MART = "{{ config(materialized='table') }} select count(load) as loads from {{ ref('recent') }} where k <= 750"
OTHER = "{{ config(materialized='table') }} select max(load) as load from {{ ref('events') }} where load > 1"
ONE = "{{ config(materialized='table') }} select 1 as one"
TABLE, JSON = "{table: events}", "{table: events, format: json}"


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
        log = operate("import_reads", TABLE, passes=False)
        assert "nothing of this project that reads it is compiled; run dbt compile first" in log
        assert run(0)["blocks_rewritten"] == 0
        assert run(1)["blocks_rewritten"] == 0
        response = run(2, "events")
        assert response["recluster_reason"] == "depth 1 at the ends of reads is at most 2"
        # Three loads, over 5, 310 and 750. What stays is as deep as before.
        assert response["blocks_rewritten"] == 9
        reads = operate_json("clustering_reads", JSON)
        assert sorted(
            (read["source"], read["imported_from"], *read["columns"].get("k", [])) for read in reads["reads"]
        ) == [
            ("recorded", "project"),
            ("recorded", "project", 5, 5),
            ("recorded", "project", 310, 750),
        ]
        assert reads["share_wasted"] == 0
        text = operate("clustering_reads", TABLE)
        assert re.search(r"events`? by k: \d+ blocks; of the blocks that reads open, 0% are wasted", text)
        assert re.search(r"recorded \(project\) +1 +\d+ +0\.0 +[\d.]+ KB +k from 310 to 750\n", text)
        assert "load from 2 (not of the key)" in text
        # Whoever reclusters by hand follows them too; `even` does not.
        assert "nothing to do, depth" in operate("recluster", TABLE)
        assert run(3, "events", reads="even")["blocks_rewritten"] > 9
        assert "3 ranges forgotten" in operate("forget_reads", TABLE)
        assert "no reads are known" in operate("clustering_reads", TABLE)

    def test_reads_of_the_project_are_imported_by_hand(self, project: Any) -> None:
        imported = operate_json("import_reads", JSON)
        assert (imported["imported_from"], imported["recorded"], imported["left_out"]) == ("project", 3, [])
        assert "3 scans in the project, 3 ranges; 3 ranges recorded with the" in operate("import_reads", TABLE)
        told = operate("import_reads", "{table: one}", passes=False)
        assert "nothing of this project that reads it" in told

    def test_a_key_for_what_the_project_reads(self, project: Any) -> None:
        suggestion = operate_json("suggest_cluster_by", JSON)
        names = [name.rpartition(".")[2] for name in suggestion["queries"]]
        assert sorted(names) == ["late", "mart", "other"]
        keys = {
            tuple(key["cluster_by"]): dict(zip(names, key["opened"], strict=True)) for key in suggestion["candidates"]
        }
        assert keys["k",]["late"] < keys["k",]["mart"] < suggestion["blocks"]
        text = operate("suggest_cluster_by", TABLE)
        assert re.search(r"blocks opened by  now  by ", text)
        assert re.search(r"model\.test\.mart +\d+ +\d+", text)

    def test_import_reads_refuses_bad_arguments(self, project: Any) -> None:
        for arguments, message in [
            ({}, "import_reads needs a table"),
            ({"table": "events", "event_log": 7}, "event_log must be a directory of Spark's event logs"),
            ({"table": "events", "since": "7 days"}, "since and logged_as are about logs"),
            ({"table": "events", "dialect": "trino"}, "name one log"),
            ({"table": "events", "logged_as": "events"}, "logged_as must be a table's full name"),
        ]:
            assert message in operate("import_reads", json.dumps(arguments), passes=False), arguments
