"""estimate_clustering_cost: what the planner expects against what reclustering then really reads."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from operations import EVENTS, PLAIN, Operations, operate, operate_json

from dbt_recluster.cost import estimate_clustering_cost
from dbt_recluster.maintenance import recluster


class TestCost(Operations):
    LOADS = 6

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        by_part = EVENTS.replace("select id", "select id % 2 as p, id").replace(
            "cluster_by='k'", "cluster_by='k', partition_by='p'"
        )
        return {"events.sql": EVENTS, "parts.sql": by_part, "plain.sql": PLAIN}

    def test_before_the_first_clustering(self, project: Any, table: str, spark: Any, sql: Any) -> None:
        size = sql("select sum(file_size_in_bytes) from {schema}.events.files")[0][0]
        found = estimate_clustering_cost(spark, table, depth=1, block_rows=500)
        assert (found.depth, found.expected_depth, found.first_bytes) == (6, 1, size)
        assert (found.loads, found.days) == (6, 1)
        assert found.loaded_bytes_per_day == size
        low, high = found.bytes_per_day
        assert 0 < low <= high
        assert (found.first_seconds, found.actual_bytes_per_day) == (None, None)
        # loads that arrive in the order of a key need no reclustering by it
        assert estimate_clustering_cost(spark, table, "id", depth=1, block_rows=500).first_bytes == 0

    def test_partitions_never_meet(self, project: Any, spark: Any) -> None:
        found = estimate_clustering_cost(spark, f"{project.test_schema}.parts", depth=1, block_rows=500)
        assert (found.depth, found.expected_depth, found.loads) == (6, 1, 6)

    def test_for_people_and_programs(self, project: Any, table: str) -> None:
        log = operate("estimate_clustering_cost", "{table: events}")
        assert f"{table} by k\n  first clustering " in log
        assert "6 loads in 1 day," in log
        assert "how long          not known" in log
        found = operate_json("estimate_clustering_cost", "{table: events, cluster_by: v, format: json}")
        assert (found["table"], found["cluster_key"]) == (table, "v")

    def test_afterwards(self, project: Any, table: str, spark: Any) -> None:
        expected = estimate_clustering_cost(spark, table, depth=1, block_rows=500)
        report = recluster(spark, table, depth=1, block_rows=500, final=True)
        assert report.bytes_in == expected.first_bytes
        found = estimate_clustering_cost(spark, table, depth=1, block_rows=500)
        assert found.first_bytes == 0
        assert found.actual_bytes_per_day == report.bytes_in
        assert found.seconds_per_day is not None
        later = datetime.now(timezone.utc) + timedelta(days=8)
        assert estimate_clustering_cost(spark, table, now=later).loads == 0
        assert "really rewritten" in operate("estimate_clustering_cost", "{table: events}")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("{table: no.table}", "no.table cannot be loaded"),
            ("{table: plain}", "plain has no sort order; name a cluster key"),
            ("{table: events, cluster_by: nope}", "there is no column 'nope'"),
            ("{table: events, cluster_by: 3}", "cluster_by must be a string or a list of strings"),
        ],
    )
    def test_bad_input(self, project: Any, arguments: str, message: str) -> None:
        assert message in operate("estimate_clustering_cost", arguments, passes=False)
