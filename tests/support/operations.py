"""What the tests of the operations share: a project with one table of overlapping loads, and a way to call."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from dbt.cli.main import dbtRunner
from dbt.contracts.graph.manifest import Manifest
from dbt.tests.util import run_dbt, run_dbt_and_capture

EVENTS = """
{{ config(materialized='incremental', cluster_by='k', block_rows=500, automatic_clustering=false) }}
select id, cast(rand({{ var('load', 0) }}) * 1000 as int) as k, timestamp_seconds(id * 1000) as ts, concat('v', id) as v
from range({{ var('load', 0) * 1000 }}, {{ var('load', 0) * 1000 + 1000 }})
"""
PLAIN = "{{ config(materialized='table') }} select 1 as id"


class ProjectSql:
    @pytest.fixture
    def sql(self, project: Any) -> Any:
        return lambda statement: project.run_sql(statement.format(schema=project.test_schema), fetch="all")


class Operations(ProjectSql):
    LOADS = 4
    MODELS = {"events.sql": EVENTS, "plain.sql": PLAIN}

    @pytest.fixture(scope="class", autouse=True)
    def loaded(self, project: Any) -> None:
        for load in range(self.LOADS):
            load_once(load)

    @pytest.fixture
    def table(self, project: Any) -> str:
        return f"{project.test_schema}.events"


def load_once(load: int, *more: str) -> None:
    with parsed():
        run_dbt(["run", "--vars", json.dumps({"load": load}), *more])


def operate(name: str, arguments: str = "{}", *, passes: bool = True, more: tuple[str, ...] = ()) -> str:
    """Call an operation and return everything that dbt prints."""
    return _call(["run-operation", name, "--args", arguments, *more], passes=passes)


def operate_json(name: str, arguments: str) -> Any:
    """Call an operation as a program does: quietly, for JSON."""
    return json.loads(_call(["--quiet", "run-operation", name, "--args", arguments]))


def _call(command: list[str], *, passes: bool = True) -> str:
    with parsed():
        return str(run_dbt_and_capture(command, expect_pass=passes)[1])


@contextmanager
def parsed() -> Iterator[None]:
    """Have dbt's commands use what it has parsed before: to parse takes most of a call's time."""
    files = [file for file in Path.cwd().rglob("*") if file.suffix in (".sql", ".yml", ".csv", ".py")]
    manifest = _parse(frozenset((file, file.stat().st_mtime_ns) for file in files if "target" not in file.parts))
    with patch("dbt.tests.util.dbtRunner", partial(dbtRunner, manifest)):
        yield


@lru_cache(maxsize=1)
def _parse(files: frozenset[tuple[Path, int]]) -> Manifest:
    """Parse the project in the working directory, which has these files."""
    manifest = run_dbt(["parse"])
    assert isinstance(manifest, Manifest)
    return manifest
