"""Models in a catalog beside the session's, named by database, by config or by an integration of `catalogs.yml`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from clustered_models import models_of, snapshot
from dbt.adapters.events.types import SQLQuery
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file
from dbt_common.events.event_catcher import EventCatcher
from operations import operate, operate_json
from tables import add_catalog

from dbt_recluster.clustering.table import ClusteredTable

CATALOG = "beside"
EVENTS = {"database": CATALOG, "cluster_by": "k", "recluster_depth": 1, "block_rows": 100}
MODELS = {
    **models_of("select id, pmod(hash(id), 100) as k from range(1000)", events=EVENTS),
    "latest.sql": "{{ config(catalog='beside', materialized='view') }} select max(k) as k from {{ ref('events') }}",
    "here.sql": "select e.k, s.name from {{ ref('events') }} e join {{ source('loaded', 'colours') }} s on e.k = s.id",
    "merged.sql": """{{ config(database='beside', materialized='incremental', incremental_strategy='merge',
      unique_key='id', on_schema_change='sync_all_columns') }}
      select 1 as id, 'a' as c {% if is_incremental() %}, 2 as d {% endif %}""",
    "sources.yml": "sources: [{name: loaded, database: beside, schema: '{{ target.schema }}', "
    "tables: [{name: colours}]}]",
}


class TestCatalogBeside:
    @pytest.fixture(scope="class")
    def models(self, spark: Any, tmp_path_factory: Any) -> dict[str, str]:
        """The models, when there is a catalog of Iceberg's with views, in this process."""
        classes = {
            "catalog_impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
            "io_impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        }
        add_catalog(spark, CATALOG, warehouse=tmp_path_factory.mktemp("beside").as_uri(), **classes)
        return MODELS

    SEEDS = {"colours.csv": "id,name\n1,red\n2,blue\n"}
    SNAPSHOTS = snapshot("kept", "colours", ["name"])
    PROJECT_CONFIG_UPDATE = {
        "seeds": {"+database": CATALOG},
        "snapshots": {"+database": CATALOG},
        "models": {"+grants": {"select": ["somebody"]}, "test": {"here": {"+grants": {"select": []}}}},
    }

    @pytest.fixture(scope="class", autouse=True)
    def cleaned(self, project: Any) -> Any:
        yield
        relation = project.adapter.Relation.create(database=CATALOG, schema=project.test_schema)
        with project.adapter.connection_named("clean"):
            project.adapter.drop_schema(relation.without_identifier())
            assert project.test_schema not in project.adapter.list_schemas(CATALOG)

    def test_every_materialization_is_rebuilt_in_a_second_catalog(self, project: Any, spark: Any) -> None:
        run_dbt(["seed"])
        for run in range(3):
            _, log = run_dbt_and_capture(["build"])
            if run == 2:
                assert " blocks into " in log
        assert log.count("grants are left out") == 1
        schema = f"{CATALOG}.{project.test_schema}"
        assert spark.table(f"{schema}.events").count() == 3000
        assert spark.table(f"{schema}.latest").first()[0] == 99
        assert spark.table(f"{schema}.kept").count() == 2
        assert spark.table(f"{schema}.merged").columns == ["id", "c", "d"]
        assert spark.table(f"{project.test_schema}.here").count() > 0
        assert "views" not in [row[1] for row in spark.sql(f"show tables in {project.test_schema}").collect()]

    @pytest.mark.parametrize("has_views", [True, False])
    def test_a_change_that_fails_leaves_the_relation(
        self, has_views: bool, project: Any, spark: Any, hadoop_catalog: str
    ) -> None:
        catalog, schema = CATALOG if has_views else hadoop_catalog, project.test_schema

        def run(materialized: str, query: str, message: str = "") -> list[int]:
            head = f"{{{{ config(database='{catalog}', materialized='{materialized}', cluster_by='id') }}}}"
            write_file(f"{head} {query}", project.project_root, "models", "turned.sql")
            (result,) = run_dbt(["run", "--select", "turned"], expect_pass=not message)
            assert message in str(result.message)
            return sorted(row[0] for row in spark.table(f"{catalog}.{schema}.turned").collect())

        assert run("table", "select 1 as id") == [1]
        message = "already exists" if has_views else "a Hadoop catalog renames no table"
        assert run("view", "select 2 as id, 3 as id", message) == [1]
        order = spark.sql(f"show tblproperties {catalog}.{schema}.turned ('sort-order')").first()[1]
        assert order == "id ASC NULLS FIRST"
        if has_views:
            assert run("view", "select 2 as id") == [2]
            assert run("table", "select cast(raise_error('late') as int) as id", "late") == [2]
            assert run("table", "select 3 as id") == [3]
            assert not [row for row in spark.sql(f"show views in {catalog}.{schema}").collect() if "turned" in row[1]]

    def test_defer_reads_from_the_catalog_of_the_manifest(self, project: Any) -> None:
        state = Path(project.project_root) / "state"
        (Path(project.project_root) / "target").rename(state)
        run_dbt(["compile", "--select", "here", "--defer", "--favor-state", "--state", str(state)])
        compiled = (Path(project.project_root) / "target/compiled/test/models/here.sql").read_text()
        assert f"from {CATALOG}.{project.test_schema}.events e" in compiled

    def test_operations_take_names_of_three_parts(self, project: Any, spark: Any) -> None:
        for name in ("events", f"{CATALOG}.{project.test_schema}.events"):
            depth = operate_json("clustering_depth", f"{{table: {name}, format: json}}")["average_depth"]
            assert depth >= 1
        # Two parts are a name of the current catalog, whatever this project has in another one.
        name = f"{project.test_schema}.events"
        assert f"{name} cannot be loaded" in operate("suspend_recluster", f"{{table: {name}}}", passes=False)
        spark.sql(f"create table {name} (id int) using iceberg")
        assert f"{name}: suspended since " in operate("suspend_recluster", f"{{table: {name}}}")
        assert ClusteredTable(spark, name).suspended is not None
        assert ClusteredTable(spark, f"{CATALOG}.{name}").suspended is None
        spark.sql(f"drop table {name}")

    def test_docs_describe_both_catalogs_and_of_a_selection_nothing_else(self, project: Any) -> None:
        described = EventCatcher(SQLQuery, predicate=lambda event: "describe extended" in event.data.sql)

        def documented(*flags: str) -> Any:
            described.flush()
            run_dbt(["docs", "generate", *flags], callbacks=[described.catch])
            return json.loads((Path(project.project_root) / "target" / "catalog.json").read_text())

        catalog = documented()
        events = catalog["nodes"]["model.test.events"]
        assert events["metadata"]["database"] == CATALOG
        assert set(events["columns"]) == {"id", "k"}
        assert any("depth" in name for name in events["stats"]), events["stats"]
        others = {"model.test.here", "model.test.latest", "seed.test.colours", "snapshot.test.kept"}
        assert others <= set(catalog["nodes"])
        assert "source.test.loaded.colours" in catalog["sources"]
        assert len(described.caught_events) > 4
        assert list(documented("--select", "events")["nodes"]) == ["model.test.events"]
        (statement,) = (event.data.sql for event in described.caught_events)
        assert f"{CATALOG}.{project.test_schema}.events" in statement


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
        {"name": name, "active_write_integration": given[-1]["name"], "write_integrations": given}
        for name, given in entries.items()
    ]
    (Path(root) / "catalogs.yml").write_text(yaml.safe_dump({"catalogs": catalogs}))


