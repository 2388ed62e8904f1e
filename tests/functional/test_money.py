"""The var `recluster_prices`: money in the overview with totals by tag, in the history, the estimate and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from operations import EVENTS, Operations, operate, operate_json

READ = EVENTS.replace(
    "cluster_by='k'",
    "cluster_by='k', recluster_reads=[{'where': 'k = 500', 'weight': 1000}], tags=['sales', 'hourly'], group='finance'",
)
OTHER = EVENTS.replace("cluster_by='k'", "cluster_by='k', tags=['sales'], meta={'owner': 'Bob'}")
GROUPS = "groups: [{name: finance, owner: {name: Ann, email: ann@example.com}}]"
WORSE = ["--vars", "{recluster_prices: {currency: EUR, compute_hours: 3}}"]


class TestMoney(Operations):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"read.sql": READ, "other.sql": OTHER, "groups.yml": GROUPS}

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, Any]:
        prices = {"currency": "EUR", "compute_hour": 3600, "terabyte_scanned": 2**20}
        return {"vars": {"recluster_prices": prices}}

    @pytest.fixture(scope="class", autouse=True)
    def reclustered(self, loaded: None) -> None:
        operate("recluster", "{table: read, depth: 1}")

    def test_the_overview_by_tag(self) -> None:
        found = operate_json("clustering_overview", "{by: tag, format: json}")
        by_name = {row["table"].split(".")[-1]: row for row in found["tables"]}
        read, other = by_name["read"], by_name["other"]
        assert read["spent_week"] == read["recluster_seconds"] > 0  # at a unit of money for each second
        assert read["saved_week"] > 0
        assert (other["spent_week"], other["saved_week"]) == (0, None)  # no reads of it are known
        assert read["labels"] == {"tag": ["sales", "hourly"], "group": ["finance"], "owner": ["Ann"]}
        assert other["labels"] == {"tag": ["sales"], "group": [], "owner": ["Bob"]}
        totals = found["totals"]
        assert {tag: part["tables"] for tag, part in totals["by"].items()} == {"hourly": 1, "sales": 2}
        assert totals["by"]["hourly"]["spent_week"] == totals["spent_week"] == read["spent_week"]
        assert totals["saved_week"] == read["saved_week"]
        assert totals["assumption"].startswith("spent: EUR 3,600 an hour")
        text = operate("clustering_overview", "{by: owner}")
        assert "spent 7 d" in text
        assert f"EUR {read['spent_week']:,.2f}" in text
        assert [line.split()[0] for line in text.splitlines() if line.strip().startswith(("Ann", "Bob"))] == [
            "Ann",
            "Bob",
        ]
        assert "saved: EUR 1,048,576 for 2^40 bytes" in text

    def test_the_history(self) -> None:
        found = operate_json("clustering_history", "{table: read, format: json}")
        spent = [entry["spent"] for entry in found["entries"]]
        assert spent[:4] == [None] * 4
        assert found["spent"] == pytest.approx(sum(spent[4:]))
        assert found["spent"] > 0
        assert f"in all EUR {found['spent']:,.2f}; spent: EUR 3,600 an hour" in operate(
            "clustering_history", "{table: read}"
        )

    def test_bad_input_before_anything_runs(self) -> None:
        log = operate("clustering_overview", more=tuple(WORSE), passes=False)
        assert "var recluster_prices has no 'compute_hours'; did you mean compute_hour" in log
        log = operate("clustering_overview", "{by: team}", passes=False)
        assert "by must be tag, group or owner, not 'team'" in log
        assert "total" not in log

    def test_the_estimate_and_the_report(self, project: Any) -> None:
        found = operate_json("estimate_clustering_cost", "{table: read, format: json}")
        assert found["spent_per_day"] == pytest.approx(found["actual_seconds_per_day"])
        assert found["saved_per_day"] == pytest.approx(found["saved_bytes_per_day"] / 2**20, abs=1e-6)
        assert found["cost_per_day"] == pytest.approx(found["seconds_per_day"])
        assert "in fact EUR " in operate("estimate_clustering_cost", "{table: read}")
        operate("clustering_report", "{table: read}")
        page = (Path(project.project_root) / "target/clustering_report.html").read_text()
        assert page.count("EUR ") >= 6  # the row of the index, the facts, and what they assume
