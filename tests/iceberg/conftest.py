"""What several files of these tests share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from merges import typed_table
from tables import checksum

from dbt_recluster.job.command_line import main


@pytest.fixture(scope="module")
def typed(spark: Any) -> Iterator[tuple[str, Any]]:
    """A table with a column of every type that a key may have, and its checksum."""
    with typed_table(spark) as name:
        yield name, checksum(spark, name)


@pytest.fixture
def uncached_catalog(spark: Any, hadoop_catalog: str) -> str:
    """A catalog of the test's own that keeps no table in memory."""
    spark.conf.set(f"spark.sql.catalog.{hadoop_catalog}.cache-enabled", "false")
    return hadoop_catalog


@pytest.fixture
def run(spark: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command of ``dbt-recluster``; returns its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def run_json(run: Any) -> Any:
    """Runs a command with ``--json``; returns its exit code, its object and standard error."""

    def run_json(*arguments: str) -> tuple[int, Any, str]:
        code, out, err = run(*arguments, "--json")
        answer = json.loads(out)
        assert answer["exit_code"] == code
        return code, answer, err

    return run_json
