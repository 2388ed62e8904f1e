"""Clustered models, and what a test asks about their tables."""

import json
from typing import Any

import operations
import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file

from dbt_recluster.api import clustering_information

# Reclustered after each load.
EVENTS = operations.EVENTS.replace("automatic_clustering=false", "recluster_depth=2")


def config(**items: Any) -> str:
    return "{{ config(" + ", ".join(f"{key}={value!r}" for key, value in items.items()) + ") }}\n"


def models_of(query: str, materialized: str = "incremental", **configs: dict[str, Any]) -> dict[str, str]:
    """Models of one query, each with a config; materialized alike unless it says otherwise."""
    return {f"{name}.sql": config(**{"materialized": materialized, **items}) + query for name, items in configs.items()}


def snapshot(name: str, source: str, check_cols: Any, **items: Any) -> dict[str, str]:
    """A snapshot of a model, by the values of some columns."""
    head = config(strategy="check", unique_key="id", check_cols=check_cols, **items)
    query = f"select * from {{{{ ref('{source}') }}}}"
    return {f"{name}.sql": f"{{% snapshot {name} %}}{head}{query}{{% endsnapshot %}}"}


def days(cluster_by: str) -> dict[str, str]:
    """A seed of three days, with a quote, a NULL and a percent sign."""
    options = f"{{cluster_by: '{cluster_by}', column_types: {{day: date, name: string}}}}"
    return {
        "days.csv": "day,name\n2026-01-03,it's\n2026-01-01,\n2026-01-02,100%\n",
        "days.yml": f"seeds: [{{name: days, config: {options}}}]",
    }


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
    with operations.parsed():
        results, log = run_dbt_and_capture(["run", "--vars", json.dumps({"load": load}), *more])
    return results, log


class Clustering(operations.ProjectSql):
    """What the test classes of clustered models inherit."""

    @pytest.fixture
    def run(self, project: Any) -> Any:
        """Writes a model and runs it; returns dbt's message for it."""

        def run(name: str, query: str, *flags: str, passes: bool = True, **items: Any) -> str:
            text = config(**{"materialized": "incremental", **items}) + query
            write_file(text, project.project_root, "models", f"{name}.sql")
            (result,) = run_dbt(["run", "--select", name, *flags], expect_pass=passes)
            return str(result.message)

        return run

    @staticmethod
    def properties(sql: Any, table: str) -> dict[str, str]:
        return dict(tuple(row) for row in sql(f"show tblproperties {{schema}}.{table}"))

    @classmethod
    def order(cls, sql: Any, table: str) -> str:
        return cls.properties(sql, table).get("sort-order", "")

    @staticmethod
    def depth(project: Any, spark: Any, table: str) -> float:
        return float(clustering_information(spark, f"{project.test_schema}.{table}")["average_depth"])
