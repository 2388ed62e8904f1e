"""REST and JDBC catalogs that refuse, fail, answer late or lose their answers; and pyiceberg as a second client."""

import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import postgres
import pyarrow as pa
import pytest
import rest_server
import thrift_server
from jobs import Jobs
from ports import HOST
from rest_server import Fault, RestServer
from tables import checksum, orphans

from dbt_recluster.api import (
    Progress,
    ReclusterResult,
    clustering_history,
    clustering_information,
    recluster,
)
from dbt_recluster.exceptions import CommitFailedError, CommitStateUnknownError

pytestmark = pytest.mark.xdist_group("REST and JDBC catalogs")
# What PostgreSQL answers when Iceberg's JdbcCatalog has moved a table to its next metadata file.
ANSWER = b"UPDATE 1\0"


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with rest_server.server(tmp_path_factory.mktemp("rest")) as running:
        yield running


@pytest.fixture(scope="module")
def jdbc() -> Iterator[str]:
    """The URL of a PostgreSQL."""
    with postgres.server_or_skip() as url:
        yield url


def new_name() -> str:
    return f"c_{uuid.uuid4().hex[:8]}"


def use(spark: Any, name: str, settings: dict[str, str]) -> str:
    """Give Spark a catalog, and return its name."""
    for setting, value in {**settings, f"spark.sql.catalog.{name}.cache-enabled": "false"}.items():
        spark.conf.set(setting, value)
    spark.sql(f"create schema if not exists {name}.s")
    return name


def use_rest(spark: Any, server: RestServer) -> str:
    name = new_name()
    return use(spark, name, server.settings(name))


def deep_table(spark: Any, catalog: str) -> str:
    """Return a table of four blocks over the same keys; its key is set, so that the next commit is that of a merge."""
    table = f"{catalog}.s.{new_name()}"
    spark.sql(f"create table {table} (id bigint, k int) using iceberg")
    for start in range(0, 4000, 1000):
        spark.sql(f"insert into {table} select id, pmod(hash(id), 100) from range({start}, {start + 1000})")
    assert not merge(spark, table, depth=1000).rounds
    return table


def merge(spark: Any, table: str, **options: Any) -> ReclusterResult:
    return recluster(spark, table, "k", **{"depth": 1, "block_rows": 500, **options})


def is_reclustered(spark: Any, table: str) -> bool:
    return any(entry.kind == "recluster" for entry in clustering_history(spark, table).entries)


@pytest.mark.parametrize("fault", [Fault(409, times=7), Fault(seconds=2)], ids=str)
def test_a_commit_that_is_refused_or_answered_late_is_made(spark: Any, rest: RestServer, fault: Fault) -> None:
    table = deep_table(spark, use_rest(spark, rest))
    before, commits = checksum(spark, table), rest.commits
    rest.fail(fault)
    assert len(merge(spark, table).rounds) == 1
    assert rest.commits - commits == (fault.times + 1 if fault.status else 1)
    assert checksum(spark, table) == before


@pytest.mark.parametrize(("status", "applied"), [(500, False), (504, True), (0, False), (0, True)])
def test_an_unknown_commit_is_said_and_loses_nothing(spark: Any, rest: RestServer, status: int, applied: bool) -> None:
    table = deep_table(spark, use_rest(spark, rest))
    before = checksum(spark, table)
    rest.fail(Fault(status, applied))
    with pytest.raises(CommitStateUnknownError, match=r"Whether the recluster of .* was committed is unknown"):
        merge(spark, table)
    assert checksum(spark, table) == before
    assert is_reclustered(spark, table) == applied
    # Whichever it was, the next one finishes, and files of a commit that was made are still there.
    assert bool(merge(spark, table).rounds) != applied
    assert checksum(spark, table) == before


class Proxy:
    """Hands bytes on between clients and a server, until told to fail.

    Attributes:
        mode: ``pass``; ``down`` closes every connection; ``mute`` closes one in place of the first answer to a
            commit, then is ``pass`` again; ``lost`` does so, then is ``down``.
        port: Where it listens.
    """

    def __init__(self, server_port: int):
        self.mode, self._server_port = "pass", server_port
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, mode: str) -> None:
        """Begin to fail."""
        self.mode = mode
        if mode == "down":
            for pair in self._pairs:
                _close(*pair)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self.mode == "down":
                client.close()
                continue
            server = socket.create_connection((HOST, self._server_port))
            self._pairs.append((client, server))
            for source, target, answers in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._hand_on, args=(source, target, answers), daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers and self.mode in ("mute", "lost") and ANSWER in data:
                    self.fail("pass" if self.mode == "mute" else "down")
                    break
                target.sendall(data)
        _close(source, target)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("mode", "error"),
    [("down", CommitFailedError), ("mute", None), ("lost", CommitStateUnknownError)],
)
def test_a_database_that_fails_at_the_commit(
    spark: Any, jdbc: str, tmp_path: Path, mode: str, error: type[Exception] | None
) -> None:
    """Where an answer is lost, Iceberg asks again; where that fails too, the files may be the table's, and stay."""
    port = jdbc.rpartition(":")[2].partition("/")[0]
    proxy, name = Proxy(int(port)), new_name()
    url = jdbc.replace(f":{port}/", f":{proxy.port}/")
    table = deep_table(spark, use(spark, name, thrift_server.catalog(name, url, tmp_path)))
    before = checksum(spark, table)

    def fail_at_commit(progress: Progress) -> None:
        if progress.merged == 1 and not (progress.committed or progress.failed):
            proxy.fail(mode)

    with pytest.raises(error) if error else nullcontext() as raised:
        merge(spark, table, listener=fail_at_commit)
    proxy.mode = "pass"
    assert ("This round changed nothing" in str(raised)) == (mode == "down")
    assert is_reclustered(spark, table) == (mode != "down")
    assert checksum(spark, table) == before
    assert orphans(spark, table) == set()
    assert (merge(spark, table, final=True).depth_after or 99) <= 2
    assert checksum(spark, table) == before


