"""The var `recluster_metrics_file`: what runs and operations leave for Prometheus at their end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture
from operations import EVENTS, Operations, operate

RECLUSTERED = EVENTS.replace("automatic_clustering=false", "recluster_depth=1")


class TestMetricsFile(Operations):
    LOADS = 1

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"events.sql": RECLUSTERED, "plain.sql": "{{ config(materialized='table') }} select 1 as id"}

    @staticmethod
    def variables(load: int, file: Path) -> tuple[str, str]:
        return "--vars", json.dumps({"load": load, "recluster_metrics_file": str(file)})

    def test_a_run_and_an_operation_write_their_tables(
        self, project: Any, table: str, tmp_path: Path
    ) -> None:
        file, well_clustered = tmp_path / "r.prom", f'{{table="{table}",verdict="well clustered"}}'
        run_dbt(["run", *self.variables(1, file)])
        text = file.read_text()
        assert f"dbt_recluster_table_verdict{well_clustered} 1.0" in text
        assert f'dbt_recluster_table_recluster_seconds{{period="7d",table="{table}"}} 0.0' not in text
        assert ".plain" not in text
        file.unlink()
        operate("suspend_recluster", "{table: events}", more=self.variables(1, file))
        assert 'verdict="suspended"} 1.0' in file.read_text()
        file.unlink()
        operate("resume_recluster", f"{{table: events, metrics: {file}}}")
        assert f"dbt_recluster_table_verdict{well_clustered} 1.0" in file.read_text()

    @pytest.mark.thorough
    def test_what_cannot_be_written_is_known_before_or_a_warning_after(
        self, project: Any, table: str, sql: Any, tmp_path: Path
    ) -> None:
        count = "select count(*) from {schema}.events"
        before = sql(count)[0][0]
        _, log = run_dbt_and_capture(
            ["run", *self.variables(7, tmp_path / "no" / "r.prom")], expect_pass=False
        )
        assert "var recluster_metrics_file must be a file in a directory that exists" in log
        assert sql(count)[0][0] == before
        _, log = run_dbt_and_capture(["run", *self.variables(7, Path("/proc/recluster.prom"))])
        assert "/proc/recluster.prom cannot be written" in log
        assert sql(count)[0][0] == before + 1000
        log = operate("recluster", "{table: events, metrics: /proc/recluster.prom}")
        assert "metrics: /proc/recluster.prom cannot be written" in log
