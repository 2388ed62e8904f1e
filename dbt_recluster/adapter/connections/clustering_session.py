"""The Spark session that opens and reclusters tables, whichever way the profile connects to Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections.credentials import ReclusterCredentials
from dbt_recluster.adapter.connections.manager import ReclusterConnectionManager
from dbt_recluster.iceberg.session.environment import check_environment, require_pyspark
from dbt_recluster.iceberg.session.jobs import Interruptible
from dbt_recluster.key.columns import Columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_recluster.clustering.table import ClusteredTable


class ClusteringSession:
    """The session of an in-process method; of any other method, none (but see :class:`RemoteSession`)."""

    def __init__(self, connections: ReclusterConnectionManager) -> None:
        self._connections = connections
        self._profile: Any = connections.profile
        self.credentials: ReclusterCredentials = self._profile.credentials  # type: ignore[assignment]

    @property
    def missing_reason(self) -> str | None:
        """Why there is no session to recluster with, or None if there is one."""
        if self.credentials.in_process:
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
        require_pyspark()
        from dbt_recluster.adapter.connections.session import spark_session

        return spark_session(self.credentials)

    def open(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order."""
        from dbt_recluster.clustering.table import ClusteredTable

        return ClusteredTable(self.spark, relation)

    @contextmanager
    def cancellable(self) -> Iterator[None]:
        """Run Spark jobs that dbt's cancel on Ctrl-C ends."""
        if self.missing_reason:
            yield
            return
        with Interruptible(), self._connections.jobs_of(self.spark):
            yield

    def check(self) -> None:
        """Check for ``dbt debug`` that Spark has what clustering needs."""
        if not self.missing_reason:
            check_environment(self.spark, self.credentials.catalog)

    def columns(self, types: Mapping[str, str]) -> Columns:
        """Return columns by their types, under the connection's rule for the case of names."""
        return Columns.parse(types, case_sensitive=self.case_sensitive)

    @cached_property
    def case_sensitive(self) -> bool:
        """Whether the connection distinguishes ``k`` from ``K``."""
        return str(self._connections.ask("set spark.sql.caseSensitive")[0][1]).lower() == "true"
