"""`recluster_after` and `recluster_when` on a model: a build is followed by a recluster when one of them fires."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture

MODEL = """
{{ config(materialized='incremental', cluster_by='k', recluster_depth=2, block_rows=100, sort_on_load=false,
          recluster_after=var('after', {'commits': 3}), recluster_maintain=true,
          tblproperties={'history.expire.max-snapshot-age-ms': '1'},
          recluster_when={'query': 'select * from ' ~ this ~ ' where k = 310', 'opens': 20}) }}
select /*+ repartition_by_range(10, k) */ id as k from range(1000)
"""


class TestDueModels:
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": MODEL}

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
