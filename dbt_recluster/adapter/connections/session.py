"""Connections of the methods whose Spark runs in this process.

dbt-spark builds the session again for each statement. That sets every server-side parameter again, which undoes a `set`
in a hook, and prints a warning each time. Here the session is configured once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from dbt.adapters.spark.session import Connection, Cursor, SessionConnectionWrapper
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections import embedded
from dbt_recluster.adapter.connections.credentials import ConnectionMethod, ReclusterCredentials
from dbt_recluster.adapter.dbt_errors import logger
from dbt_recluster.iceberg.locks import table_lock, written_tables
from dbt_recluster.iceberg.session.environment import refuse_spark_connect
from dbt_recluster.iceberg.session.interruption import Interruptible
from dbt_recluster.iceberg.session.java_errors import readable_message
from dbt_recluster.iceberg.session.jobs import CancellableJobs, job_group
from dbt_recluster.iceberg.session.starter import session_of, start_spark
from dbt_recluster.key.columns import sql_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_session(credentials: ReclusterCredentials) -> SparkSession:
    """Return the session of a profile; the first call starts and configures it."""
    parameters = credentials.server_side_parameters
    refuse_spark_connect(
        "add `recluster_submit` to the profile: the command that submits the job which reclusters, to a driver with a "
        "JVM (docs/guides/connections.md, Spark Connect)"
    )
    archive = credentials.class_archive
    if credentials.method == ConnectionMethod.EMBEDDED:
        return embedded.start(str(credentials.path), parameters, credentials.spark_log_level, archive)
    return session_of(
        parameters, lambda: start_spark(parameters, hive=True, report=logger.info, class_archive=archive)
    )


class SessionCursor(Cursor):
    """Runs statements in the session of this process."""

    def __init__(
        self, session: Callable[[], SparkSession], job_group_id: str, serialise_commits: bool
    ) -> None:
        super().__init__()
        self._session = session
        self._job_group_id = job_group_id
        self._serialise_commits = serialise_commits

    def execute(self, sql: str, *parameters: Any) -> None:
        """Run one statement; ``parameters`` are SQL literals (see SessionHandle._fix_binding)."""
        if parameters:
            sql = sql % parameters
        writes = written_tables(sql) if self._serialise_commits else []
        with self._running() as spark, table_lock(*writes):
            self._df = spark.sql(sql)

    def fetchall(self) -> list[Any] | None:
        """Return all rows."""
        with self._running():
            rows: list[Any] | None = super().fetchall()
            return rows

    @contextmanager
    def _running(self) -> Iterator[SparkSession]:
        """Run Spark's jobs so that they can be cancelled, and raise its errors as dbt's."""
        with Interruptible():
            try:
                spark = self._session()
                with job_group(spark, self._job_group_id):
                    yield spark
            except Exception as e:
                raise DbtRuntimeError(readable_message(e)) from e


class _Handle(SessionConnectionWrapper):
    @classmethod
    def _fix_binding(cls, value: Any) -> str:
        """Write a seed's value as a SQL literal.

        dbt-spark writes NULL as the string 'None', fails at a quote, and converts integers and decimals to floats.
        """
        is_literal = value is None or isinstance(value, (int, float, Decimal))
        return sql_literal(value if is_literal else str(value))


class SessionHandle(_Handle):
    """A dbt connection; closing it keeps the session for the next one."""

    def __init__(self, credentials: ReclusterCredentials, name: str) -> None:
        super().__init__(Connection())
        self._credentials = credentials
        with Interruptible():
            self.spark: SparkSession = spark_session(credentials)
            if credentials.catalog and self.spark.catalog.currentCatalog() != credentials.catalog:
                self.spark.catalog.setCurrentCatalog(credentials.catalog)
        self.jobs = CancellableJobs(self.spark, f"dbt-recluster {name} {id(self):x}")

    def cursor(self) -> SessionHandle:
        """Return this handle with a new cursor, as dbt-spark does."""
        self._cursor = SessionCursor(
            lambda: spark_session(self._credentials),
            self.jobs.group,
            serialise_commits=self._credentials.method == ConnectionMethod.EMBEDDED,
        )
        return self

    def cancel(self) -> None:
        """Cancel the Spark jobs of this connection; dbt calls it on Ctrl-C, and closes the connection later."""
        self.jobs.cancel()

    def close(self) -> None:
        """Close the connection, as dbt does at the end of a node."""
        self.jobs.close()
        super().close()


class ConnectHandle(_Handle):
    """A dbt connection by Spark Connect; `SPARK_REMOTE` says where to."""

    def __init__(self, credentials: ReclusterCredentials) -> None:
        super().__init__(_ConnectConnection(server_side_parameters=credentials.server_side_parameters))

    def cancel(self) -> None:
        """Interrupt what runs in the session; dbt cancels all connections on Ctrl-C."""
        _connect_session(frozenset(self.handle.server_side_parameters.items())).interruptAll()


class _ConnectConnection(Connection):
    def cursor(self) -> Cursor:
        return _ConnectCursor(server_side_parameters=self.server_side_parameters)


class _ConnectCursor(Cursor):
    def execute(self, sql: str, *parameters: Any) -> None:
        session = _connect_session(frozenset(self.server_side_parameters.items()))
        self._df = session.sql(sql % parameters if parameters else sql)


@cache
def _connect_session(settings: frozenset[tuple[str, str]]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings:
        builder = builder.config(name, value)
    return builder.getOrCreate()
