"""`method: session`: the user's own Spark settings and catalogs, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dbt_command import Project
from runtime import iceberg_jar

EVENTS = """{{ config(materialized='incremental', cluster_by='k', recluster_depth=1, block_rows=500) }}
select id, pmod(hash(id), 100) as k from range(1000)"""
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def settings(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {
        "spark.driver.extraClassPath": str(iceberg_jar()),
        "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={tmp_path}",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true",
        **more,
    }


@pytest.mark.alike
@pytest.mark.parametrize("is_named", [True, False], ids=["by the profile", "as the default"])
def test_a_catalog_of_iceberg_tables_only(is_named: bool, tmp_path: Path) -> None:
    """A catalog of the user's own: here Iceberg's Hadoop catalog, which has no views."""
    (tmp_path / "lake").mkdir()
    catalog = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path / "lake"),
        **({} if is_named else {"spark.sql.defaultCatalog": "lake"}),
    }
    spark = settings(tmp_path, **catalog)
    if is_named:
        spark["spark.jars"] = spark.pop("spark.driver.extraClassPath")
    profile = {
        "method": "session",
        "server_side_parameters": spark,
        **({"catalog": "lake"} if is_named else {}),
    }
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    if is_named:
        code, out, _ = project.run("debug")
        assert code == 0, out
    code, out, _ = project.run("run")
    assert code == 0, out
    (project.root / "models" / "seen.sql").write_text("{{ config(materialized='view') }} select 1 as id")
    code, out, _ = project.run("run")
    assert code == 1
    assert ", reclustered " in out
    assert "PASS=1 WARN=0 ERROR=1" in out
    text = " ".join(out.split())
    assert (
        "view is not supported by catalog: lake. Let the model be a table or ephemeral, or use a catalog"
        in text
    )
    code, out, _ = project.run("run-operation", "recluster", "--args", "{table: events, final: true}")
    assert code == 0, out
    assert f"1 of 1 {'lake.' if is_named else ''}analytics.events: " in out


def test_debug_says_what_is_missing(tmp_path: Path) -> None:
    bare = {
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.ui.enabled": False,
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={tmp_path}",
    }
    project = Project(
        tmp_path / "p", {"method": "session", "server_side_parameters": bare}, {"events.sql": EVENTS}
    )
    code, out, _ = project.run("debug")
    assert code != 0
    assert (
        "Iceberg's classes are not loaded. Put the jar iceberg-spark-runtime for Spark 3.5 on spark.jars"
        in out
    )
    assert f"Start the session with spark.sql.extensions={EXTENSIONS}" in out
    assert "the default catalog spark_catalog is Spark's built-in one, which holds no Iceberg tables" in out


def test_another_format_in_the_session_catalog(tmp_path: Path) -> None:
    """A second run replaces the table. Iceberg's files lie where only the user may move them, which is said before."""
    catalog = {
        "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
        "spark.sql.catalog.spark_catalog.type": "hive",
        "spark.sql.catalog.spark_catalog.cache-enabled": False,
        "spark.hadoop.iceberg.engine.hive.lock-enabled": False,
        "spark.hadoop.datanucleus.schema.autoCreateAll": True,
        "spark.hadoop.hive.metastore.schema.verification": False,
    }
    profile = {"method": "session", "server_side_parameters": settings(tmp_path, **catalog)}
    model = "{{{{ config(materialized='table', file_format='{}') }}}} select 1 as id"
    models = {"files.sql": model.format("parquet"), "blocks.sql": model.format("iceberg")}
    project = Project(tmp_path / "p", profile, models)
    for _ in range(2):
        code, out, _ = project.run("run")
        assert code == 0, out
    (project.root / "models" / "blocks.sql").write_text(model.format("orc"))
    code, out, _ = project.run("run", "--select", "blocks")
    assert code == 1
    assert (
        "analytics.blocks cannot be replaced by a table of orc: the files of the present one stay in" in out
    )
    (project.root / "models" / "blocks.sql").write_text("select * from analytics.blocks")
    code, out, _ = project.run("show", "--select", "blocks")
    assert code == 0, out


def test_debug_says_that_a_metastore_of_its_own_cannot_lock(tmp_path: Path) -> None:
    catalog = {
        "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
        "spark.sql.catalog.spark_catalog.type": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true",
    }
    profile = {"method": "session", "server_side_parameters": settings(tmp_path, **catalog)}
    code, out, _ = Project(tmp_path / "p", profile, {"events.sql": EVENTS}).run("debug")
    assert code != 0
    assert "has a Hive metastore of its own in this session, which cannot lock tables" in out


def test_debug_says_that_the_catalog_does_not_answer(tmp_path: Path) -> None:
    catalog = {
        "spark.sql.defaultCatalog": "lake",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": "http://127.0.0.1:9/",
    }
    profile = {"method": "session", "server_side_parameters": settings(tmp_path, **catalog)}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    code, out, _ = project.run("debug")
    assert code != 0
    assert "lake does not answer" in out


def test_spark_connect_is_refused_in_one_sentence(tmp_path: Path) -> None:
    profile = {"method": "session", "server_side_parameters": settings(tmp_path)}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS})
    code, out, _ = project.run("run", SPARK_REMOTE="sc://127.0.0.1:9")
    assert code != 0
    assert (
        "SPARK_REMOTE is set to sc://127.0.0.1:9, so pyspark connects to that Spark by Spark Connect" in out
    )
    assert "Unset it, or add `recluster_submit` to the profile" in " ".join(out.split())
