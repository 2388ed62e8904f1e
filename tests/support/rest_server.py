"""A REST catalog on this machine: Iceberg's own handlers of REST requests, in a process of their own.

No package that can be reached carries such a server for tables on a local disk. Requests and responses are read and
written by Iceberg's own serializers; this file only knows which handler serves which path. A test may have it refuse,
fail, delay or drop the answers to commits (:class:`Fault`).

The process is this file, run as a program: Python serves HTTP and calls a JVM. It is not the test's process, because
pyspark takes every error of a JVM for one of its own.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen

import pyspark
from ports import HOST
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from runtime import JAVA_OPTIONS, iceberg_jar
from sessions import UNCACHED, catalog_settings, of_rest

from dbt_recluster.iceberg.session.local_spark import find_java_home

_REST = "org.apache.iceberg.rest"
_STATUS = {
    "NoSuchNamespaceException": 404,
    "NoSuchTableException": 404,
    "NoSuchViewException": 404,
    "AlreadyExistsException": 409,
    "CommitFailedException": 409,
    "NamespaceNotEmptyException": 409,
    "ValidationException": 400,
    "BadRequestException": 400,
    "IllegalArgumentException": 400,
    "UnsupportedOperationException": 406,
}
_NAMESPACE = "/v1/namespaces/{namespace}"
_TABLE, _VIEW = f"{_NAMESPACE}/tables/{{table}}", f"{_NAMESPACE}/views/{{view}}"
# Method and path, the handler, and the request that it reads from the body.
_ROUTES = {
    ("GET", "/v1/namespaces"): ("listNamespaces", None),
    ("POST", "/v1/namespaces"): ("createNamespace", "CreateNamespaceRequest"),
    ("GET", _NAMESPACE): ("loadNamespace", None),
    ("DELETE", _NAMESPACE): ("dropNamespace", None),
    ("POST", f"{_NAMESPACE}/properties"): ("updateNamespaceProperties", "UpdateNamespacePropertiesRequest"),
    ("GET", f"{_NAMESPACE}/tables"): ("listTables", None),
    ("POST", f"{_NAMESPACE}/tables"): ("createTable", "CreateTableRequest"),
    ("GET", _TABLE): ("loadTable", None),
    ("POST", _TABLE): ("updateTable", "UpdateTableRequest"),
    ("DELETE", _TABLE): ("dropTable", None),
    ("POST", "/v1/tables/rename"): ("renameTable", "RenameTableRequest"),
    ("POST", f"{_TABLE}/metrics"): (None, None),
    ("GET", f"{_NAMESPACE}/views"): ("listViews", None),
    ("POST", f"{_NAMESPACE}/views"): ("createView", "CreateViewRequest"),
    ("GET", _VIEW): ("loadView", None),
    ("POST", _VIEW): ("updateView", "UpdateTableRequest"),
    ("DELETE", _VIEW): ("dropView", None),
    ("POST", "/v1/views/rename"): ("renameView", "RenameTableRequest"),
}
_Answer = tuple[int, str]


@dataclass
class Fault:
    """What happens to the next commits of tables.

    Attributes:
        status: The HTTP status that answers instead, or 0 to close the connection without an answer.
        applied: Whether the commit has been made all the same.
        times: To how many commits.
        seconds: How long the answer takes.
    """

    status: int | None = None
    applied: bool = False
    times: int = 1
    seconds: float = 0.0


class RestServer(NamedTuple):
    """A server that runs in another process, and its address."""

    uri: str
    process: subprocess.Popen[str]

    def settings(self, catalog: str) -> dict[str, str]:
        return catalog_settings(catalog, {**of_rest(self.uri), **UNCACHED})

    @property
    def requests(self) -> Counter[str]:
        """How many requests each handler has had."""
        with urlopen(f"{self.uri}/test/requests") as response:
            return Counter(json.load(response))

    @property
    def commits(self) -> int:
        """How many commits of tables were asked for."""
        return self.requests["updateTable"]

    def fail(self, *faults: Fault) -> None:
        """Let these faults happen next, in order."""
        body = json.dumps([asdict(fault) for fault in faults]).encode()
        urlopen(Request(f"{self.uri}/test/faults", body)).close()


@contextmanager
def server(warehouse: Path) -> Iterator[RestServer]:
    """Run a server whose tables are in the directory ``warehouse``."""
    warehouse.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, str(warehouse)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().strip()
        assert uri, "the REST server did not start"
        try:
            yield RestServer(uri, process)
        finally:
            process.kill()


class _Catalog:
    """The catalog and its faults, in the server's process."""

    def __init__(self, warehouse: Path, gateway: Any) -> None:
        self._faults: list[Fault] = []
        self._requests, self._lock = Counter[str](), threading.Lock()
        self._gateway, self._java, self._iceberg = gateway, gateway.jvm.java, gateway.jvm.org.apache.iceberg
        properties = self._java.util.HashMap()
        properties.put("warehouse", warehouse.as_uri())
        properties.put("io-impl", "org.apache.iceberg.hadoop.HadoopFileIO")
        self._catalog = self._iceberg.inmemory.InMemoryCatalog()
        self._catalog.initialize("server", properties)
        # The mapper that Iceberg reads and writes REST messages with; its class is not public.
        method = self._class(f"{_REST}.RESTObjectMapper").getDeclaredMethod(
            "mapper", self._array(self._java.lang.Class)
        )
        method.setAccessible(True)
        self._mapper = method.invoke(None, self._array(self._java.lang.Object))

    def answer(self, method: str, path: str, body: str) -> _Answer:
        """Return the status and the text that answer a request."""
        parts = urlsplit(path)
        if parts.path == "/test/faults":
            self._faults = [Fault(**fault) for fault in json.loads(body)]
            return 204, ""
        if parts.path == "/test/requests":
            return 200, json.dumps(self._requests)
        if parts.path == "/v1/config":
            endpoints = [f"{method} {path.replace('/v1/', '/v1/{prefix}/')}" for method, path in _ROUTES]
            return 200, json.dumps({"defaults": {}, "overrides": {}, "endpoints": endpoints})
        for (route_method, route), (handler, request) in _ROUTES.items():
            names = re.fullmatch(route.replace("{", "(?P<").replace("}", ">[^/]+)"), parts.path)
            if names and method.replace("HEAD", "GET") == route_method:
                with self._lock:
                    self._requests[str(handler)] += 1
                fault = self._next_fault() if handler == "updateTable" else Fault()
                time.sleep(fault.seconds)
                done = 204, ""
                if handler and (fault.status is None or fault.applied):
                    done = self._handle(handler, request, names.groupdict(), parse_qs(parts.query), body)
                kind = "CommitFailedException" if fault.status == 409 else "InternalServerError"
                return done if fault.status is None else _error(fault.status, kind, "as the test wants it")
        return _error(404, "NotFoundException", f"no route {method} {parts.path}")

    def _next_fault(self) -> Fault:
        with self._lock:
            if not self._faults:
                return Fault()
            fault = self._faults[0]
            fault.times -= 1
            if fault.times <= 0:
                self._faults.pop(0)
            return fault

    def _handle(
        self, handler: str, request: str | None, names: dict[str, str], query: dict[str, list[str]], body: str
    ) -> _Answer:
        arguments = [self._catalog]
        try:
            if "namespace" in names or handler == "listNamespaces":
                encoded = names.get("namespace") or query.get("parent", [""])[0]
                levels = [level for level in unquote(encoded).split("\x1f") if level]
                arguments.append(self._iceberg.catalog.Namespace.of(self._array(self._java.lang.String, *levels)))
            if name := names.get("table") or names.get("view"):
                arguments[-1] = self._iceberg.catalog.TableIdentifier.of(arguments[-1], unquote(name))
            if handler == "dropTable" and query.get("purgeRequested") == ["true"]:
                handler = "purgeTable"
            if request is not None:
                read = self._mapper.readValue(body, self._class(f"{_REST}.requests.{request}"))
                if request == "CreateTableRequest" and read.stageCreate():
                    handler = "stageTableCreate"
                arguments.append(read)
            answer = getattr(self._iceberg.rest.CatalogHandlers, handler)(*arguments)
            return (204, "") if answer is None else (200, str(self._mapper.writeValueAsString(answer)))
        except Py4JJavaError as e:
            kind = e.java_exception.getClass().getSimpleName()
            return _error(_STATUS.get(kind, 500), kind, str(e.java_exception.getMessage()))

    def _array(self, kind: Any, *items: Any) -> Any:
        array = self._gateway.new_array(kind, len(items))
        for position, item in enumerate(items):
            array[position] = item
        return array

    def _class(self, name: str) -> Any:
        return self._java.lang.Class.forName(name)


def _error(status: int, kind: str, text: str) -> _Answer:
    return status, json.dumps({"error": {"message": text, "type": kind, "code": status}})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # which holds the body for 40 ms, until the client acknowledges the headers
    catalog: _Catalog

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        status, answer = self.catalog.answer(self.command, self.path, body)
        if status == 0:
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.encode())

    do_GET = do_POST = do_DELETE = do_HEAD = handle_any

    def log_message(self, *_: Any) -> None:
        pass


def _main(warehouse: Path) -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    port = launch_gateway(
        classpath=f"{iceberg_jar()}:{jars}/*",
        javaopts=["-Xmx512m", *JAVA_OPTIONS.split()],
        java_path=os.path.join(find_java_home(), "bin", "java"),
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        die_on_exit=True,
    )
    _Handler.catalog = _Catalog(warehouse, JavaGateway(gateway_parameters=GatewayParameters(port=port)))
    http = ThreadingHTTPServer((HOST, 0), _Handler)
    http.daemon_threads = True
    print(f"http://{HOST}:{http.server_address[1]}", flush=True)
    http.serve_forever()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
