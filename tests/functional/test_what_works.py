"""Features of dbt beside a cluster key: the rows of docs/guides/dbt-features.md that no other test holds."""

import json
from pathlib import Path
from typing import Any

import pytest
from clustered_models import Clustering
from dbt.adapters.spark.python_submissions import AllPurposeClusterPythonJobHelper
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file

from dbt_recluster.adapter.connections.credentials import ConnectionMethod
from dbt_recluster.api import clustering_depth

CONTRACT = """
{{ config(
  materialized='incremental', cluster_by='k', block_rows=100, recluster_depth=1,
  contract={'enforced': true}, on_schema_change='fail',
  persist_docs={'relation': true, 'columns': true},
  pre_hook="create table if not exists {{ this.schema }}.hooks (at string) using iceberg",
  post_hook="insert into {{ this.schema }}.hooks select concat('after build of ', count(*)) from {{ this }}"
) }}
select id, cast(rand({{ var('load', 0) }}) * 1000 as int) as k from range(1000)
"""
PROPERTIES = """
models:
  - name: contracted
    description: "It's a table of `k` in C:\\\\data\\\\"
    columns:
      - {name: id, data_type: bigint, description: the id, constraints: [{type: not_null}]}
      - {name: k, data_type: int, description: 'matches \\d+, it''s'}
  - name: broken
    columns: [{name: id, data_type: bigint}, {name: k, data_type: string}]
"""
RETRIED = """
{{ config(materialized='table', cluster_by='id') }}
select id from {{ target.schema }}.missing
"""
FUNCTION = """
functions:
  - name: doubled
    arguments: [{name: price, data_type: double}]
    returns: {data_type: double}
"""


class TestFunctions:
    FUNCTIONS = {"doubled.sql": "price * 2", "doubled.yml": FUNCTION}
    MODELS = {"calls.sql": "select {{ function('doubled') }}(1.5) as p", "other.sql": "select 1 as id"}

    def test_functions_are_refused_in_one_sentence(self, project: Any) -> None:
        results, log = run_dbt_and_capture(["build"], expect_pass=False)
        status = {result.node.name: str(result.status) for result in results}
        assert status == {"doubled": "error", "calls": "skipped", "other": "success"}
        assert "doubled is a user-defined function, which dbt-recluster does not create" in " ".join(log.split())
        assert "in macro" not in log


class TestWhatWorks:
    MODELS = {
        "contracted.sql": CONTRACT,
        "broken.sql": CONTRACT,
        "retried.sql": RETRIED,
        "properties.yml": PROPERTIES,
    }

    @pytest.mark.thorough
    def test_a_contract_holds_docs_persist_and_hooks_run_around_a_build(self, project: Any, spark: Any) -> None:
        for load in range(3):
            run_dbt(["run", "--select", "contracted", "--vars", f"load: {load}"])
        table = f"{project.test_schema}.contracted"
        assert clustering_depth(spark, table)["average_depth"] == 1
        described = spark.sql(f"describe table extended {table}").collect()
        comments = {row[0]: row[2] for row in described}
        assert (comments["id"], comments["k"]) == ("the id", "matches \\d+, it's")
        assert {row[0]: row[1] for row in described}["Comment"] == "It's a table of `k` in C:\\data\\"
        hooks = {row[0] for row in spark.sql(f"select at from {project.test_schema}.hooks").collect()}
        assert hooks == {f"after build of {rows}" for rows in (1000, 2000, 3000)}

    def test_a_broken_contract_is_an_error_before_anything_is_written(self, project: Any) -> None:
        _, log = run_dbt_and_capture(["run", "--select", "broken"], expect_pass=False)
        assert "This model has an enforced contract that failed" in log
        tables = project.run_sql(f"show tables in {project.test_schema} like 'broken'", fetch="all")
        assert tables == []

    def test_retry_builds_what_failed(self, project: Any) -> None:
        run_dbt(["run", "--select", "retried"], expect_pass=False)
        project.run_sql(f"create table {project.test_schema}.missing using iceberg as select id from range(5)")
        (result,) = run_dbt(["retry"])
        assert result.node.name == "retried"
        assert result.adapter_response["block_count"] == 1


