"""What docs say of a table: the figures in JSON, what strips a table, and the summaries of snapshots."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tables import append, make_table, metadata_file

from dbt_recluster.adapter.operations import respond
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.sort_order import remove_clustering
from dbt_recluster.iceberg.table_properties import PROPERTIES
from dbt_recluster.job.command_line import main
from dbt_recluster.maintenance import estimate_recluster, import_reads, recluster, suspend_recluster
from dbt_recluster.operations.inspection import OPERATIONS

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


DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_statements_of_the_docs_strip_a_table(spark: Any, schema: str) -> None:
    table = f"{schema}.events"
    spark.sql(f"create table {table} (k int, v string) using iceberg")
    for _ in range(3):
        spark.sql(f"insert into {table} select id, 'a' from range(0, 100) order by rand(1)")
    before = spark.table(table).groupBy("k").count().collect()
    assert recluster(spark, table, "k", depth=1).rounds
    suspend_recluster(spark, table)
    (statements,) = re.findall(r"```sql\n(.*?)```", (DOCS / "guides" / "leaving.md").read_text(), re.DOTALL)
    assert {name for name in PROPERTIES if name.startswith("recluster.") and not name.endswith(".")} <= set(
        re.findall(r"'([^']*)'", statements)
    )
    for statement in statements.replace("lake.analytics.events", table).split(";"):
        if statement.strip():
            spark.sql(statement)
    left = {row.key for row in spark.sql(f"show tblproperties {table}").collect()}
    assert not {name for name in left if name.startswith("recluster.")}
    assert not left & {"sort-order", "write.distribution-mode"}
    spark.sql(f"insert into {table} values (1, 'b')")
    assert sorted(spark.table(table).where("v = 'a'").groupBy("k").count().collect()) == sorted(before)


def test_everything_in_the_summary_of_a_recluster_is_documented(spark: Any, schema: str) -> None:
    table = f"{schema}.events"
    spark.sql(f"create table {table} (k int) using iceberg")
    for _ in range(3):
        spark.sql(f"insert into {table} select id from range(0, 100)")
    assert recluster(spark, table, "k", depth=1, where="k >= 0").rounds
    last = spark.sql(f"select summary from {table}.snapshots order by committed_at desc").first().summary
    page = (DOCS / "reference" / "properties.md").read_text()
    ours = {name for name in last if name.startswith("recluster.")}
    assert len(ours) > 10
    assert not {name for name in ours if f"`{name}`" not in page}


@pytest.mark.thorough
@pytest.mark.parametrize("by_model", [True, False], ids=["a model's order", "an order set by hand"])
def test_an_operation_removes_what_is_kept_in_a_table(spark: Any, schema: str, by_model: bool) -> None:
    table = f"{schema}.events"
    spark.sql(f"create table {table} (k int, v string) using iceberg tblproperties ('mine' = 'stays')")
    for _ in range(3):
        spark.sql(f"insert into {table} select id, 'a' from range(0, 100)")
    assert recluster(spark, table, "k", depth=1).rounds
    if by_model:
        spark.sql(f"alter table {table} write ordered by k")
        spark.sql(f"alter table {table} set tblproperties ('recluster.cluster_by' = 'k')")
    loaded, file = IcebergTable.load(spark, table), metadata_file(spark, table)
    order, properties = remove_clustering(loaded, dry_run=True)
    assert metadata_file(spark, table) == file
    assert remove_clustering(loaded) == (order, properties)
    assert order == ("k ASC NULLS FIRST" if by_model else None)
    assert set(properties) >= {"recluster.levels", "recluster.checkpoint"}
    now = IcebergTable.load(spark, table)
    assert [name for name in now.properties if name.startswith("recluster.")] == []
    assert now.properties["mine"] == "stays"
    assert ("write.distribution-mode" in properties) is by_model
    assert "write.distribution-mode" not in now.properties
    assert bool(now.java.sortOrder().isSorted()) is not by_model
    assert remove_clustering(loaded) == (None, [])
    spark.sql(f"insert into {table} select id, 'b' from range(100) order by rand(1)")
    assert spark.table(table).count() == 400


def test_a_distribution_mode_that_no_model_sets_stays(spark: Any, schema: str) -> None:
    table = f"{schema}.events"
    spark.sql(f"create table {table} (k int) using iceberg")
    spark.sql(f"alter table {table} write ordered by k")
    kept = "'recluster.cluster_by' = 'k', 'write.distribution-mode' = 'hash'"
    spark.sql(f"alter table {table} set tblproperties ({kept})")
    assert remove_clustering(IcebergTable.load(spark, table))[1] == ["recluster.cluster_by"]
    assert IcebergTable.load(spark, table).properties["write.distribution-mode"] == "hash"
