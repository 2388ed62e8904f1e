"""Tables in a Glue Data Catalog, emulated by moto: dbt, the command, two processes at once, and a crowd of tables.

moto checks no version of a table and knows no pages. support/moto_server.py adds both as AWS documents them. That Glue
itself behaves so, its throttling, its rights and Lake Formation are not tested.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from datetime import datetime, timedelta, timezone
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import glue
import pytest
import s3
from dbt_command import EVENTS, Project
from jobs import EXTENSIONS, Jobs
from pyspark.sql import SparkSession
from sessions import checksum, open_quietly

from dbt_recluster.api import clustering_information, recluster
from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.job.command_line import main

T = TypeVar("T")
MANY = 120  # more than a page
SPARK = {
    "spark.ui.enabled": False,
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.extensions": EXTENSIONS,
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[glue.Glue]:
    with glue.server_or_skip(tmp_path) as running:
        for name, value in glue.ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        yield running


# What the worker does in its process.


def make_table(name: str, files: int = 6) -> tuple[int, int]:
    """Make a table of files that overlap, and return its checksum."""
    spark = SparkSession.active()
    spark.sql(f"create namespace if not exists {name.rpartition('.')[0]}")
    properties = "'format-version' = '2', 'write.delete.mode' = 'merge-on-read'"
    spark.sql(f"create table {name} (id bigint, k int) using iceberg tblproperties ({properties})")
    for number in range(files):
        ids = f"range({number * 1000}, {number * 1000 + 1000}, 1, 1)"
        spark.sql(f"insert into {name} select id, cast(pmod(hash(id), 1000) as int) from {ids}")
    spark.sql(f"alter table {name} write ordered by k")
    return contents(name)


def contents(name: str) -> tuple[int, int]:
    return checksum(SparkSession.active(), name)


def delete_and_merge(name: str) -> tuple[int, int]:
    """Delete rows by position, and recluster; return the number of rows before and after."""
    spark = SparkSession.active()
    spark.sql(f"delete from {name} where id % 10 = 3")
    before = contents(name)
    assert recluster(spark, name, depth=1, block_rows=2000, final=True).rounds
    assert contents(name) == before
    return before[0], contents(name)[0]


def merge_a_branch(name: str) -> tuple[float, float]:
    """Recluster a branch; return the depths of main and of the branch."""
    spark = SparkSession.active()
    spark.sql(f"alter table {name} create branch b")
    assert recluster(spark, name, depth=1, block_rows=2000, branch="b").rounds
    of_main, of_branch = (clustering_information(spark, name, branch=each) for each in (None, "b"))
    return of_main["average_depth"], of_branch["average_depth"]


def remove_orphans(name: str) -> list[str]:
    now = datetime.now(timezone.utc)
    maintenance = TableMaintenance(IcebergTable.load(SparkSession.active(), name), now + timedelta(days=1))
    return list(maintenance.remove_orphan_files(now + timedelta(hours=1), force=True, dry_run=False).files)


def overview(namespace: str) -> list[Any]:
    """Return what the command says of the tables of a namespace."""
    with redirect_stdout(StringIO()) as out:
        assert main(["overview", "--namespace", namespace, "--json"]) == 0
    tables: list[Any] = json.loads(out.getvalue())["tables"]
    return tables


def test_tables_in_glue_are_reclustered(server: glue.Glue, tmp_path: Path) -> None:
    settings, place = server.settings(), tmp_path / "worker"
    place.mkdir()
    pool = ProcessPoolExecutor(1, get_context("spawn"), open_quietly, (place, settings))

    def call(function: Callable[..., T], *arguments: Any) -> T:
        return pool.submit(function, *arguments).result()

    jobs, projects = Jobs(tmp_path, tmp_path / "unused", settings), []
    try:
        rows = call(make_table, "lake.db.shared")
        both = [jobs.start("recluster", "lake.db.shared", "--depth=1", "--block-rows=500", "--final")]
        both.append(jobs.start("recluster", "lake.db.shared", "--depth=1", "--block-rows=600", "--final"))
        call(make_table, "lake.db.deleted")
        assert call(delete_and_merge, "lake.db.deleted") == (5400, 5400)
        call(make_table, "lake.db.branched")
        of_main, of_branch = call(merge_a_branch, "lake.db.branched")
        assert of_main > 4 > 2 >= of_branch
        server.put("lake/warehouse/db.db/deleted/data/left-behind.parquet")
        assert [path.rpartition("/")[2] for path in call(remove_orphans, "lake.db.deleted")] == ["left-behind.parquet"]
        printed = [process.communicate(timeout=300)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0], printed
        assert call(contents, "lake.db.shared") == rows

        for method, more in {
            "session": {"catalog": "lake"},
            "embedded": {"path": str(tmp_path / "lakehouse")},
        }.items():
            profile = {"method": method, "server_side_parameters": {**SPARK, **settings}, **more}
            config = {"models": {"+database": "lake"}}
            projects.append(Project(tmp_path / method, profile, {f"of_{method}.sql": EVENTS}, config=config))
            call(make_table, f"lake.analytics.of_{method}", 2)
            printed.append(projects[-1].succeed("--debug", "run"))
            assert " blocks into " in printed[-1], printed[-1]
            assert call(contents, f"lake.analytics.of_{method}")[0] == 3000

        call(make_table, "lake.db.empty", 0)
        table = server.call("GetTable", DatabaseName="db", Name="empty")["Table"]
        table_input = {name: table[name] for name in ("TableType", "Parameters", "StorageDescriptor")}
        server.call("CreateDatabase", DatabaseInput={"Name": "many"})
        for number in range(MANY):
            server.call("CreateTable", DatabaseName="many", TableInput={"Name": f"t{number}", **table_input})
        assert len(call(overview, "lake.many")) == MANY
    finally:
        for project in projects:
            project.stop()
        pool.shutdown()
    key = s3.SECRET_KEY.encode()
    assert not any(s3.SECRET_KEY in text for text in printed)
    files = (path for path in tmp_path.rglob("*") if path.is_file() and path.name != "profiles.yml")
    assert [path.name for path in files if key in path.read_bytes()] == []
    objects = server.objects()
    assert objects
    assert not any(key in content for content in objects.values())