MODEL = """
def model(dbt, session):
    dbt.config({config})
    return session.range(0, {rows}).selectExpr({columns})
"""


def python_model(columns: str, rows: int = 100, **config: Any) -> str:
    items = ", ".join(f"{name}={value!r}" for name, value in config.items())
    return MODEL.format(config=items, rows=rows, columns=columns)


class TestWhereDbtSparkRunsNone(Clustering):
    HOOK = "create table made_by_python_hook as select 1 as id"
    MODELS = {
        "a_table.py": python_model("'id'", materialized="table", pre_hook=HOOK),
        "events.py": python_model("'id'", materialized="incremental", cluster_by="id"),
    }

    def test_a_python_model_is_refused_before_anything_is_run(self, project: Any, sql: Any) -> None:
        results, log = run_dbt_and_capture(["run"], expect_pass=False)
        for result in results:
            assert (
                f"{result.node.name} is a Python model, and dbt-spark runs those on Databricks clusters only "
                "(`method: http` or `odbc`), not over `method: embedded`. Write it in SQL."
            ) in result.message
            assert len(result.message.splitlines()) <= 2  # the heading
        assert "Traceback" not in log
        assert "in macro" not in log
        assert [row for row in sql("show tables in {schema}") if not row.isTemporary] == []
        assert "made_by_python_hook" not in [row.tableName for row in sql("show tables in default")]