class TestCatalogIntegrations:
    MODELS = models_of(
        "select 1 as id",
        "table",
        events={"catalog_name": "rest", "cluster_by": "id"},
        snow={"catalog_name": "horizon"},
        delta={"catalog_name": "delta"},
        misspelt={"materialized": "view", "catalog_name": "resd"},
        own={"catalog": "integrated"},
    ) | {
        **models_of("select * from {{ ref('events') }}", "table", latest={"catalog_name": "hive"}),
        **models_of("select * from {{ ref('latest') }}", "table", here={}),
    }

    @pytest.fixture(scope="class", autouse=True)
    def catalogs(self, project: Any, spark: Any, tmp_path_factory: Any) -> None:
        write_catalogs(project.project_root, ENTRIES)
        add_catalog(spark, "integrated", type="hadoop", warehouse=tmp_path_factory.mktemp("integrated").as_uri())

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
        for text in (
            "snow: catalog_name horizon is an integration of type BUILT_IN; only iceberg_rest and hive_metastore",
            "delta: catalog_name delta is an integration for tables of delta",
            "resd is not among the catalogs of catalogs.yml (delta, hive, horizon, rest)",
            "Set the model's config `catalog` to a Spark catalog",
        ):
            assert text in told
        tables = spark.sql(f"show tables in {project.test_schema}").collect()
        assert {row[1] for row in tables} & {"snow", "delta", "misspelt"} == set()

    def test_a_moved_catalog_asks_for_no_partial_parse(self, project: Any) -> None:
        run_dbt(["parse"])
        moved = {**REST, "adapter_properties": {"catalog": "spark_catalog"}}
        write_catalogs(project.project_root, {**ENTRIES, "rest": [moved]})
        try:
            _, log = run_dbt_and_capture(["run", "--select", "events"], expect_pass=False)
            assert "run once with --no-partial-parse" in " ".join(log.split())
            run_dbt(["--no-partial-parse", "run", "--select", "events"])
        finally:
            write_catalogs(project.project_root, ENTRIES)
