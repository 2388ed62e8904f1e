"""The generic test well_clustered, on a model, on a source that dbt does not build, and with wrong arguments."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.util import run_dbt_and_capture, write_file
from operations import EVENTS, Operations

PROPERTIES = """
models:
  - name: events
    data_tests:
      - well_clustered: {name: model_passes, arguments: {max_average_depth: 4, max_p95_depth: 4, min_ratio: 39}}
      - well_clustered: {name: model_fails, arguments: {max_average_depth: 3.5, max_p95_depth: 3, min_ratio: 40}}
      - well_clustered: {name: other_key, arguments: {max_average_depth: 1, cluster_by: id, predicate: id < 2000}}
      - well_clustered: {name: warns, arguments: {max_average_depth: 1}, config: {severity: warn}}
sources:
  - name: lake
    schema: "{{ target.schema }}"
    tables:
      - name: loaded
        data_tests:
          - well_clustered: {name: source_passes, arguments: {max_average_depth: 2, cluster_by: [k]}}
          - well_clustered: {name: source_fails, arguments: {max_average_depth: 1, cluster_by: [k]}}
          - well_clustered: {name: few_blocks, arguments: {max_fragmentation: 2, cluster_by: [k]}}
          - well_clustered: {name: many_blocks, arguments: {max_fragmentation: 1.9, cluster_by: [k]}}
"""
WRONG = """
models:
  - name: events
    data_tests:
      - well_clustered: {name: no_limit}
      - well_clustered: {name: wrong_limit, arguments: {max_average_depth: 0}}
      - well_clustered: {name: wrong_ratio, arguments: {min_ratio: 101}}
      - well_clustered: {name: wrong_key, arguments: {min_ratio: 1, cluster_by: nope}}
      - well_clustered: {name: wrong_predicate, arguments: {min_ratio: 1, predicate: nope = 1}}
      - well_clustered: {name: wrong_name, arguments: {max_averge_depth: 3}}
      - well_clustered: {name: where, arguments: {min_ratio: 1}, config: {where: id < 3}}
"""


class TestWellClustered(Operations):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": EVENTS, "properties.yml": PROPERTIES}

    @pytest.fixture(scope="class", autouse=True)
    def source(self, project: Any, loaded: None) -> None:
        project.run_sql(f"create table {project.test_schema}.loaded (k int) using iceberg")
        for _ in range(2):
            project.run_sql(
                f"insert into {project.test_schema}.loaded select /*+ coalesce(1) */ * from values (1), (9)"
            )

    def test_limits(self, project: Any) -> None:
        results, log = run_dbt_and_capture(["test"], expect_pass=False)
        assert f"{project.test_schema}.events by k: max_average_depth is 3.5, and it has 4\n" in log
        assert f"{project.test_schema}.loaded by k: max_average_depth is 1, and it has 2\n" in log
        found = {result.node.name: (str(result.status), result.failures) for result in results}
        assert found == {
            "model_passes": ("pass", 0),
            "model_fails": ("fail", 3),
            "other_key": ("pass", 0),
            "few_blocks": ("pass", 0),
            "many_blocks": ("fail", 1),
            "warns": ("warn", 1),
            "source_passes": ("pass", 0),
            "source_fails": ("fail", 1),
        }

    def test_wrong_arguments(self, project: Any) -> None:
        write_file(WRONG, project.project_root, "models", "properties.yml")
        results, _ = run_dbt_and_capture(["test"], expect_pass=False)
        messages = {result.node.name: result.message for result in results}
        for name, text in {
            "no_limit": "well_clustered needs a limit: max_average_depth, max_p95_depth, max_fragmentation, min_ratio",
            "wrong_limit": "max_average_depth must be a number of at least 1, not 0",
            "wrong_ratio": "min_ratio must be a number from 0 to 100, not 101",
            "wrong_key": "there is no column 'nope'",
            "wrong_predicate": "'nope = 1' cannot choose blocks",
            "wrong_name": "well_clustered has no argument 'max_averge_depth'; did you mean max_average_depth?",
            "where": "use `predicate` instead",
        }.items():
            assert text in messages[name], messages[name]