class TestWhereItRunsThem(Clustering):
    """A cluster takes the job; here this very session is the cluster."""

    MODELS = {"a_table.py": python_model("'id', 'id % 7 as K'", materialized="table", cluster_by="k")}

    @pytest.fixture(autouse=True)
    def cluster(self, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
        def submit(helper: Any, compiled_code: str) -> None:
            exec(compiled_code, {"spark": spark, "__name__": "job"})

        monkeypatch.setattr(ConnectionMethod, "runs_python_models", True)
        monkeypatch.setattr(AllPurposeClusterPythonJobHelper, "check_credentials", lambda helper: None)
        monkeypatch.setattr(AllPurposeClusterPythonJobHelper, "submit", submit)

    def test_a_table_of_a_python_model_is_clustered(self, project: Any, sql: Any) -> None:
        run_dbt(["run"])
        assert self.order(sql, "a_table") == "K ASC NULLS FIRST"
        assert self.properties(sql, "a_table")["write.metadata.metrics.column.K"] == "full"
        assert sql("select count(*) from {schema}.a_table")[0][0] == 100

    def test_an_incremental_model_that_loses_a_column(self, project: Any, sql: Any) -> None:
        merged = {"materialized": "incremental", "incremental_strategy": "merge", "unique_key": "id"}
        for columns in ("'id', 'id % 7 as k'", "'id', 'id % 5 as j'"):
            options = {**merged, "cluster_by": "k", "on_schema_change": "append_new_columns"}
            text = python_model(columns, rows=10, **options)
            write_file(text, project.project_root, "models", "merged.py")
            run_dbt(["run", "--select", "merged"])
        assert sql("select count(*), count(k), count(j) from {schema}.merged")[0][:] == (10, 10, 10)
        assert self.order(sql, "merged") == "k ASC NULLS FIRST"


# The package dbt_utils cannot be downloaded in every environment, so one of its name stands for it that dispatches in
# the same way: a macro to one of the search order, else to its own, which asks for an information_schema.
PATTERN = "schema_pattern, table_pattern, exclude='', database=target.database"
SIGNATURES = {
    "get_tables_by_pattern_sql": PATTERN,
    "get_relations_by_pattern": PATTERN,
    "get_relations_by_prefix": "schema, prefix, exclude='', database=target.database",
}


def dispatching(name: str, signature: str) -> str:
    given = signature.replace("=''", "").replace("=target.database", "")
    return f"""
        {{% macro {name}({signature}) %}}
          {{{{ return(adapter.dispatch('{name}', 'dbt_utils')({given})) }}}}
        {{% endmacro %}}
        {{% macro default__{name}({signature}) %}}
          {{% do exceptions.raise_compiler_error('{name} asks for an information_schema') %}}
        {{% endmacro %}}"""


PRINT = """
    {% macro show(schema, table, exclude) %}
      {% for r in dbt_utils.get_relations_by_pattern(schema, table, exclude) %}
        {% do print('relation ' ~ r ~ ' ' ~ r.type) %}
      {% endfor %}
      {% for r in run_query(dbt_utils.get_tables_by_pattern_sql(schema, table, exclude)) %}
        {% do print('row ' ~ r.table_schema ~ '.' ~ r.table_name ~ ' ' ~ r.table_type) %}
      {% endfor %}
      {% for r in dbt_utils.get_relations_by_prefix(schema, table | replace('%', '') ~ 'vents_20', exclude) %}
        {% do print('prefixed ' ~ r ~ ' ' ~ r.type) %}
      {% endfor %}
    {% endmacro %}"""


class TestRelationsByPattern:
    PROJECT_CONFIG_UPDATE = {
        "dispatch": [{"macro_namespace": "dbt_utils", "search_order": ["test", "dbt", "dbt_utils"]}]
    }
    MODELS = {
        "events_2025.sql": "{{ config(materialized='table') }} select 1 as id",
        "events_2026.sql": "{{ config(materialized='table') }} select 2 as id",
        "events_all.sql": """
            {% for r in dbt_utils.get_relations_by_pattern(this.schema, 'events\\\\_20__') %}
            select id from {{ r }} {{ 'union all' if not loop.last }}
            {% else %} select 0 as id {% endfor %}""",
        "elsewhere.sql": "{{ config(materialized='table', schema='more') }} select 3 as id",
    }
    MACROS = {"show.sql": PRINT}
    PACKAGES = {"packages": [{"local": "local_dbt_utils"}]}

    @pytest.fixture(scope="class", autouse=True)
    def installed(self, project: Any) -> None:
        package = Path(project.project_root) / "local_dbt_utils"
        (package / "macros").mkdir(parents=True)
        for name, signature in SIGNATURES.items():
            write_file(dispatching(name, signature), str(package), "macros", f"{name}.sql")
        write_file("{name: dbt_utils, version: 1.0.0, config-version: 2}", str(package), "dbt_project.yml")
        run_dbt(["deps"])

    @staticmethod
    def show(**arguments: str) -> list[str]:
        _, log = run_dbt_and_capture(["--quiet", "run-operation", "show", "--args", json.dumps(arguments)])
        kinds = ("relation ", "row ", "prefixed ")
        return [line.strip() for line in log.splitlines() if line.startswith(kinds)]

    def test_tables_and_views_of_every_schema_that_matches(self, project: Any) -> None:
        run_dbt(["run", "--exclude", "events_all"])
        run_dbt(["run", "--select", "events_all"])
        rows = project.run_sql(f"select id from {project.test_schema}.events_all order by id", fetch="all")
        assert [row[0] for row in rows] == [1, 2]

        schema = project.test_schema
        project.run_sql("create or replace temporary view events_temporary as select 1 as id")
        expected = [
            f"{schema}.events_2025 table",
            f"{schema}.events_all view",
            f"{schema}_more.elsewhere table",
        ]
        found = self.show(schema=f"{schema.upper()}%", table="e%", exclude="%2026")
        assert found == [
            *(f"{kind} {each}" for kind in ("relation", "row") for each in expected),
            f"prefixed {schema}.events_2025 table",
        ]
        assert self.show(schema=schema, table="nothing%", exclude="") == []
        assert self.show(schema="no_such_schema", table="%", exclude="") == []
        project.run_sql(f"drop schema {schema}_more cascade")
