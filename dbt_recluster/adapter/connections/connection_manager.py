"""dbt's connections: opening, querying and cancelling."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbt.adapters.contracts.connection import Connection, ConnectionState
from dbt.adapters.exceptions.connection import FailedToConnectError
from dbt.adapters.spark.connections import SparkConnectionManager
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.dbt_errors import failure, logger, redacted_errors
from dbt_recluster.iceberg.session.environment import require_pyspark
from dbt_recluster.iceberg.session.jobs import CancellableJobs, job_group
from dbt_recluster.iceberg.session.jvm import SparkSession
from dbt_recluster.key.columns import quote


class ReclusterConnectionManager(SparkConnectionManager):
    """dbt-spark's connection manager with in-process methods, and Spark jobs beside connections."""

    TYPE = "recluster"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._beside: dict[str, CancellableJobs] = {}  # reclustering jobs, by the connection they run beside
        self._cancelled_by: int | None = None  # the thread that cancelled the connections of all others
        self._undoing: set[int] = set()  # threads that restore what they have changed

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        """Open ``connection``; the first one of an in-process method starts Spark."""
        credentials: Any = connection.credentials
        if connection.state == ConnectionState.OPEN:
            return connection
        if credentials.method.in_process:
            try:
                require_pyspark()
                # Imports pyspark, which the remote methods do without.
                from dbt_recluster.adapter.connections.handles import ConnectHandle, SessionHandle

                connection.handle = (
                    SessionHandle(credentials, connection.name or "connection")
                    if credentials.in_process
                    else ConnectHandle(credentials)
                )
            except DbtRuntimeError:
                raise
            except Exception as e:  # pyspark and Java raise exceptions of their own
                raise FailedToConnectError(failure(e)) from e
            connection.state = ConnectionState.OPEN
        else:
            with redacted_errors():
                super().open(connection)
        if credentials.catalog and not credentials.in_process:
            _run(connection, f"use {quote(credentials.catalog)}", fetch=False)
        return connection

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        """Raise Spark's errors as dbt's, and say what to do about a view in a catalog that has none."""
        try:
            with redacted_errors(), super().exception_handler(sql):
                yield
        except DbtRuntimeError as e:
            for line in str(e.msg).splitlines():
                if "view is not supported by catalog" in line:
                    raise DbtRuntimeError(
                        f"{line.strip()}. Let the model be a table or ephemeral, or use a catalog that has views, "
                        "e.g. a REST one"
                    ) from e
            raise

    def ask(self, sql: str, fetch: bool = True) -> list[Any]:
        """Run a short statement over this thread's connection and return its rows; without ``fetch``, it has none.

        A remote one bypasses dbt-spark, which polls for the end of a statement every ``poll_interval``, 5 s.
        """
        connection: Any = self.get_thread_connection()
        if connection.credentials.in_process:
            _, rows = self.execute(sql, fetch=True)
            return [tuple(row) for row in rows]
        with self.exception_handler(sql):
            return _run(connection, sql, fetch=fetch)

    @contextmanager
    def jobs_of(self, spark: SparkSession) -> Iterator[None]:
        """Run this thread's jobs in ``spark`` so that cancelling the thread's connection cancels them."""
        connection: Any = self.get_thread_connection()
        name, is_beside = str(connection.name), not connection.credentials.in_process
        if is_beside:
            self._beside[name] = CancellableJobs(spark, f"dbt-recluster {name} {id(connection):x}")
        jobs = self._beside[name] if is_beside else connection.handle.jobs
        try:
            self._refuse_cancelled()
            with job_group(spark, jobs.group):
                yield
        finally:
            if is_beside:
                self._beside.pop(name).close()

    def execute(self, sql: str, auto_begin: bool = False, fetch: bool = False, limit: int | None = None) -> Any:
        """Run a statement to its end, which a session does by itself only for a query whose rows are fetched."""
        answer = super().execute(sql, auto_begin, fetch, limit)
        connection = self.get_thread_connection()
        if not fetch and connection.credentials.method.in_process:
            connection.handle.finish()
        return answer

    def add_query(self, *args: Any, **kwargs: Any) -> Any:
        """Run a statement, as dbt-spark does, but none that comes after a cancel."""
        # Opened first: either a cancel sees this connection open, or this thread sees the cancel.
        _ = self.get_thread_connection().handle
        self._refuse_cancelled()
        return super().add_query(*args, **kwargs)

    def cancel_open(self) -> list[str]:
        """Cancel the connections of all other threads, and their later statements; return their names.

        dbt calls this on Ctrl-C, and then waits for the nodes that have begun. Its own method would open connections
        that are not open yet, and let a node that runs its first statement a moment later run it to the end.
        """
        self._cancelled_by = threading.get_ident()
        current = self.get_if_exists()
        with self.lock:
            others = [connection for connection in self.thread_connections.values() if connection is not current]
        for connection in others:
            if connection.state == ConnectionState.OPEN:
                self.cancel(connection)
        return [connection.name for connection in others if connection.name is not None]

    @contextmanager
    def after_cancel(self) -> Iterator[None]:
        """Run this thread's statements even after a cancel: they end what it has begun."""
        self._undoing.add(threading.get_ident())
        try:
            yield
        finally:
            self._undoing.discard(threading.get_ident())

    def _refuse_cancelled(self) -> None:
        if self._cancelled_by not in (None, threading.get_ident()) and threading.get_ident() not in self._undoing:
            raise DbtRuntimeError("not run: dbt has cancelled its connections")

    def cancel(self, connection: Connection) -> None:
        """Cancel the statement of ``connection`` and the reclustering jobs beside it."""
        if jobs := self._beside.get(str(connection.name)):
            jobs.cancel()
        super().cancel(connection)


def _run(connection: Connection, sql: str, *, fetch: bool) -> list[Any]:
    logger.debug(f"on {connection.name}: {sql}")
    cursor = connection.handle.handle.cursor()
    try:
        cursor.execute(sql)
        # PyHive fails where rows are asked for and there are none.
        return list(cursor.fetchall()) if fetch else []
    finally:
        cursor.close()
