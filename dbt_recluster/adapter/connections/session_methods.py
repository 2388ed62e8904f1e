"""The session that looks at tables and reclusters them, whichever way the profile connects to Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.spark.impl import SparkAdapter
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections.credentials import ReclusterCredentials
from dbt_recluster.adapter.connections.manager import ReclusterConnectionManager
from dbt_recluster.adapter.relations.catalogs import Catalogs
from dbt_recluster.exceptions import NotAnIcebergTableError
from dbt_recluster.iceberg.session.environment import require_pyspark
from dbt_recluster.iceberg.session.interruption import Interruptible
from dbt_recluster.key.columns import Columns
from dbt_recluster.names import NameResolution, name_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_recluster.adapter.connections.recluster_session import ConnectionTables
    from dbt_recluster.clustering.table import ClusteredTable


class SessionMethods(SparkAdapter):
    """dbt-spark, and a Spark session in this process where the profile gives one."""

    ConnectionManager = ReclusterConnectionManager
    connections: ReclusterConnectionManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tables = self._connection_tables()
        self.catalogs = Catalogs(self.ask)

    def set_relations_cache(self, *arguments: Any, **named: Any) -> None:
        """List the relations of all schemas; when models are compiled, each schema when a macro asks for it."""
        if getattr(self.config.args, "which", None) != "compile":
            super().set_relations_cache(*arguments, **named)

    def cannot_recluster(self) -> str | None:
        """Return why there is no Spark session in this process to look at tables with, or None if there is."""
        method = self.credentials.method
        if self.credentials.in_process or self.credentials.recluster_session is not None:
            return None
        if self.credentials.recluster_submit is not None:
            return (
                "operations need a Spark session in dbt's own process, and `recluster_submit` only follows builds. "
                "Submit the job by hand with --manifest, or put `recluster_session` in its place in the profile."
            )
        return (
            f"reclustering needs a Spark session in dbt's own process, and `method: {method}` connects to one "
            "elsewhere. Add `recluster_session` to the profile: the settings of a session that reaches the same "
            "catalog."
        )

    @property
    def credentials(self) -> ReclusterCredentials:
        """The profile."""
        credentials = self.config.credentials
        assert isinstance(credentials, ReclusterCredentials)
        return credentials

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this process, which reclusters; the first use may start it."""
        if reason := self.cannot_recluster():
            raise DbtRuntimeError(reason)
        if self._tables is not None:
            return self._tables.spark
        require_pyspark()
        from dbt_recluster.adapter.connections.session import spark_session

        return spark_session(self.credentials)

    def _connection_tables(self) -> ConnectionTables | None:
        """The tables of a connection that leads elsewhere, if ``recluster_session`` says how to recluster them."""
        credentials = self.credentials
        if credentials.recluster_session is None:
            return None
        from dbt_recluster.adapter.connections.recluster_session import ConnectionTables

        log_directory = Path(getattr(self.config, "log_path", None) or "logs")
        return ConnectionTables(credentials, self.connections.ask, log_directory)

    def ask(self, sql: str) -> list[Any]:
        """Run a statement that takes a moment, and return its rows."""
        if not self.credentials.in_process:
            return self.connections.ask(sql)
        _, rows = self.execute(sql, fetch=True)
        return [tuple(row) for row in rows]

    def open_table(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order."""
        if self._tables is not None:
            return self._tables.open(relation)
        from dbt_recluster.clustering.table import ClusteredTable

        return ClusteredTable(self.spark, relation)

    @property
    def names(self) -> NameResolution:
        """Which table a name means to this connection."""
        return NameResolution(lambda: self.catalogs.current, self.catalogs.is_catalog, self._is_one_table)

    def _is_one_table(self, one: str, other: str) -> bool:
        try:
            return self.open_table(one).iceberg.uuid == self.open_table(other).iceberg.uuid
        except NotAnIcebergTableError:
            return False

    def is_built(self, relation: str) -> bool:
        """Whether there is a relation of this name."""
        *catalog, schema, identifier = name_parts(relation)
        database = catalog[0] if catalog else self.credentials.database
        return self.get_relation(database, schema, identifier) is not None  # type: ignore[arg-type]

    @contextmanager
    def cancellable(self) -> Iterator[None]:
        """Run Spark jobs so that dbt's cancel on Ctrl-C ends them, and have the connection see what they changed."""
        if self.cannot_recluster():
            yield
            return
        refreshing = self._tables.refreshing() if self._tables is not None else nullcontext()
        with Interruptible(), self.connections.jobs_of(self.spark), refreshing:
            yield

    def parse_columns(self, types: Mapping[str, str]) -> Columns:
        """Return columns by their types, under the session's rule for names."""
        return Columns.parse(types, case_sensitive=self.case_sensitive)

    @cached_property
    def case_sensitive(self) -> bool:
        """Whether the session distinguishes ``k`` from ``K``."""
        return str(self.ask("set spark.sql.caseSensitive")[0][1]).lower() == "true"
