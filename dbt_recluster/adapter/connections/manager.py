"""Open connections: in-process ones here, the others as dbt-spark does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dbt.adapters.contracts.connection import Connection, ConnectionState
from dbt.adapters.exceptions.connection import FailedToConnectError
from dbt.adapters.spark.connections import SparkConnectionManager
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections.credentials import ConnectionMethod, ReclusterCredentials
from dbt_recluster.adapter.dbt_errors import failure, logger, redacted_errors
from dbt_recluster.iceberg.session.environment import require_pyspark
from dbt_recluster.iceberg.session.jobs import CancellableJobs, job_group
from dbt_recluster.key.columns import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_VIEWS = "view is not supported by catalog"
_INSTEAD_OF_VIEWS = "Let the model be a table or ephemeral, or use a catalog that has views, e.g. a REST one"


class ReclusterConnectionManager(SparkConnectionManager):
    """dbt-spark's connection manager with methods of its own, and Spark jobs beside connections."""

    TYPE = "recluster"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # What runs beside connections to recluster their tables, by the names of the connections.
        self._beside: dict[str, CancellableJobs] = {}
        # The thread that cancelled the connections of all others.
        self._cancelled_by: int | None = None

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        """Open ``connection``; starts Spark when it is the first of an in-process method."""
        credentials = connection.credentials
        assert isinstance(credentials, ReclusterCredentials)
        if connection.state == ConnectionState.OPEN:
            return connection
        if not credentials.in_process:
            with redacted_errors():
                opened: Connection = super().open(connection)
            if credentials.method == ConnectionMethod.SESSION:
                from dbt_recluster.adapter.connections.session import ConnectHandle

                opened.handle = ConnectHandle(credentials)
            if credentials.catalog:
                _run(opened, f"use {quote(credentials.catalog)}", fetch=False)
            return opened
        try:
            require_pyspark()
            # Not at the top: it imports pyspark, which the remote methods do without.
            from dbt_recluster.adapter.connections.session import SessionHandle

            connection.handle = SessionHandle(credentials, connection.name or "connection")
        except DbtRuntimeError:
            raise
        except Exception as e:
            raise FailedToConnectError(failure(e)) from e
        connection.state = ConnectionState.OPEN
        return connection

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        """Raise Spark's errors as dbt's, and say what to do about a view in a catalog that has none."""
        try:
            with redacted_errors(), super().exception_handler(sql):
                yield
        except DbtRuntimeError as e:
            for line in str(e.msg).splitlines():
                if _NO_VIEWS in line:
                    raise DbtRuntimeError(f"{line.strip()}. {_INSTEAD_OF_VIEWS}") from e
            raise

    def ask(self, sql: str, fetch: bool = True) -> list[Any]:
        """Run a statement that takes a moment over this thread's connection to a Spark elsewhere; return its rows.

        Without ``fetch`` it has none; PyHive fails where it is asked for them.

        dbt-spark looks only every ``poll_interval`` whether a statement has ended, five seconds by default.
        """
        with self.exception_handler(sql):
            return _run(self.get_thread_connection(), sql, fetch=fetch)

    @contextmanager
    def jobs_of(self, spark: SparkSession) -> Iterator[None]:
        """Run this thread's jobs in ``spark`` so that cancelling the thread's connection cancels them."""
        connection = self.get_thread_connection()
        name, credentials = str(connection.name), connection.credentials
        if isinstance(credentials, ReclusterCredentials) and credentials.in_process:
            jobs = connection.handle.jobs
        else:
            jobs = self._beside[name] = CancellableJobs(spark, f"dbt-recluster {name} {id(connection):x}")
        try:
            self._refuse_cancelled()
            with job_group(spark, jobs.group):
                yield
        finally:
            if self._beside.pop(name, None):
                jobs.close()

    def add_query(self, *args: Any, **kwargs: Any) -> tuple[Connection, Any]:
        """Run a statement, as dbt-spark does, but none that comes after a cancel."""
        # A cancel sees this connection open, or this thread sees the cancel; so the connection is opened first.
        _ = self.get_thread_connection().handle
        self._refuse_cancelled()
        ran: tuple[Connection, Any] = super().add_query(*args, **kwargs)
        return ran

    def cancel_open(self) -> list[str]:
        """Cancel the connections of all other threads, and what they would run later; return their names.

        dbt calls this on Ctrl-C, and then waits for the nodes that have begun. Its own method opens connections that
        are not open yet, and a node that runs its first statement a moment later would run it to the end.
        """
        self._cancelled_by = threading.get_ident()
        own = self.get_if_exists()
        with self.lock:
            others = [connection for connection in self.thread_connections.values() if connection is not own]
        for connection in others:
            if connection.state == ConnectionState.OPEN:
                self.cancel(connection)
        return [connection.name for connection in others if connection.name is not None]

    def _refuse_cancelled(self) -> None:
        if self._cancelled_by not in (None, threading.get_ident()):
            raise DbtRuntimeError("not run: dbt has cancelled its connections")

    def cancel(self, connection: Connection) -> None:
        """Cancel what runs over ``connection``, and what reclusters its table meanwhile."""
        if jobs := self._beside.get(str(connection.name)):
            jobs.cancel()
        super().cancel(connection)


def _run(connection: Connection, sql: str, *, fetch: bool) -> list[Any]:
    logger.debug(f"on {connection.name}: {sql}")
    cursor = connection.handle.handle.cursor()
    try:
        cursor.execute(sql)
        return list(cursor.fetchall()) if fetch else []
    finally:
        cursor.close()
