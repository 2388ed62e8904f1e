"""clustering_history: what happened to a table, read from its own snapshots."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from operations import Operations, load_once, operate, operate_json

from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.maintenance import ClusteredTable, clustering_history, recluster

AUTOMATIC = """
{{ config(materialized='incremental', cluster_by='k', block_rows=500, recluster_depth=2) }}
select id, cast(rand({{ var('load', 0) }}) * 1000 as int) as k
from range({{ var('load', 0) * 1000 }}, {{ var('load', 0) * 1000 + 1000 }})
"""


class TestHistory(Operations):
    LOADS = 3

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": AUTOMATIC}

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

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("{table: nope}", "nope is no model"),
            ("{table: no.table}", "no.table cannot be loaded"),
            ("{table: events, since: lately}", "since must be a date such as 2026-01-31"),
            ("{table: events, format: [1]}", "format must be text or json"),
        ],
    )
    def test_bad_input(self, project: Any, arguments: str, message: str) -> None:
        assert message in operate("clustering_history", arguments, passes=False)
