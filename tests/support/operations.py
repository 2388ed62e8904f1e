"""What the tests of the operations share: a project with one table of overlapping loads, and a way to call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture

EVENTS = """
{{ config(materialized='incremental', cluster_by='k', block_rows=500, automatic_clustering=false) }}
select id, cast(rand({{ var('load', 0) }}) * 1000 as int) as k, timestamp_seconds(id * 1000) as ts, concat('v', id) as v
from range({{ var('load', 0) * 1000 }}, {{ var('load', 0) * 1000 + 1000 }})
"""
PLAIN = "{{ config(materialized='table') }} select 1 as id"


class Operations:
    LOADS = 4

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": EVENTS, "plain.sql": PLAIN}

    @pytest.fixture(scope="class", autouse=True)
    def loaded(self, project: Any) -> None:
        for load in range(self.LOADS):
            load_once(load)

    @pytest.fixture
    def sql(self, project: Any) -> Any:
        return lambda statement: project.run_sql(statement.format(schema=project.test_schema), fetch="all")

    @pytest.fixture
    def table(self, project: Any) -> str:
        return f"{project.test_schema}.events"


def load_once(load: int, *more: str) -> None:
    run_dbt(["run", "--vars", json.dumps({"load": load}), *more])


def operate(name: str, arguments: str = "{}", *, passes: bool = True, more: tuple[str, ...] = ()) -> str:
    """Call an operation and return everything that dbt prints."""
    _, log = run_dbt_and_capture(["run-operation", name, "--args", arguments, *more], expect_pass=passes)
    return str(log)


def operate_json(name: str, arguments: str) -> Any:
    """Call an operation as a program does: quietly, for JSON."""
    _, log = run_dbt_and_capture(["--quiet", "run-operation", name, "--args", arguments])
    return json.loads(log)
