"""What happened to a table, and what keeping it clustered costs: what is expected against what is then read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from operations import EVENTS, PLAIN, Operations, load_once, operate, operate_json

from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.maintenance import ClusteredTable, clustering_history, estimate_clustering_cost, recluster


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
        assert (found.first_seconds, found.actual_bytes_per_day) == (None, 0)
        # loads that arrive in the order of a key need no reclustering by it
        by_id = estimate_clustering_cost(spark, table, "id", depth=1, block_rows=500)
        assert (by_id.first_bytes, by_id.loads, by_id.bytes_per_day) == (0, 6, (0, 0))

    def test_partitions_never_meet(self, project: Any, spark: Any) -> None:
        found = estimate_clustering_cost(spark, f"{project.test_schema}.parts", depth=1, block_rows=500)
        assert (found.depth, found.expected_depth, found.loads) == (6, 1, 6)

    def test_for_people_and_programs(self, project: Any, table: str) -> None:
        log = operate("estimate_clustering_cost", "{table: events}")
        assert f"{table} by k\n  first clustering " in log
        assert "6 loads in 1 day," in log
        assert "duration          unknown" in log
        assert "in fact           0 bytes a day in that time, by the table's history" in log
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
        log = operate("estimate_clustering_cost", "{table: events}")
        assert "first clustering  nothing to do, average depth is 1.0" in log
        assert "in fact " in log


AUTOMATIC = EVENTS.replace("automatic_clustering=false", "recluster_depth=2")


class TestHistory(Operations):
    LOADS = 3
    MODELS = {"events.sql": AUTOMATIC}

    def test_loads_and_rounds(self, project: Any, table: str, spark: Any) -> None:
        kinds = [entry.kind for entry in clustering_history(spark, table)]
        assert kinds == ["overwrite", "append", "append", "recluster"]
        recluster(spark, table, final=True, depth=1, block_rows=250)
        load_once(3, "--no-version-check")
        found = clustering_history(spark, table)
        first = found[3]
        assert (first.by, first.cluster_by, len(first.levels)) == ("run", "k", 1)
        assert (first.blocks_in, first.rows_in, first.conflicts) == (3, 3000, 0)
        assert first.bytes_in > 0
        assert first.seconds
        assert first.seconds > 0
        assert (first.depth_before, first.write_amplification) == (3, 1)
        # Each of three loads lies under two others at most, and their rows are three times its own.
        assert 3 < first.benefit_cost <= 6
        assert first.benefit_cost_left is None
        rounds = [entry for entry in found if entry.kind == "recluster"]
        assert {entry.by for entry in rounds} <= {"run", "manual"}
        assert all(entry.depth_after is not None for entry in rounds)
        loads = [entry for entry in found if entry.kind != "recluster"]
        assert [(entry.by, entry.blocks_out, entry.rows_out) for entry in loads] == [("spark", 1, 1000)] * 4
        assert rewrite_speed(ClusteredTable(spark, table))

    def test_for_people_and_programs(self, project: Any, table: str, spark: Any) -> None:
        log = operate("clustering_history", "{table: events}")
        assert "time (UTC)" in log
        entry = next(entry for entry in clustering_history(spark, table) if entry.kind == "recluster")
        assert f"{entry.blocks_in} -> {entry.blocks_out}" in log
        assert f"  {entry.benefit_cost:.3g}  " in log
        assert "benefit/cost: younger loads" in log
        found = operate_json("clustering_history", "{table: events, format: json}")
        assert found["table"] == table
        assert found["entries"] == [
            {**entry.as_dict(), "levels": list(entry.levels), "snapshot_ids": list(entry.snapshot_ids)}
            for entry in clustering_history(spark, table)
        ]

    def test_since(self, project: Any, table: str, spark: Any) -> None:
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        assert clustering_history(spark, table, later) == []
        assert "no commit since" in operate("clustering_history", "{table: events, since: 2999-01-01}")
        assert operate_json("clustering_history", "{table: events, since: 1 day, format: json}")["entries"]

    def test_what_expiry_leaves(self, project: Any, table: str, spark: Any) -> None:
        before = clustering_history(spark, table)
        now = datetime.now(timezone.utc).replace(tzinfo=None)
        spark.sql(
            f"call spark_catalog.system.expire_snapshots('{table}', timestamp '{now + timedelta(days=1)}', 2)"
        )
        after = clustering_history(spark, table)
        assert 0 < len(after) < len(before)
        assert after[-1].snapshot_ids == before[-1].snapshot_ids

    def test_a_table_never_written(self, project: Any, sql: Any, spark: Any) -> None:
        sql("create table {schema}.empty (k int) using iceberg")
        assert clustering_history(spark, f"{project.test_schema}.empty") == []
