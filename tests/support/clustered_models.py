"""Clustered models, and what a test asks about their tables."""

from __future__ import annotations

import json
from typing import Any

import operations
from dbt.tests.util import run_dbt_and_capture
from operations import parsed

from dbt_recluster.maintenance import clustering_information

# Reclustered after each load.
EVENTS = operations.EVENTS.replace(
    "block_rows=500, automatic_clustering=false", "recluster_depth=2, block_rows=500"
)


def config(**items: Any) -> str:
    return "{{ config(" + ", ".join(f"{key}={value!r}" for key, value in items.items()) + ") }}\n"


def microbatch(**more: Any) -> dict[str, str]:
    """Models of ten rows an hour for three days, and of a batch for each day."""
    keyed = {"partition_by": "day", "cluster_by": "k", "recluster_depth": 1, **more}
    batches = {"incremental_strategy": "microbatch", "batch_size": "day", "begin": "2026-01-01", **keyed}
    return {
        "raw.sql": config(materialized="table", event_time="at")
        + "select id, timestampadd(hour, cast(id % 72 as int), timestamp '2026-01-01') as at, "
        "cast(rand(1) * 100 as int) as k from range(720)",
        "batches.sql": config(materialized="incremental", event_time="at", **batches)
        + "select *, cast(at as date) as day from {{ ref('raw') }}",
    }


def run_load(load: int, *more: str) -> tuple[Any, str]:
    with parsed():
        results, log = run_dbt_and_capture(["run", "--vars", json.dumps({"load": load}), *more])
    return results, log


class Clustering(operations.ProjectSql):
    """What the test classes of clustered models inherit."""

    @staticmethod
    def order(sql: Any, table: str) -> str:
        rows = dict(tuple(row) for row in sql(f"show tblproperties {{schema}}.{table}"))
        return str(rows.get("sort-order", ""))

    @staticmethod
    def depth(project: Any, spark: Any, table: str) -> float:
        return float(clustering_information(spark, f"{project.test_schema}.{table}")["average_depth"])
