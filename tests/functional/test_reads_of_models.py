"""`recluster_reads` on a model: merged where reads end, recorded for others, and never in the way of a build."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture

# Each load covers all keys, in ten files.
MODEL = """
{{ config(materialized='incremental', cluster_by='k', recluster_depth=var('depth', 2), block_rows=100,
          sort_on_load=false, recluster_reads=var('reads', none)) }}
select /*+ repartition_by_range(10, k) */ id as k, {{ var('load', 0) }} as load from range(1000)
"""
READS = [{"where": "k between 310 and 750", "weight": 9}]


class TestReadsOfModels:
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": MODEL}

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
