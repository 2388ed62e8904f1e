"""What docs say of a table: the figures in JSON, what strips a table, and the summaries of snapshots."""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tables import append, checksum, make_table, stays_as_it_is

from dbt_recluster.adapter.operations import respond
from dbt_recluster.api import (
    OPERATIONS,
    estimate_recluster,
    import_reads,
    recluster,
    suspend_recluster,
)
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.sort_order import remove_clustering
from dbt_recluster.iceberg.table_properties import PROPERTIES

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Operations that the loop calls with more than a table.
MORE = {"remove_orphan_files": ("--older-than", "4 days")}


@pytest.fixture(scope="module")
def documented() -> dict[str, set[str]]:
    """The names in the tables of the page, by their titles."""
    parts = re.split(r"^## (.*)\n", (DOCS / "reference" / "figures.md").read_text(), flags=re.MULTILINE)
    return {
        title: {name for line in re.findall(r"^\| (`.*?`) \|", body, re.MULTILINE) for name in re.findall(r"\w+", line)}
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


@pytest.mark.thorough
def test_the_page_has_the_names_of_the_json(
    spark: Any, schema: str, run_json: Any, documented: Mapping[str, set[str]]
) -> None:
    table = make_table(spark, schema, files=12, rows=200, properties={"recluster.cluster_by": "k"})
    answers: dict[str, set[str]] = defaultdict(set)
    imported = import_reads(spark, table, queries={"q": f"select * from {table} where k between 10 and 20"})
    answers["import_reads"] |= set(imported.as_dict())

    def ask(name: str, *arguments: str) -> dict[str, Any]:
        code, answer, _ = run_json(name.replace("_", "-"), table, *arguments)
        assert code == 0, answer
        (values,) = answer["tables"]
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
    (row,) = run_json("clustering-overview", table)[1]["tables"]
    answers["clustering_overview: each of its tables"] |= row.keys()
    of_all_tables = ("clustering_report", "clustering_overview")
    for name in sorted(OPERATIONS, key="remove_clustering".__eq__):  # it takes the key away
        if name not in answers and name not in of_all_tables:
            ask(name, *MORE.get(name, ()))

    assert dict(answers) == {title: documented[title] for title in answers}
    assert answers.keys() == {title for title in documented if "JSON" not in title} - {
        "adapter_response",
        "clustering_overview: verdicts",
    }


def test_the_page_has_the_names_of_a_failure_the_command_and_adapter_response(
    spark: Any, schema: str, run_json: Any, documented: Mapping[str, set[str]]
) -> None:
    from dbt.adapters.contracts.connection import AdapterResponse

    code, answer, _ = run_json("recluster", f"{schema}.missing")
    assert (code, answer["error"]) == (2, None)
    assert answer["tables"][0].keys() == documented["JSON in dbt"]
    assert answer.keys() | {"files", "totals"} == documented["JSON of the command"]
    plain = AdapterResponse("OK")
    fields = vars(respond(plain, ReclusterResult("t", "k"), [])).keys() - vars(plain).keys()
    assert fields == documented["adapter_response"]


def test_the_docs_name_what_is_kept_and_their_statements_strip_a_table(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, name="events", files=3, rows=100)
    before = checksum(spark, table)
    assert recluster(spark, table, "k", depth=1, where="k >= 0").rounds
    last = spark.sql(f"select summary from {table}.snapshots order by committed_at desc").first().summary
    page = (DOCS / "reference" / "properties.md").read_text()
    ours = {name for name in last if name.startswith("recluster.")}
    assert len(ours) > 10
    assert not {name for name in ours if f"`{name}`" not in page}
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
    assert checksum(spark, table) == before
    append(spark, table, 300, 10)


KEYED = "set tblproperties ('recluster.cluster_by' = 'k'"


@pytest.mark.parametrize(
    ("changes", "order", "mode"),
    [
        ([], "k", None),
        (["unset tblproperties ('write.distribution-mode')", "write ordered by k", f"{KEYED})"], "k", None),
        (["write ordered by k", f"{KEYED}, 'write.distribution-mode' = 'hash')"], "k", "hash"),
        (["write ordered by id"], None, "range"),
    ],
    ids=["an order that a recluster set", "a model's order", "a mode set by hand", "an order set by hand"],
)
def test_an_operation_removes_what_is_kept_in_a_table(
    spark: Any, schema: str, changes: list[str], order: str | None, mode: str | None
) -> None:
    table = make_table(spark, schema, files=3, rows=100, properties={"mine": "stays"})
    assert recluster(spark, table, "k", depth=1).rounds
    for change in changes:
        spark.sql(f"alter table {table} {change}")
    loaded = IcebergTable.load(spark, table)
    with stays_as_it_is(spark, table):
        removed = remove_clustering(loaded, dry_run=True)
    assert remove_clustering(loaded) == removed
    assert removed[0] == (f"{order} ASC NULLS FIRST" if order else None)
    assert set(removed[1]) >= {"recluster.levels", "recluster.checkpoint"}
    now = IcebergTable.load(spark, table)
    assert [name for name in now.properties if name.startswith("recluster.")] == []
    assert (now.properties["mine"], now.properties.get("write.distribution-mode")) == ("stays", mode)
    assert bool(now.java.sortOrder().isSorted()) is not bool(order)
    assert remove_clustering(loaded) == (None, [])
    append(spark, table, 300, 100)
    assert spark.table(table).count() == 400
