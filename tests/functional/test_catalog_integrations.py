"""`catalogs.yml`: integrations that name a catalog of Spark, and those for other targets of the project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dbt.tests.util import run_dbt, run_dbt_and_capture

REST = {
    "name": "integrated",
    "catalog_type": "ICEBERG_REST",
    "table_format": "iceberg",
    "external_volume": "v",
}
HIVE = {"name": "h", "catalog_type": "hive_metastore", "adapter_properties": {"catalog": "integrated"}}
ENTRIES = {
    "rest": [{"name": "elsewhere", "catalog_type": "built_in"}, REST],
    "hive": [HIVE],
    "horizon": [{"name": "h", "catalog_type": "BUILT_IN", "table_format": "iceberg"}],
    "delta": [{"name": "d", "catalog_type": "hive_metastore", "table_format": "delta"}],
}


def write_catalogs(root: str, entries: dict[str, list[dict[str, Any]]]) -> None:
    catalogs = [
        {
            "name": name,
            "active_write_integration": integrations[-1]["name"],
            "write_integrations": integrations,
        }
        for name, integrations in entries.items()
    ]
    (Path(root) / "catalogs.yml").write_text(yaml.safe_dump({"catalogs": catalogs}))


class TestCatalogIntegrations:
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "events.sql": "{{ config(materialized='table', catalog_name='rest', cluster_by='id') }} select 1 as id",
            "latest.sql": "{{ config(materialized='table', catalog_name='hive') }} select * from {{ ref('events') }}",
            "here.sql": "{{ config(materialized='table') }} select * from {{ ref('latest') }}",
            "snow.sql": "{{ config(materialized='table', catalog_name='horizon') }} select 1 as id",
            "delta.sql": "{{ config(materialized='table', catalog_name='delta') }} select 1 as id",
            "misspelt.sql": "{{ config(materialized='view', catalog_name='resd') }} select 1 as id",
            "own.sql": "{{ config(materialized='table', catalog='integrated') }} select 1 as id",
        }

    @pytest.fixture(scope="class", autouse=True)
    def catalogs(self, project: Any, spark: Any, tmp_path_factory: Any) -> Iterator[None]:
        write_catalogs(project.project_root, ENTRIES)
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop"}
        settings[".warehouse"] = tmp_path_factory.mktemp("integrated").as_uri()
        for name, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.integrated{name}", value)
        yield
        for row in spark.sql(f"show tables in integrated.{project.test_schema}").collect():
            spark.sql(f"drop table integrated.{project.test_schema}.{row[1]}")
        spark.sql(f"drop schema integrated.{project.test_schema}")

    @pytest.mark.thorough
    def test_integrations_that_name_a_catalog_of_spark(self, project: Any, spark: Any) -> None:
        run_dbt(["run", "--select", "events", "latest", "here", "own"])
        there = {row[1] for row in spark.sql(f"show tables in integrated.{project.test_schema}").collect()}
        assert there == {"events", "latest", "own"}
        assert spark.table(f"{project.test_schema}.here").count() == 1

    def test_others_are_refused_for_the_models_that_name_them(self, project: Any, spark: Any) -> None:
        results, log = run_dbt_and_capture(["run", "--exclude", "own"], expect_pass=False)
        status = {result.node.name: str(result.status) for result in results}
        assert {name for name, value in status.items() if value == "error"} == {"snow", "delta", "misspelt"}
        told = " ".join(log.split())
        assert (
            "snow: catalog_name horizon is an integration of type BUILT_IN; only iceberg_rest and hive_metastore"
            in told
        )
        assert "delta: catalog_name delta is an integration for tables of delta" in told
        assert "resd is not among the catalogs of catalogs.yml (delta, hive, horizon, rest)" in told
        assert "Set the model's config `catalog` to a Spark catalog" in told
        tables = spark.sql(f"show tables in {project.test_schema}").collect()
        assert {row[1] for row in tables} & {"snow", "delta", "misspelt"} == set()

    def test_a_model_that_was_parsed_before_the_file_changed(self, project: Any) -> None:
        run_dbt(["parse"])
        moved = {**REST, "adapter_properties": {"catalog": "spark_catalog"}}
        write_catalogs(project.project_root, {**ENTRIES, "rest": [moved]})
        try:
            _, log = run_dbt_and_capture(["run", "--select", "events"], expect_pass=False)
            assert "run once with --no-partial-parse" in " ".join(log.split())
            run_dbt(["--no-partial-parse", "run", "--select", "events"])
        finally:
            write_catalogs(project.project_root, ENTRIES)
