"""The command on manifests that other dbts write: dbt 2's parser, and `dbt parse` with dbt-athena.

Each is installed from PyPI once, without what it needs to connect; where PyPI does not answer, it is skipped. Spark
makes the tables under the names that the manifest has. test_trino.py does the same with dbt-trino.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from dbt_command import Project
from environments import packages
from tables import checksum

MODELS = {
    "orders.sql": """{{ config(materialized='incremental', cluster_by=['order_date', 'customer_id']) }}
        select 1 as customer_id, date '2026-01-01' as order_date""",
    "marts/daily.sql": """{{ config(materialized='table', meta={'recluster': {'depth': 1, 'block_rows': 500}}) }}
        select * from {{ ref('orders') }}""",
    "late.sql": "{{ config(materialized='view') }} select * from {{ ref('orders') }}",
}
COLUMNS = "customer_id bigint, order_date date, event_date date"


class Dbt(NamedTuple):
    """A dbt, its profile, and what the command says of the place of its tables."""

    requirements: tuple[str, ...]
    profile: dict[str, Any]
    place: tuple[str, str]


HERE = {"host": "localhost", "schema": "sales"}
OF_ATHENA = ("boto3", "botocore", "s3transfer", "jmespath", "pyathena<3.35", "mmh3<4.2")
STAGING = {"s3_staging_dir": "s3://x/y", "region_name": "eu-west-1"}
DBTS = {
    "dbt 2": Dbt(
        ("dbt-core-experimental-parser==2.0.0a4",),
        {"type": "spark", "method": "thrift", "port": 10000, **HERE},
        ("--catalog", "{}"),
    ),
    "athena": Dbt(
        (
            *("dbt-athena==1.11.1", *OF_ATHENA),
            *(f"mypy-boto3-{service}" for service in ("athena", "glue", "lakeformation", "sts")),
        ),
        {"type": "athena", "database": "awsdatacatalog", "schema": "sales", **STAGING},
        ("--map", "awsdatacatalog={}"),
    ),
}


def manifest(name: str, root: Path) -> Path:
    """Write a project and have a dbt parse it."""
    kind = DBTS[name]
    directory = packages(name.replace(" ", ""), "--no-deps", *kind.requirements)
    own = directory / "bin" / "dbt-core-experimental-parser"
    more: dict[str, Any] = {"dbt": [own]} if own.exists() else {}
    config = {"models": {"p": {"marts": {"+cluster_by": "event_date"}}}}
    project = Project(root, kind.profile, MODELS, config=config, **more)
    project.succeed("parse", PYTHONPATH=str(directory), DBT_ALLOW_EXPERIMENTAL_ADAPTERS="true")
    return root / "target" / "manifest.json"


@pytest.mark.parametrize("name", list(DBTS))
def test_tables_in_the_manifest_of_another_dbt_are_reclustered(
    name: str, spark: Any, hadoop_catalog: str, tmp_path: Path, run_json: Any
) -> None:
    path = manifest(name, tmp_path / "p")
    assert json.loads(path.read_text())["metadata"]["adapter_type"] == DBTS[name].profile["type"]
    spark.sql(f"create namespace {hadoop_catalog}.sales")
    tables = {each: f"{hadoop_catalog}.sales.{each}" for each in ("orders", "daily")}
    for table in tables.values():
        spark.sql(f"create table {table} ({COLUMNS}) using iceberg")
        for _ in range(3):
            days = "date '2026-01-01' + cast(id % 30 as int)"
            spark.sql(f"insert into {table} select id * 7 % 1000, {days}, {days} from range(1000)")
    before = {each: checksum(spark, table) for each, table in tables.items()}
    option, value = DBTS[name].place
    code, answer, err = run_json(
        "recluster", "--manifest", str(path), option, value.format(hadoop_catalog), "--depth=1"
    )
    assert code == 0, err
    done = {each["table"]: each for each in answer["tables"]}
    keys = {tables["orders"]: "order_date, customer_id", tables["daily"]: "event_date"}
    assert {table: each["cluster_key"] for table, each in done.items()} == keys
    assert done[tables["daily"]]["blocks_out"] >= 6
    assert all(each["rounds"] and each["depth_after"] < each["depth_before"] for each in done.values())
    assert {each: checksum(spark, table) for each, table in tables.items()} == before
