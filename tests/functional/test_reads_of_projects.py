"""What a project reads of its tables: followed by `recluster_reads: project`, and told by the operations on reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.util import run_dbt
from operations import operate, operate_json

# Each load covers all keys, in ten files.
EVENTS = """
{{ config(materialized='incremental', cluster_by='k', recluster_depth=2, block_rows=100, sort_on_load=false,
          recluster_reads=var('reads', 'project')) }}
select /*+ repartition_by_range(10, k) */ id as k, {{ var('load', 0) }} as load from range(1000)
"""
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
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "events.sql": EVENTS,
            "recent.sql": RECENT,
            "mart.sql": MART,
            "other.sql": OTHER,
            "one.sql": ONE,
        }

    @pytest.fixture(scope="class")
    def tests(self) -> dict[str, str]:
        return {"late.sql": "select * from {{ ref('events') }} where k = 5 and load < 0"}

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, Any]:
        return {"models": {"test": {"recent": {"materialized": "view"}}}}

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
