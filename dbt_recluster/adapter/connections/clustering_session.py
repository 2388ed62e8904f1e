"""The Spark session that opens and reclusters tables, whichever way the profile connects to Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections.credentials import ReclusterCredentials
from dbt_recluster.adapter.connections.manager import ReclusterConnectionManager
from dbt_recluster.adapter.dbt_errors import as_dbt_errors, logger
from dbt_recluster.iceberg.session.environment import check_environment, require_pyspark
from dbt_recluster.iceberg.session.interruption import Interruptible
from dbt_recluster.key.columns import Columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_recluster.clustering.table import ClusteredTable


class ClusteringSession:
    """A session in this process: that of an in-process method, or that of ``recluster_session``, or none."""

    def __init__(
        self, credentials: ReclusterCredentials, connections: ReclusterConnectionManager, logs: Path
    ) -> None:
        self.credentials = credentials
        self._connections = connections
        self._remote = None
        if credentials.recluster_session is not None:
            from dbt_recluster.adapter.connections.recluster_session import ConnectionTables

            self._remote = ConnectionTables(credentials, connections.ask, logs)

    @property
    def missing_reason(self) -> str | None:
        """Why there is no session to recluster with, or None if there is one."""
        if self.credentials.in_process or self._remote is not None:
            return None
        if self.credentials.recluster_submit is not None:
            return (
                "operations need a Spark session in dbt's own process, and `recluster_submit` only follows builds. "
                "Submit the job by hand with --manifest, or put `recluster_session` in its place in the profile."
            )
        return (
            f"reclustering needs a Spark session in dbt's own process, and `method: {self.credentials.method}` "
            "connects to one elsewhere. Add `recluster_session` to the profile: the settings of a session that "
            "reaches the same catalog."
        )

    @property
    def spark(self) -> SparkSession:
        """The session; the first use may start Spark."""
        if reason := self.missing_reason:
            raise DbtRuntimeError(reason)
        if self._remote is not None:
            return self._remote.spark
        require_pyspark()
        from dbt_recluster.adapter.connections.session import spark_session

        return spark_session(self.credentials)

    def open(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order."""
        if self._remote is not None:
            return self._remote.open(relation)
        from dbt_recluster.clustering.table import ClusteredTable

        return ClusteredTable(self.spark, relation)

    @contextmanager
    def cancellable(self) -> Iterator[None]:
        """Run Spark jobs that dbt's cancel on Ctrl-C ends, and show the connection what they changed."""
        if self.missing_reason:
            yield
            return
        refreshing = nullcontext() if self._remote is None else self._remote.refreshing()
        with Interruptible(), self._connections.jobs_of(self.spark), refreshing:
            yield

    def check(self) -> None:
        """Check that Spark has what clustering needs."""
        with as_dbt_errors():
            if self.credentials.in_process:
                check_environment(self.spark, self.credentials.catalog)
            elif self._remote is not None:
                logger.info(self._remote.check(str(self.credentials.schema)))

    def columns(self, types: Mapping[str, str]) -> Columns:
        """Return columns by their types, under the connection's rule for the case of names."""
        return Columns.parse(types, case_sensitive=self.case_sensitive)

    @cached_property
    def case_sensitive(self) -> bool:
        """Whether the connection distinguishes ``k`` from ``K``."""
        return str(self._connections.ask("set spark.sql.caseSensitive")[0][1]).lower() == "true"
