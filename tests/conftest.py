"""One Spark session per test process, in a lake of its own, shared by the Iceberg tests and dbt's."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["dbt.tests.fixtures.project"]

SPARK_SETTINGS = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def spark(lake: Path) -> Any:
    """The embedded Spark. dbt, with the same path in its profile, gets this very session."""
    from dbt_recluster.adapter import embedded

    return embedded.start(str(lake), SPARK_SETTINGS)


@pytest.fixture
def schema(spark: Any) -> Iterator[str]:
    """A schema of the test's own."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    spark.sql(f"create schema {name}")
    yield name
    spark.sql(f"drop schema {name} cascade")


@pytest.fixture
def hadoop_catalog(spark: Any, tmp_path: Path) -> str:
    """A catalog beside the session's, on a directory: it keeps names as they are, where Hive's are lower case."""
    name = f"c_{uuid.uuid4().hex[:12]}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{name}.warehouse", tmp_path.as_uri())
    return name


@pytest.fixture(scope="session")
def dbt_profile_target(spark: Any, lake: Path) -> dict[str, Any]:
    return {
        "type": "recluster",
        "method": "embedded",
        "path": str(lake),
        "threads": 2,
        "server_side_parameters": SPARK_SETTINGS,
    }
