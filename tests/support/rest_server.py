"""A REST catalog on this machine: Iceberg's own handlers of REST requests, in a process of their own.

No package that can be reached carries such a server for tables on a local disk. Requests and responses are read and
written by Iceberg's own serializers; this file only knows which handler serves which path. A test may have it refuse,
fail, delay or drop the answers to commits (:class:`Fault`).

The process is this file, run as a program: Python serves HTTP and calls a JVM. It is not the test's process, because
pyspark takes every error of a JVM for one of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen

from ports import HOST
from runtime import JAVA_OPTIONS, iceberg_jar
from sessions import of_rest

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
_NAMESPACE, _TABLE, _VIEW = (
    "/v1/namespaces/{namespace}",
    "/v1/namespaces/{namespace}/tables/{table}",
    "/v1/namespaces/{namespace}/views/{view}",
)
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


@dataclass(frozen=True)
class RestServer:
    """A server that runs in another process.

    Attributes:
        uri: Its address.
        process: The process.
    """

    uri: str
    process: subprocess.Popen[str]

    def settings(self, catalog: str) -> dict[str, str]:
        """Return the Spark settings of a catalog of this server."""
        prefix = f"spark.sql.catalog.{catalog}"
        named = {f"{prefix}{name}": value for name, value in of_rest(self.uri).items()}
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.cache-enabled": "false",
            **named,
        }

    @property
    def commits(self) -> int:
        """How many commits of tables were asked for."""
        with urlopen(f"{self.uri}/test/commits") as response:
            return int(response.read())

    def fail(self, *faults: Fault) -> None:
        """Let these faults happen next, in order."""
        body = json.dumps([asdict(fault) for fault in faults]).encode()
        with urlopen(Request(f"{self.uri}/test/faults", body)):
            pass

    def kill(self) -> None:
        """Kill the server; its tables are lost with it."""
        self.process.kill()
        self.process.wait()


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


class _Serving:
    """The server, in its own process."""

    def __init__(self, warehouse: Path, gateway: Any) -> None:
        self.faults: list[Fault] = []
        self.commits = 0
        self._lock = threading.Lock()
        self._gateway = gateway
        self._iceberg = gateway.jvm.org.apache.iceberg
        self._mapper = _mapper(gateway)
        catalog = self._iceberg.inmemory.InMemoryCatalog()
        properties = gateway.jvm.java.util.HashMap()
        properties.put("warehouse", warehouse.as_uri())
        properties.put("io-impl", "org.apache.iceberg.hadoop.HadoopFileIO")
        catalog.initialize("server", properties)
        self._catalog = catalog
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length).decode()
                status, answer = server.answer(self.command, self.path, body)
                if status == 0:
                    self.close_connection = True
                    self.connection.close()
                    return
                data = answer.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_POST = do_DELETE = do_HEAD = handle_any

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.http = ThreadingHTTPServer((HOST, 0), Handler)
        self.http.daemon_threads = True
        self.uri = f"http://{HOST}:{self.http.server_address[1]}"

    def answer(self, method: str, path: str, body: str) -> tuple[int, str]:
        """Return the status and the text that answer a request."""
        parts = urlsplit(path)
        if parts.path == "/test/faults":
            self.faults = [Fault(**fault) for fault in json.loads(body)]
            return 204, ""
        if parts.path == "/test/commits":
            return 200, str(self.commits)
        if parts.path == "/v1/config":
            endpoints = [f"{method} {path.replace('/v1/', '/v1/{prefix}/')}" for method, path in _ROUTES]
            return 200, json.dumps({"defaults": {}, "overrides": {}, "endpoints": endpoints})
        matched = _match("GET" if method == "HEAD" else method, parts.path)
        if matched is None:
            return _error(404, "NotFoundException", f"no route {method} {parts.path}")
        (handler, request), names = matched
        fault = self._fault() if handler == "updateTable" else Fault()
        time.sleep(fault.seconds)
        done = 204, ""
        if fault.status is None or fault.applied:
            done = self._handle(handler, request, names, parse_qs(parts.query), body)
        if fault.status is None:
            return done
        kind = "CommitFailedException" if fault.status == 409 else "InternalServerError"
        return _error(fault.status, kind, "as the test wants it")

    def _fault(self) -> Fault:
        with self._lock:
            self.commits += 1
            if not self.faults:
                return Fault()
            fault = self.faults[0]
            fault.times -= 1
            if fault.times <= 0:
                self.faults.pop(0)
            return fault

    def _handle(
        self, handler: str | None, request: str | None, names: dict[str, str], query: Any, body: str
    ) -> tuple[int, str]:
        from py4j.protocol import Py4JJavaError

        try:
            if handler is None:
                return 204, ""
            arguments: list[Any] = [self._catalog]
            if "namespace" in names:
                arguments.append(self._namespace(names["namespace"]))
            elif handler == "listNamespaces":
                arguments.append(self._namespace(query.get("parent", [""])[0]))
            if name := names.get("table") or names.get("view"):
                arguments[-1] = self._iceberg.catalog.TableIdentifier.of(arguments[-1], name)
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
            java = e.java_exception
            kind = java.getClass().getSimpleName()
            return _error(_STATUS.get(kind, 500), kind, str(java.getMessage()))

    def _namespace(self, text: str) -> Any:
        levels = [level for level in text.split("\x1f") if level]
        array = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(levels))
        for position, level in enumerate(levels):
            array[position] = level
        return self._iceberg.catalog.Namespace.of(array)

    def _class(self, name: str) -> Any:
        return self._gateway.jvm.java.lang.Class.forName(name)


def _mapper(gateway: Any) -> Any:
    """Return the mapper that Iceberg reads and writes REST messages with; its class is not public."""
    kind = gateway.jvm.java.lang.Class.forName(f"{_REST}.RESTObjectMapper")
    method = kind.getDeclaredMethod("mapper", gateway.new_array(gateway.jvm.java.lang.Class, 0))
    method.setAccessible(True)
    return method.invoke(None, gateway.new_array(gateway.jvm.java.lang.Object, 0))


def _match(method: str, path: str) -> tuple[tuple[str | None, str | None], dict[str, str]] | None:
    given = path.strip("/").split("/")
    for (route_method, route), handler in _ROUTES.items():
        wanted = route.strip("/").split("/")
        if route_method != method or len(wanted) != len(given):
            continue
        if all(w.startswith("{") or w == g for w, g in zip(wanted, given, strict=True)):
            return handler, {
                w[1:-1]: unquote(g) for w, g in zip(wanted, given, strict=True) if w.startswith("{")
            }
    return None


def _error(status: int, kind: str, text: str) -> tuple[int, str]:
    return status, json.dumps({"error": {"message": text, "type": kind, "code": status}})


def _main(warehouse: Path) -> None:
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    jars = Path(pyspark.__file__).parent / "jars"
    port = launch_gateway(
        classpath=f"{iceberg_jar()}:{jars}/*",
        javaopts=["-Xmx512m", *JAVA_OPTIONS.split()],
        java_path=os.path.join(find_java_home(), "bin", "java"),
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        die_on_exit=True,
    )
    serving = _Serving(warehouse, JavaGateway(gateway_parameters=GatewayParameters(port=port)))
    print(serving.uri, flush=True)
    serving.http.serve_forever()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
