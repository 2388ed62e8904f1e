"""Open connections: in-process ones here, the others as dbt-spark does."""

from __future__ import annotations

from dbt.adapters.contracts.connection import Connection, ConnectionState
from dbt.adapters.exceptions.connection import FailedToConnectError
from dbt.adapters.spark.connections import SparkConnectionManager
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.credentials import ReclusterCredentials


class ReclusterConnectionManager(SparkConnectionManager):
    """dbt-spark's connection manager with two methods of its own."""

    TYPE = "recluster"

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        """Open ``connection``; starts Spark when it is the first of an in-process method."""
        credentials = connection.credentials
        assert isinstance(credentials, ReclusterCredentials)
        if connection.state == ConnectionState.OPEN or not credentials.method.in_process:
            opened: Connection = super().open(connection)
            return opened
        # Not at the top: it imports pyspark, which the remote methods do without.
        from dbt_recluster.adapter.session import SessionHandle

        try:
            connection.handle = SessionHandle(credentials, connection.name or "connection")
        except DbtRuntimeError:
            raise
        except Exception as e:
            raise FailedToConnectError(str(e)) from e
        connection.state = ConnectionState.OPEN
        return connection
