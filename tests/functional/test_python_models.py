"""Python models: an error where dbt-spark cannot run them, and built like SQL models where it can."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.adapters.spark.python_submissions import AllPurposeClusterPythonJobHelper
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file

from dbt_recluster.adapter.connections.credentials import ConnectionMethod

MODEL = """
def model(dbt, session):
    dbt.config({config})
    return session.range(0, {rows}).selectExpr({columns})
"""
HOOK = "create table made_by_python_hook as select 1 as id"


def python_model(columns: str, rows: int = 100, **config: Any) -> str:
    items = ", ".join(f"{name}={value!r}" for name, value in config.items())
    return MODEL.format(config=items, rows=rows, columns=columns)


class PythonModels:
    @pytest.fixture
    def sql(self, project: Any) -> Any:
        return lambda statement: project.run_sql(statement.format(schema=project.test_schema), fetch="all")


class TestWhereDbtSparkRunsNone(PythonModels):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "a_table.py": python_model("'id'", materialized="table", pre_hook=HOOK),
            "events.py": python_model("'id'", materialized="incremental", cluster_by="id"),
            "after.sql": "select * from {{ ref('a_table') }}",
        }

    def test_one_sentence_before_anything_is_run(self, project: Any, sql: Any) -> None:
        results, log = run_dbt_and_capture(["run"], expect_pass=False)
        messages = {result.node.name: str(result.message) for result in results}
        for name in ("a_table", "events"):
            assert (
                f"{name} is a Python model, and dbt-spark runs those on Databricks clusters only "
                "(`method: http` or `odbc`), not over `method: embedded`. Write it in SQL."
            ) in messages[name]
            assert len(messages[name].splitlines()) <= 2  # the heading
        assert "Traceback" not in log
        assert "in macro" not in log
        assert [row for row in sql("show tables in {schema}") if not row.isTemporary] == []
        assert "made_by_python_hook" not in [row.tableName for row in sql("show tables in default")]


class TestWhereItRunsThem(PythonModels):
    """A cluster takes the job; here this very session is the cluster."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "a_table.py": python_model("'id', 'id % 7 as K'", materialized="table", cluster_by="k"),
        }

    @pytest.fixture(autouse=True)
    def cluster(self, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
        def submit(helper: Any, compiled_code: str) -> None:
            exec(compiled_code, {"spark": spark, "__name__": "job"})

        monkeypatch.setattr(ConnectionMethod, "runs_python_models", True)
        monkeypatch.setattr(AllPurposeClusterPythonJobHelper, "check_credentials", lambda helper: None)
        monkeypatch.setattr(AllPurposeClusterPythonJobHelper, "submit", submit)

    def test_a_table(self, project: Any, sql: Any) -> None:
        run_dbt(["run"])
        properties = dict(tuple(row) for row in sql("show tblproperties {schema}.a_table"))
        assert properties["sort-order"] == "K ASC NULLS FIRST"
        assert properties["write.metadata.metrics.column.K"] == "full"
        assert sql("select count(*) from {schema}.a_table")[0][0] == 100

    def test_an_incremental_model_that_loses_a_column(self, project: Any, sql: Any) -> None:
        options = {
            "materialized": "incremental",
            "incremental_strategy": "merge",
            "unique_key": "id",
            "cluster_by": "k",
            "on_schema_change": "append_new_columns",
        }
        for columns in ("'id', 'id % 7 as k'", "'id', 'id % 5 as j'"):
            text = python_model(columns, rows=10, **options)
            write_file(text, project.project_root, "models", "merged.py")
            run_dbt(["run", "--select", "merged"])
        assert sql("select count(*), count(k), count(j) from {schema}.merged")[0][:] == (10, 10, 10)
        properties = dict(tuple(row) for row in sql("show tblproperties {schema}.merged"))
        assert properties["sort-order"] == "k ASC NULLS FIRST"
