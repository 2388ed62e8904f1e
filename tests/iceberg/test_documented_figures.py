"""docs/reference/figures.md has exactly the names that operations answer with in JSON."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tables import append, make_table

from dbt_recluster.adapter.dbt_run import respond
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.job.command_line import main
from dbt_recluster.maintenance import estimate_recluster, import_reads
from dbt_recluster.operations.runner import OPERATIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "figures.md"
# Operations that the loop calls with more than a table.
MORE = {"remove_orphan_files": ("--older-than", "4 days")}


@pytest.fixture(scope="module")
def documented() -> dict[str, set[str]]:
    """The names in the tables of the page, by their titles."""
    parts = re.split(r"^## (.*)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        title: {
            name
            for line in re.findall(r"^\| (`.*?`) \|", body, re.MULTILINE)
            for name in re.findall(r"\w+", line)
        }
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


@pytest.fixture
def answer(spark: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Calls an operation by the command; returns its object."""

    def answer(name: str, *arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        main((name.replace("_", "-"), *arguments, "--json"))
        values: dict[str, Any] = json.loads(capsys.readouterr().out)
        return values

    return answer


@pytest.mark.thorough
def test_the_page_has_the_names_of_the_json(
    spark: Any, schema: str, answer: Any, documented: Mapping[str, set[str]]
) -> None:
    table = make_table(spark, schema, files=12, rows=200, properties={"recluster.cluster_by": "k"})
    answers: dict[str, set[str]] = defaultdict(set)
    imported = import_reads(spark, table, queries={"q": f"select * from {table} where k between 10 and 20"})
    answers["import_reads"] |= set(imported.as_dict())

    def ask(name: str, *arguments: str) -> dict[str, Any]:
        done = answer(name, table, *arguments)
        assert done["exit_code"] == 0, done
        (values,) = done["tables"]
        answers[name] |= values.keys()
        return dict(values)

    plan = ask("recluster", "--dry-run", "--depth", "1")["plan"]
    answers["recluster: its plan"] |= plan.keys()
    answers["recluster: each of the plan's sets"] |= plan["sets"][0].keys()
    ask("recluster", "--depth", "1", "--block-rows", "200")
    append(spark, table, 2400, 200)
    for entry in ask("clustering_history")["entries"]:
        answers["clustering_history: each of its entries"] |= entry.keys()
    answers["clustering_reads: each of its reads"] |= ask("clustering_reads")["reads"][0].keys()
    ask("clustering_information")
    along_curve = ask("clustering_information", "--cluster-by", "hilbert(id, k)")["curve"]
    answers["clustering_information: its curve"] |= along_curve.keys()
    suggested = ask("suggest_cluster_by")["candidates"]
    answers["suggest_cluster_by: each of its candidates"] |= suggested[0].keys()
    answers["The estimate in the report"] |= estimate_recluster(spark, table).as_dict().keys()
    (row,) = answer("clustering_overview", table)["tables"]
    answers["clustering_overview: each of its tables"] |= row.keys()
    of_all_tables = ("clustering_report", "clustering_overview")
    for name in OPERATIONS:  # in this order: one of the last takes the key away
        if name not in answers and name not in of_all_tables:
            ask(name, *MORE.get(name, ()))

    assert dict(answers) == {title: documented[title] for title in answers}
    assert answers.keys() == {title for title in documented if "JSON" not in title} - {"adapter_response"}


def test_the_page_has_the_names_of_a_failure_and_of_the_command(
    spark: Any, schema: str, answer: Any, documented: Mapping[str, set[str]]
) -> None:
    done = answer("recluster", f"{schema}.missing")
    assert (done["exit_code"], done["error"]) == (1, None)
    assert done["tables"][0].keys() == documented["JSON in dbt"]
    assert done.keys() | {"files", "totals"} == documented["JSON of the command"]


def test_the_page_has_the_fields_of_adapter_response(documented: Mapping[str, set[str]]) -> None:
    from dbt.adapters.contracts.connection import AdapterResponse

    plain = AdapterResponse("OK")
    fields = vars(respond(plain, ReclusterResult("t", "k"), [])).keys() - vars(plain).keys()
    assert fields == documented["adapter_response"]
