"""Features of dbt beside a cluster key: the rows of docs/guides/dbt-features.md that no other test holds."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture

from dbt_recluster.maintenance import clustering_depth
from dbt_recluster.operations.model_options import ModelOptions

CONTRACT = """
{{ config(
  materialized='incremental', cluster_by='k', block_rows=500, recluster_depth=1,
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
    description: "It's a table of `k`"
    columns:
      - {name: id, data_type: bigint, description: the id, constraints: [{type: not_null}]}
      - {name: k, data_type: int, description: the key}
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
    @pytest.fixture(scope="class")
    def functions(self) -> dict[str, str]:
        return {"doubled.sql": "price * 2", "doubled.yml": FUNCTION}

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"calls.sql": "select {{ function('doubled') }}(1.5) as p", "other.sql": "select 1 as id"}

    def test_functions_are_refused_in_one_sentence(self, project: Any) -> None:
        results, log = run_dbt_and_capture(["build"], expect_pass=False)
        status = {result.node.name: str(result.status) for result in results}
        assert status == {"doubled": "error", "calls": "skipped", "other": "success"}
        assert "doubled is a user-defined function, and Spark 3.5 has none in SQL" in " ".join(log.split())
        assert "in macro" not in log


class TestWhatWorks:
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "contracted.sql": CONTRACT,
            "broken.sql": CONTRACT,
            "retried.sql": RETRIED,
            "properties.yml": PROPERTIES,
        }

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, Any]:
        return {
            "models": {
                "+recluster_max_bytes": "{{ '500 GB' if target.name == 'prod' else '1 GB' }}",
                "+recluster_maintain": "{{ target.name == 'prod' }}",
                "+automatic_clustering": "{{ target.name != 'ci' }}",
            }
        }

    def test_settings_for_each_environment(self, project: Any) -> None:
        nodes = run_dbt(["parse"]).nodes.values()
        config = next(node.config for node in nodes if node.name == "contracted")
        parsed = ModelOptions.of_config(config)
        assert parsed.maintain is False
        assert parsed.automatic_clustering is True
        assert parsed.recluster.max_bytes == 2**30

    @pytest.mark.thorough
    def test_contracts_docs_and_hooks(self, project: Any, spark: Any) -> None:
        for load in range(3):
            run_dbt(["run", "--select", "contracted", "--vars", f"load: {load}"])
        table = f"{project.test_schema}.contracted"
        assert clustering_depth(spark, table) == 1
        described = spark.sql(f"describe table extended {table}").collect()
        comments = {row[0]: row[2] for row in described}
        assert (comments["id"], comments["k"]) == ("the id", "the key")
        assert {row[0]: row[1] for row in described}["Comment"] == "It's a table of `k`"
        hooks = {row[0] for row in spark.sql(f"select at from {project.test_schema}.hooks").collect()}
        assert hooks == {f"after build of {rows}" for rows in (1000, 2000, 3000)}

    def test_a_broken_contract_is_an_error_before_anything_is_written(self, project: Any) -> None:
        _, log = run_dbt_and_capture(["run", "--select", "broken"], expect_pass=False)
        assert "This model has an enforced contract that failed" in log
        tables = project.run_sql(f"show tables in {project.test_schema} like 'broken'", fetch="all")
        assert tables == []

    def test_retry(self, project: Any) -> None:
        run_dbt(["run", "--select", "retried"], expect_pass=False)
        project.run_sql(
            f"create table {project.test_schema}.missing using iceberg as select id from range(5)"
        )
        (result,) = run_dbt(["retry"])
        assert result.node.name == "retried"
        assert result.adapter_response["block_count"] == 1
