"""A Trino server beside Spark, and dbt-trino: both from packages, once, in ~/.cache/dbt-recluster-tests."""

import json
import os
import re
import shutil
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest
from environments import CACHE, from_maven, program
from ports import HOST, free_port
from programs import serving

VERSION = "476"
DBT = ("dbt-trino==1.11.0", "dbt-core<1.12")
_JAVA = 24
_PLUGINS = ("iceberg", "http-event-listener")
_JVM = """-Xmx2G
-XX:+UseSerialGC
-XX:TieredStopAtLevel=1
-XX:+ExitOnOutOfMemoryError
-XX:ReservedCodeCacheSize=256M
-Djdk.attach.allowAttachSelf=true
-XX:+EnableDynamicAgentLoading
"""


class Answer(NamedTuple):
    """The rows of a statement, and what it has read of files."""

    rows: list[list[Any]]
    bytes_read: int


class Trino(NamedTuple):
    """A running server, and the file of the events that its listener posts."""

    port: int
    events: Path

    def ask(self, sql: str) -> Answer:
        """Run a statement; an error of Trino's is an AssertionError."""
        body, rows = self._get("/v1/statement", sql), []
        while True:
            rows += body.get("data", [])
            assert "error" not in body, f"{sql}: {body['error']['message']}"
            if "nextUri" not in body:
                return Answer(rows, int(body["stats"]["physicalInputBytes"]))
            body = self._get(body["nextUri"])

    def is_up(self) -> bool:
        return not self._get("/v1/info")["starting"]

    def _get(self, place: str, sql: str | None = None) -> Any:
        address = place if place.startswith("http") else f"http://{HOST}:{self.port}{place}"
        data = None if sql is None else sql.encode()
        with urlopen(Request(address, data, {"X-Trino-User": "tests"}), timeout=120) as answer:
            return json.load(answer)


@contextmanager
def server(
    directory: Path, catalog: str, url: str, warehouse: str, files: str = "fs.hadoop.enabled=true\n"
) -> Iterator[Trino]:
    """Run Trino with a catalog ``iceberg``, Spark's one in PostgreSQL at ``url``; skip where it cannot run.

    Args:
        directory: For its files.
        catalog: Spark's name of the catalog.
        url: The JDBC URL. Spark must have opened the catalog: Trino does not create its tables.
        warehouse: The URI of the tables' directory.
        files: Settings of its file system.
    """
    java, home, port, collector_port = _java(), _home(), free_port(), free_port()
    for name, lines in {
        "jvm.config": _JVM,
        "node.properties": f"node.environment=tests\nnode.id=tests\nnode.data-dir={directory}/data\n"
        f"node.internal-address={HOST}\nnode.bind-ip={HOST}\n",
        "config.properties": "coordinator=true\nnode-scheduler.include-coordinator=true\n"
        f"http-server.http.port={port}\ndiscovery.uri=http://{HOST}:{port}\ntask.concurrency=2\n"
        f"query.max-memory-per-node=512MB\nevent-listener.config-files={directory}/etc/listener.properties\n",
        "listener.properties": "event-listener.name=http\nhttp-event-listener.log-completed=true\n"
        f"http-event-listener.connect-ingest-uri=http://{HOST}:{collector_port}/\n",
        "log.properties": "io.trino=WARN\n",
        "catalog/iceberg.properties": "connector.name=iceberg\niceberg.catalog.type=jdbc\n"
        f"iceberg.jdbc-catalog.driver-class=org.postgresql.Driver\niceberg.jdbc-catalog.connection-url={url}\n"
        "iceberg.jdbc-catalog.connection-user=postgres\niceberg.jdbc-catalog.schema-version=V1\n"
        f"iceberg.jdbc-catalog.catalog-name={catalog}\n"
        f"iceberg.jdbc-catalog.default-warehouse-dir={warehouse}\n{files}"
        "iceberg.expire-snapshots.min-retention=0s\niceberg.remove-orphan-files.min-retention=0s\n",
    }.items():
        file = directory / "etc" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lines)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAVA")}
    environment |= {"JAVA_HOME": str(java), "PATH": f"{java / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = [home / "bin" / "launcher", "run", "--etc-dir", directory / "etc"]
    events = directory / "events.jsonl"
    log = directory / "server.log"
    with _collecting(events, collector_port), serving(*command, log=log, ports=[port], env=environment):
        trino, deadline = Trino(port, events), time.monotonic() + 300
        while not trino.is_up():
            assert time.monotonic() < deadline, "Trino does not start"
            time.sleep(0.5)
        yield trino


@contextmanager
def _collecting(events: Path, port: int) -> Iterator[None]:
    """Write what is posted to a port to a file, a line each."""

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with events.open("ab") as file:
                file.write(body + b"\n")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    collector = ThreadingHTTPServer((HOST, port), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        collector.shutdown()
        collector.server_close()


def dbt() -> Path:
    """Return the program ``dbt`` of an environment with dbt-trino; skip where it cannot be installed."""
    return program("dbt", "dbt-trino", *DBT)


def _home() -> Path:
    """Return the directory of Trino with two plugins alone: all of them would take 900 MB."""
    home = CACHE / f"trino-{VERSION}-{len(_PLUGINS)}"
    if home.exists():
        return home
    archive = from_maven(f"io.trino:trino-server:{VERSION}:tar.gz")
    unpacked = home.with_suffix(f".{os.getpid()}")
    with tarfile.open(archive) as tar:  # jars of plugins are links to each other's
        tar.extractall(unpacked, filter="tar") if hasattr(tarfile, "tar_filter") else tar.extractall(unpacked)
    (root,) = unpacked.iterdir()
    for plugin in (root / "plugin").iterdir():
        if plugin.name not in _PLUGINS:
            shutil.rmtree(plugin)
    root.rename(home)
    unpacked.rmdir()
    return home


def _java() -> Path:
    """Return the home of a Java that Trino runs on."""
    homes = [Path(home) for name, home in os.environ.items() if name.startswith("JAVA_HOME")]
    for home in [*homes, *Path("/usr/lib/jvm").glob("*")]:
        release = (home / "release").read_text() if (home / "release").exists() else ""
        version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
        if version and int(version[1]) >= _JAVA:
            return home
    pytest.skip(f"Trino {VERSION} needs Java {_JAVA} or later, and there is none in /usr/lib/jvm")
