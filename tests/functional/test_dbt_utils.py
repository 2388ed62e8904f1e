"""Macros of dbt_utils that its own SQL cannot serve on Spark.

The package cannot be downloaded in every environment, so a package of its name stands for it that dispatches in the
same way: a macro of dbt_utils to one of the search order, else to its own, which asks for an information_schema.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file

ARGUMENTS = "schema_pattern, table_pattern, exclude='', database=target.database"
GIVEN = "schema_pattern, table_pattern, exclude, database"
PACKAGE = {
    "get_tables_by_pattern_sql.sql": f"""
        {{% macro get_tables_by_pattern_sql({ARGUMENTS}) %}}
          {{{{ return(adapter.dispatch('get_tables_by_pattern_sql', 'dbt_utils')({GIVEN})) }}}}
        {{% endmacro %}}
        {{% macro default__get_tables_by_pattern_sql({ARGUMENTS}) %}}
          select table_schema, table_name, table_type from {{{{ database }}}}.information_schema.tables
        {{% endmacro %}}""",
    "get_relations_by_pattern.sql": f"""
        {{% macro get_relations_by_pattern({ARGUMENTS}) %}}
          {{{{ return(adapter.dispatch('get_relations_by_pattern', 'dbt_utils')({GIVEN})) }}}}
        {{% endmacro %}}
        {{% macro default__get_relations_by_pattern({ARGUMENTS}) %}}
          {{% set found = [] %}}
          {{% for row in run_query(dbt_utils.get_tables_by_pattern_sql({GIVEN})) %}}
            {{% do found.append(
              api.Relation.create(schema=row.table_schema, identifier=row.table_name, type=row.table_type)
            ) %}}
          {{% endfor %}}
          {{{{ return(found) }}}}
        {{% endmacro %}}""",
    "get_relations_by_prefix.sql": """
        {% macro get_relations_by_prefix(schema, prefix, exclude='', database=target.database) %}
          {{ return(adapter.dispatch('get_relations_by_prefix', 'dbt_utils')(schema, prefix, exclude, database)) }}
        {% endmacro %}
        {% macro default__get_relations_by_prefix(schema, prefix, exclude='', database=target.database) %}
          {{ return(dbt_utils.get_relations_by_pattern(schema, prefix ~ '%', exclude, database)) }}
        {% endmacro %}""",
}
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
        for name, text in PACKAGE.items():
            write_file(text, str(package), "macros", name)
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
