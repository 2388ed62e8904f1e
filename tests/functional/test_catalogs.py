"""Models, seeds, snapshots and sources in a catalog beside the session's: names of three parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dbt.adapters.events.types import SQLQuery
from dbt.tests.util import run_dbt, run_dbt_and_capture
from dbt_common.events.event_catcher import EventCatcher
from operations import operate, operate_json

from dbt_recluster.clustering.table import ClusteredTable

CATALOG = "beside"
EVENTS = """{{ config(materialized='incremental', database='beside', cluster_by='k', recluster_depth=1,
                     block_rows=500) }}
select id, pmod(hash(id), 100) as k from range(1000)"""
MODELS = {
    "events.sql": EVENTS,
    "latest.sql": "{{ config(catalog='beside', materialized='view') }} select max(k) as k from {{ ref('events') }}",
    "here.sql": "select e.k, s.name from {{ ref('events') }} e join {{ source('loaded', 'colours') }} s on e.k = s.id",
    "merged.sql": """{{ config(database='beside', materialized='incremental', incremental_strategy='merge',
      unique_key='id', on_schema_change='sync_all_columns') }}
      select 1 as id, 'a' as c {% if is_incremental() %}, 2 as d {% endif %}""",
    "sources.yml": """
sources:
  - name: loaded
    database: beside
    schema: "{{ target.schema }}"
    tables: [{name: colours}]
""",
}
SNAPSHOT = """{% snapshot kept %}
{{ config(strategy='check', unique_key='id', check_cols=['name']) }} select * from {{ ref('colours') }}
{% endsnapshot %}"""


class TestCatalogBeside:
    @pytest.fixture(scope="class")
    def catalog(self, spark: Any, tmp_path_factory: Any) -> str:
        """A catalog of Iceberg's with views, in this process."""
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
            ".io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            ".warehouse": tmp_path_factory.mktemp("beside").as_uri(),
        }
        for name, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.{CATALOG}{name}", value)
        return CATALOG

    @pytest.fixture(scope="class")
    def models(self, catalog: str) -> dict[str, str]:
        return MODELS

    @pytest.fixture(scope="class")
    def seeds(self) -> dict[str, str]:
        return {"colours.csv": "id,name\n1,red\n2,blue\n"}

    @pytest.fixture(scope="class")
    def snapshots(self) -> dict[str, str]:
        return {"kept.sql": SNAPSHOT}

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, Any]:
        return {
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

    def test_a_project_is_built_three_times(self, project: Any, spark: Any) -> None:
        run_dbt(["seed"])
        for run in range(3):
            results, log = run_dbt_and_capture(["build"])
            assert all(str(result.status) in ("success", "pass") for result in results), log
            if run == 2:
                assert ", reclustered " in log
        assert log.count("grants are left out") == 1
        schema = f"{CATALOG}.{project.test_schema}"
        assert spark.table(f"{schema}.events").count() == 3000
        assert spark.table(f"{schema}.latest").first()[0] == 99
        assert spark.table(f"{schema}.kept").count() == 2
        assert spark.table(f"{schema}.merged").columns == ["id", "c", "d"]
        assert spark.table(f"{project.test_schema}.here").count() > 0
        assert "views" not in [row[1] for row in spark.sql(f"show tables in {project.test_schema}").collect()]

    def test_defer_reads_from_the_catalog_of_the_manifest(self, project: Any) -> None:
        state = Path(project.project_root) / "state"
        (Path(project.project_root) / "target").rename(state)
        run_dbt(["compile", "--select", "here", "--defer", "--favor-state", "--state", str(state)])
        compiled = (Path(project.project_root) / "target/compiled/test/models/here.sql").read_text()
        assert f"from {CATALOG}.{project.test_schema}.events e" in compiled

    def test_operations_take_names_of_three_parts(self, project: Any, spark: Any) -> None:
        for name in ("events", f"{CATALOG}.{project.test_schema}.events"):
            information = operate_json(
                "clustering_information", json.dumps({"table": name, "format": "json"})
            )
            assert information["total_block_count"] >= 1
        # Two parts are a name of the current catalog, whatever this project has in another one.
        name = f"{project.test_schema}.events"
        assert f"{name} cannot be loaded" in operate("suspend_recluster", f"{{table: {name}}}", passes=False)
        spark.sql(f"create table {name} (id int) using iceberg")
        assert f"{name}: suspended since " in operate("suspend_recluster", f"{{table: {name}}}")
        assert ClusteredTable(spark, name).suspended is not None
        assert ClusteredTable(spark, f"{CATALOG}.{name}").suspended is None
        spark.sql(f"drop table {name}")

    def test_docs_describe_both_catalogs(self, project: Any) -> None:
        run_dbt(["docs", "generate"])
        catalog = json.loads((Path(project.project_root) / "target" / "catalog.json").read_text())
        nodes = catalog["nodes"]
        events = nodes["model.test.events"]
        assert events["metadata"]["database"] == CATALOG
        assert set(events["columns"]) == {"id", "k"}
        assert any("depth" in name for name in events["stats"]), events["stats"]
        assert {"model.test.here", "model.test.latest", "seed.test.colours", "snapshot.test.kept"} <= set(
            nodes
        )
        assert "source.test.loaded.colours" in catalog["sources"]

    def test_docs_of_a_selection_describe_nothing_else(self, project: Any) -> None:
        described = EventCatcher(SQLQuery, predicate=lambda event: "describe extended" in event.data.sql)
        run_dbt(["docs", "generate", "--no-compile"], callbacks=[described.catch])
        everything = len(described.caught_events)
        described.flush()
        run_dbt(["docs", "generate", "--select", "events"], callbacks=[described.catch])
        (statement,) = (event.data.sql for event in described.caught_events)
        assert f"{CATALOG}.{project.test_schema}.events" in statement
        assert everything > 4
        catalog = json.loads((Path(project.project_root) / "target" / "catalog.json").read_text())
        assert list(catalog["nodes"]) == ["model.test.events"]
