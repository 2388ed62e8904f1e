"""A REST catalog that refuses commits, fails, answers late, or loses its answers; and pyiceberg as a second client."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rest_server
from rest_server import Fault, RestServer
from sessions import checksum

from dbt_recluster.exceptions import CommitStateUnknownError
from dbt_recluster.maintenance import ReclusterResult, clustering_history, recluster

pytestmark = pytest.mark.xdist_group("the REST catalog")


def use(spark: Any, server: RestServer) -> str:
    """Make a catalog of the server, and return its name."""
    name = f"rest_{uuid.uuid4().hex[:8]}"
    for setting, value in server.settings(name).items():
        spark.conf.set(setting, value)
    spark.sql(f"create schema if not exists {name}.s")
    return name


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with rest_server.server(tmp_path_factory.mktemp("rest")) as running:
        yield running


@pytest.fixture(scope="module")
def catalog(spark: Any, server: RestServer) -> str:
    return use(spark, server)


@pytest.fixture
def table(spark: Any, catalog: str) -> str:
    return deep_table(spark, catalog)


def deep_table(spark: Any, catalog: str) -> str:
    """Return a table of four blocks over the same keys."""
    name = f"{catalog}.s.t_{uuid.uuid4().hex[:8]}"
    spark.sql(f"create table {name} (id bigint, k int) using iceberg")
    for load in range(4):
        start = load * 1000
        spark.sql(f"insert into {name} select id, pmod(hash(id), 100) from range({start}, {start + 1000})")
    return name


def merge(spark: Any, table: str) -> ReclusterResult:
    return recluster(spark, table, "k", depth=1, block_rows=500)


def set_key(spark: Any, table: str) -> None:
    """Commit the key, so that the next commit is that of a merge."""
    assert not recluster(spark, table, "k", depth=1000, block_rows=500).rounds


@pytest.mark.parametrize("fault", [Fault(409), Fault(409, times=7), Fault(seconds=2)], ids=str)
def test_a_commit_that_is_refused_or_answered_late_is_made(
    spark: Any, server: RestServer, table: str, fault: Fault
) -> None:
    before = checksum(spark, table)
    set_key(spark, table)
    commits = server.commits
    server.fail(fault)
    result = merge(spark, table)
    assert len(result.rounds) == 1
    assert server.commits - commits == (fault.times + 1 if fault.status else 1)
    assert checksum(spark, table) == before


@pytest.mark.parametrize("status", [500, 502, 504, 0])
@pytest.mark.parametrize("applied", [False, True])
def test_an_answer_that_does_not_say_whether_it_was_committed(
    spark: Any, server: RestServer, table: str, status: int, applied: bool
) -> None:
    before = checksum(spark, table)
    set_key(spark, table)
    server.fail(Fault(status, applied))
    with pytest.raises(
        CommitStateUnknownError, match=r"Whether the recluster of .* was committed is unknown"
    ):
        merge(spark, table)
    assert checksum(spark, table) == before
    assert any(entry.kind == "recluster" for entry in clustering_history(spark, table)) == applied
    # Whichever it was, the next one finishes, and files of a commit that was made are still there.
    assert bool(merge(spark, table).rounds) != applied
    assert checksum(spark, table) == before


def test_a_server_that_dies_between_the_request_and_the_answer(spark: Any, tmp_path: Path) -> None:
    with rest_server.server(tmp_path / "dying") as dying:
        table = deep_table(spark, use(spark, dying))
        set_key(spark, table)
        dying.fail(Fault(seconds=60))
        commits = dying.commits
        killer = threading.Thread(target=kill_after, args=(dying, commits))
        killer.start()
        with pytest.raises(CommitStateUnknownError):
            merge(spark, table)
        killer.join()


def kill_after(server: RestServer, commits: int) -> None:
    """Kill a server that has received one more commit."""
    deadline = time.monotonic() + 120
    while server.commits == commits and time.monotonic() < deadline:
        time.sleep(0.1)
    server.kill()