def rows(start: int, count: int) -> pa.Table:
    ids = list(range(start, start + count))
    return pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array([i * 37 % 101 for i in ids], pa.int32())})


def contents(table: Any) -> set[tuple[int, int]]:
    """Return the rows as pyiceberg reads them; none is there twice."""
    read = table.refresh().scan().to_arrow().to_pylist()
    found = {(row["id"], row["k"]) for row in read}
    assert len(found) == len(read)
    return found


@pytest.mark.parametrize("kind", ["rest", "jdbc"])
def test_pyiceberg_writes_we_recluster_it_reads(
    spark: Any, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog", reason="pyiceberg is not installed")
    server = request.getfixturevalue(kind)
    name = new_name()  # tables of a JDBC catalog belong to its name, so both clients give it the same
    if kind == "rest":
        settings, other = server.settings(name), {"type": "rest", "uri": server.uri}
    else:
        address = server.removeprefix("jdbc:postgresql://")
        settings = thrift_server.catalog(name, server, tmp_path)
        other = {
            "type": "sql",
            "uri": f"postgresql+psycopg2://postgres@{address}",
            "warehouse": tmp_path.as_uri(),
        }
    spark.sql(f"create table {use(spark, name, settings)}.s.shared (id bigint, k int) using iceberg")
    table = catalogs.load_catalog(name, **other).load_table(("s", "shared"))
    for load in range(4):
        table.append(rows(load * 1000, 1000))
    table.delete("id < 50 or k = 7")
    before = contents(table)
    assert len(before) < 3950
    result = merge(spark, f"{name}.s.shared", block_rows=1000, final=True)
    assert len(result.rounds) == 1
    assert (result.depth_before or 0) > 1
    assert clustering_information(spark, f"{name}.s.shared")["average_depth"] < 2
    assert contents(table) == before
    # And once more over what we wrote.
    table.append(rows(4000, 1000))
    table.delete("k = 8")
    before = contents(table)
    merge(spark, f"{name}.s.shared", block_rows=1000, final=True)
    assert contents(table) == before == {(row[0], row[1]) for row in spark.table(f"{name}.s.shared").collect()}
    narrow = table.refresh().scan(row_filter="k = 50")
    assert len(list(narrow.plan_files())) <= 2
    assert set(narrow.to_arrow()["k"].to_pylist()) == {50}


def test_a_command_starts_no_spark_for_tables_that_nobody_has_written_to(
    spark: Any, rest: RestServer, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    catalog = use_rest(spark, rest)
    names = [deep_table(spark, catalog) for _ in range(2)]
    tables = [table.replace(catalog, "lake", 1) for table in names]
    jobs = Jobs(tmp_path_factory.mktemp("jobs"), tmp_path, rest.settings("lake"))
    jobs.variables["XDG_CACHE_HOME"] = str(tmp_path)

    def answers(*more: str) -> tuple[list[Any], bool]:
        done = jobs.run("recluster", *tables, "--depth=1", "--block-rows=500", "--final", "--json", *more)
        return done.answer["tables"], "starting Spark" in done.err

    def memory() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("unchanged/*")}

    reclustered, _ = answers()
    assert all(answer["rounds"] for answer in reclustered)
    checked, starts = answers()
    assert starts
    assert not any(answer["rounds"] for answer in checked)
    known, starts = answers()
    assert not starts
    for one, other in zip(checked, known, strict=True):
        assert "nothing was written since the check at" in other.pop("reason")
        assert {**other, "reason": one["reason"]} == one
    assert answers("--max-bytes=1GB")[1], "another command"
    remembered = memory()
    assert answers("--where=k < 9")[1], "a predicate may go by the clock"
    assert memory() == remembered
    spark.sql(f"insert into {names[1]} select id, 7 from range(10)")
    spark.sql(f"alter table {names[0]} set tblproperties ('recluster.option.where' = 'k < 9')")
    changed, starts = answers()
    assert starts
    assert memory() == remembered
    assert [bool(answer["rounds"]) for answer in changed] == [False, True]
    assert next(tmp_path.rglob("unchanged")).stat().st_mode & 0o077 == 0
