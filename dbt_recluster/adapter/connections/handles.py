"""Connections of the methods whose Spark runs in this process, and of Spark Connect.

dbt-spark sets every server-side parameter again at each statement, which undoes a `set` in a hook. Here the session is
configured once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, cast

from dbt.adapters.spark.session import Cursor, SessionConnectionWrapper
from dbt_common.exceptions import DbtRuntimeError
from pyspark.sql import SparkSession

from dbt_recluster.adapter.connections.credentials import ConnectionMethod, ReclusterCredentials
from dbt_recluster.adapter.dbt_errors import logger
from dbt_recluster.iceberg.session import embedded, environment, redaction, starter
from dbt_recluster.iceberg.session.jobs import CancellableJobs, Interruptible, job_group
from dbt_recluster.key.columns import sql_literal
from dbt_recluster.names import table_lock, written_tables


def spark_session(credentials: ReclusterCredentials) -> SparkSession:
    """Return the session of a profile; the first call starts Spark."""
    parameters, archive = credentials.server_side_parameters, credentials.class_archive
    environment.refuse_spark_connect(
        "add `recluster_submit` to the profile: the command that submits the job which reclusters, to a driver with a "
        "JVM (https://dbt-recluster.github.io/dbt-recluster/latest/guides/connections/#spark-connect)"
    )
    if credentials.method == ConnectionMethod.EMBEDDED:
        path, log_level = str(credentials.path), credentials.spark_log_level
        return embedded.start(path, parameters, log_level, class_archive=archive, report=logger.info)
    start_outside = partial(starter.start_spark, parameters, hive=True, report=logger.info, class_archive=archive)
    return starter.session_of(parameters, start_outside)


class SessionCursor(Cursor):
    """Runs statements in the session of this process, as jobs that can be cancelled."""

    def __init__(self, session: Callable[[], SparkSession], job_group_id: str, serialise_commits: bool) -> None:
        super().__init__()
        self._session = session
        self._job_group_id = job_group_id
        self._serialise_commits = serialise_commits

    def execute(self, sql: str, *parameters: Any) -> None:
        """Run one statement; ``parameters`` are SQL literals (see ``_fix_binding``)."""
        sql = sql % parameters if parameters else sql
        writes = written_tables(sql) if self._serialise_commits else []
        with self._running() as spark, table_lock(*writes):
            self._df = spark.sql(sql)

    def fetchall(self) -> Any:
        """Return all rows."""
        with self._running():
            return super().fetchall()

    def finish(self) -> None:
        """Run a query whose rows are not fetched, such as a check in a hook. Spark has run other statements already."""
        with self._running():
            if self._df is not None and not self._df.isLocal():
                # As text, since no sink takes intervals, and Python does not hold every value.
                self._df.selectExpr("cast(struct(*) as string)").write.format("noop").mode("overwrite").save()

    @contextmanager
    def _running(self) -> Iterator[SparkSession]:
        with Interruptible():
            try:
                spark = self._session()
                with job_group(spark, self._job_group_id):
                    yield spark
            except Exception as e:  # whatever Spark raises becomes dbt's
                raise DbtRuntimeError(redaction.readable_message(e)) from e


class _ConnectCursor(SessionCursor):
    @contextmanager
    def _running(self) -> Iterator[SparkSession]:
        yield self._session()


class _Handle(SessionConnectionWrapper):
    def __init__(self, cursor: Callable[[], SessionCursor]) -> None:
        connection: Any = SimpleNamespace(cursor=cursor)
        super().__init__(connection)

    def finish(self) -> None:
        """Run the last query, whose rows are not fetched."""
        cast(SessionCursor, self._cursor).finish()

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
        with Interruptible():
            self.spark = spark_session(credentials)
            if credentials.catalog and self.spark.catalog.currentCatalog() != credentials.catalog:
                self.spark.catalog.setCurrentCatalog(credentials.catalog)
        self.jobs = CancellableJobs(self.spark, f"dbt-recluster {name} {id(self):x}")
        is_embedded = credentials.method == ConnectionMethod.EMBEDDED
        session = partial(spark_session, credentials)
        super().__init__(partial(SessionCursor, session, self.jobs.group, serialise_commits=is_embedded))

    def cancel(self) -> None:
        """Cancel the Spark jobs of this connection; dbt calls it on Ctrl-C, and closes the connection later."""
        self.jobs.cancel()

    def close(self) -> None:
        """Close the connection, as dbt does at the end of a node."""
        self.jobs.close()
        super().close()


class ConnectHandle(_Handle):
    """A dbt connection by Spark Connect, to the server that ``SPARK_REMOTE`` names."""

    def __init__(self, credentials: ReclusterCredentials) -> None:
        self._session = partial(_connect_session, frozenset(credentials.server_side_parameters.items()))
        super().__init__(partial(_ConnectCursor, self._session, "", serialise_commits=False))

    def cancel(self) -> None:
        """Interrupt what runs in the session; dbt cancels all connections on Ctrl-C."""
        self._session().interruptAll()


@cache
def _connect_session(settings: frozenset[tuple[str, str]]) -> SparkSession:
    return SparkSession.builder.config(map=dict(settings)).getOrCreate()
