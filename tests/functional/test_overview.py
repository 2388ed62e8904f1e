"""clustering_overview: one line for each table, the worst first, verdicts, totals and the gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from operations import EVENTS, PLAIN, Operations, operate, operate_json

from dbt_recluster.maintenance import suspend_recluster

WELL = EVENTS.replace("cluster_by='k'", "cluster_by='id'")
LINES = {"deep": "deep", "well": "well clustered", "paused": "suspended", "broken": "failing"}


class TestOverview(Operations):
    LOADS = 6

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "deep.sql": EVENTS,
            "well.sql": WELL,
            "paused.sql": EVENTS,
            "broken.sql": EVENTS,
            "plain.sql": PLAIN,
        }

    @pytest.fixture(scope="class", autouse=True)
    def states(self, project: Any, loaded: None, spark: Any) -> None:
        suspend_recluster(spark, f"{project.test_schema}.paused")
        project.run_sql(f"alter table {project.test_schema}.broken rename column k to other")

    @pytest.fixture
    def names(self, project: Any) -> dict[str, str]:
        return {verdict: f"{project.test_schema}.{name}" for name, verdict in LINES.items()}

    def test_the_worst_first(self, project: Any, names: dict[str, str]) -> None:
        log = operate("clustering_overview", passes=False)
        lines = [line.split() for line in log.splitlines() if line.strip().startswith(project.test_schema)]
        found = {words[0]: " ".join(words[1:]) for words in lines if not words[0].endswith(":")}
        assert list(found) == [names[v] for v in ("failing", "deep", "suspended", "well clustered")]
        assert found[names["deep"]].startswith("deep 6.0 4 ")
        assert found[names["well clustered"]].startswith("well clustered 1.0 4 ")
        assert "4 tables: 1 failing, 1 deep, 1 suspended, 1 well clustered" in log
        assert f"{names['suspended']}: suspended since " in log
        assert f"{names['failing']}: cluster_by item k: " in log
        assert "total" in log
        # what cannot be read may be anything, so it fails after all others are shown
        assert log.index("total") < log.rindex("there is no column 'k'")

    def test_for_programs(self, names: dict[str, str], sql: Any) -> None:
        tables = ", ".join(names[v] for v in ("deep", "well clustered", "suspended"))
        found = operate_json("clustering_overview", f"{{table: [{tables}, plain], format: json}}")
        by_verdict = {table["verdict"]: table for table in found["tables"]}
        assert list(by_verdict) == ["deep", "suspended", "unclustered", "well clustered"]
        deep, size = by_verdict["deep"], sql("select sum(file_size_in_bytes) from {schema}.deep.files")[0][0]
        assert (deep["average_depth"], deep["threshold"], deep["cluster_key"]) == (6, 4, "k")
        assert (deep["loaded_bytes_day"], deep["loaded_bytes_week"], deep["bytes"]) == (size, size, size)
        assert (deep["last_recluster"], deep["conflicts"], deep["rewritten_bytes_week"]) == (None, 0, 0)
        assert deep["recluster_bytes"] == size
        assert deep["gain_per_gigabyte"] > 0
        assert by_verdict["well clustered"]["recluster_bytes"] == 0
        assert found["totals"]["tables"] == 4
        assert found["totals"]["bytes"] == sum(table["bytes"] for table in found["tables"])

    def test_the_gate(self, names: dict[str, str]) -> None:
        tables = ", ".join(names[v] for v in ("deep", "well clustered", "suspended"))
        log = operate("clustering_overview", f"{{table: [{tables}], fail_on: 'deep,failing'}}", passes=False)
        assert f"{names['deep']} is deep" in log
        assert "failing" not in log
        operate("clustering_overview", f"{{table: [{tables}], fail_on: [failing]}}")
        log = operate("clustering_overview", "{fail_on: 'deep, shallow'}", passes=False)
        assert "fail_on must be verdicts, separated by commas, of failing, deep, " in log
        assert names["deep"] not in log

    def test_metrics(self, names: dict[str, str], tmp_path: Path) -> None:
        """The file of Prometheus' has what the overview shows, also where the gate fails."""
        file = tmp_path / "recluster.prom"
        choice = f"table: [{names['deep']}, {names['suspended']}], metrics: {file}"
        operate("clustering_overview", f"{{{choice}, fail_on: deep}}", passes=False)
        lines = file.read_text().splitlines()
        assert f'dbt_recluster_table_depth{{table="{names["deep"]}"}} 6.0' in lines
        assert f'dbt_recluster_table_verdict{{table="{names["suspended"]}",verdict="suspended"}} 1.0' in lines
        log = operate("clustering_overview", "{table: deep, metrics: /proc/recluster.prom}", passes=False)
        assert log.index("1 table: 1 deep") < log.index("metrics: /proc/recluster.prom cannot be written: ")
        log = operate("clustering_overview", f"{{metrics: {tmp_path}}}", passes=False)
        assert "must be a file in a directory that exists" in log
        assert names["deep"] not in log
