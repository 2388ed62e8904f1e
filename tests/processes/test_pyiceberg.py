"""pyiceberg as a second client of the same catalogs: it writes, we recluster, it reads."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres
import pyarrow as pa
import pytest
import rest_server
import thrift_server

from dbt_recluster.maintenance import clustering_information, recluster

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
pytestmark = pytest.mark.xdist_group("catalogs of pyiceberg")


@pytest.fixture(scope="module", params=["rest", "jdbc"])
def clients(request: Any, spark: Any, tmp_path_factory: Any) -> Iterator[tuple[str, Any]]:
    """The name of a catalog in Spark, and pyiceberg's object for the same one."""
    from pyiceberg.catalog import load_catalog

    # Tables of a JDBC catalog belong to the catalog's name, so both clients give it the same.
    name = f"shared_{uuid.uuid4().hex[:8]}"
    directory: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "rest":
        with rest_server.server(directory) as server:
            yield connect(spark, name, server.settings(name)), load_catalog(name, type="rest", uri=server.uri)
        return
    with postgres.server_or_skip() as url:
        address = url.removeprefix("jdbc:postgresql://")
        other = load_catalog(
            name, type="sql", uri=f"postgresql+psycopg2://postgres@{address}", warehouse=directory.as_uri()
        )
        yield connect(spark, name, thrift_server.catalog(name, url, directory)), other


def connect(spark: Any, name: str, settings: dict[str, str]) -> str:
    for setting, value in {**settings, f"spark.sql.catalog.{name}.cache-enabled": "false"}.items():
        spark.conf.set(setting, value)
    spark.sql(f"create schema {name}.s")
    return name


def rows(start: int, count: int) -> pa.Table:
    ids = list(range(start, start + count))
    return pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array([i * 37 % 101 for i in ids], pa.int32())})


def contents(table: Any) -> set[tuple[int, int]]:
    """Return the rows as pyiceberg reads them; none is there twice."""
    read = table.refresh().scan().to_arrow().to_pylist()
    found = {(row["id"], row["k"]) for row in read}
    assert len(found) == len(read)
    return found


def test_it_writes_we_recluster_it_reads(spark: Any, clients: tuple[str, Any]) -> None:
    catalog, other = clients
    name = f"{catalog}.s.t"
    spark.sql(f"create table {name} (id bigint, k int) using iceberg")
    table = other.load_table(("s", "t"))
    for load in range(4):
        table.append(rows(load * 1000, 1000))
    table.delete("id < 50 or k = 7")
    before = contents(table)
    assert len(before) < 3950
    result = recluster(spark, name, "k", depth=1, block_rows=1000, final=True)
    assert (len(result.rounds), result.depth_before > 1) == (1, True)
    assert clustering_information(spark, name)["average_depth"] < 2
    assert contents(table) == before
    # And once more over what we wrote.
    table.append(rows(4000, 1000))
    table.delete("k = 8")
    before = contents(table)
    recluster(spark, name, "k", depth=1, block_rows=1000, final=True)
    assert contents(table) == before == {(row[0], row[1]) for row in spark.table(name).collect()}
    narrow = table.refresh().scan(row_filter="k = 50")
    assert len(list(narrow.plan_files())) <= 2
    assert set(narrow.to_arrow()["k"].to_pylist()) == {50}
