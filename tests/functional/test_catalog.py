"""dbt docs: the clustering of a table is among its statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.util import run_dbt
from operations import EVENTS, PLAIN, Operations

from dbt_recluster.maintenance import clustering_information, recluster


class TestCatalog(Operations):
    LOADS = 2

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "events.sql": EVENTS,
            "other.sql": EVENTS.replace("'k'", "['id', 'k']"),
            "curved.sql": EVENTS.replace("'k'", "'hilbert(id, k)'"),
            "plain.sql": PLAIN,
        }

    @pytest.mark.thorough
    def test_statistics(self, project: Any, table: str, spark: Any) -> None:
        recluster(spark, table, depth=1, block_rows=500)
        run_dbt(["docs", "generate"])
        catalog = json.loads((Path(project.project_root) / "target" / "catalog.json").read_text())
        stats = {
            name.rpartition(".")[2]: {key: stat["value"] for key, stat in node["stats"].items()}
            for name, node in catalog["nodes"].items()
        }
        assert stats["events"]["cluster_key"] == "k"
        assert stats["events"]["block_count"] == clustering_information(spark, table)["total_block_count"]
        assert stats["events"]["last_recluster"].endswith(" UTC")
        assert (stats["other"]["cluster_key"], stats["other"]["average_depth"]) == ("id, k", 1)
        assert (stats["other"]["clustering_ratio"], stats["other"]["last_recluster"]) == (100, "never")
        assert "block_count" not in stats["plain"]
        curve = clustering_information(spark, f"{project.test_schema}.curved")["curve"]
        opened = [*curve["point_blocks"].values(), curve["box_blocks"]]
        assert [stats["curved"][f"opened_{number}"] for number in range(3)] == opened
        assert "opened_0" not in stats["events"]
        assert set(catalog["nodes"]["model.test.events"]["columns"]) == {"id", "k", "ts", "v"}
