"""The Spark session that opens and reclusters tables, whichever way the profile connects to Spark.

With the profile's ``recluster_session``, it is one in this process for the tables of a Spark elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections.connection_manager import ReclusterConnectionManager
from dbt_recluster.adapter.connections.credentials import ReclusterCredentials, default_catalog
from dbt_recluster.adapter.dbt_errors import logger, message
from dbt_recluster.exceptions import DifferentTableError, NotAnIcebergTableError, ReclusterError, SparkEnvironmentError
from dbt_recluster.iceberg.session import environment, local_spark, starter
from dbt_recluster.iceberg.session.jobs import Interruptible
from dbt_recluster.iceberg.session.jvm import SparkSession
from dbt_recluster.key.columns import Columns
from dbt_recluster.names import join_parts, name_parts

if TYPE_CHECKING:
    from dbt_recluster.api import ClusteredTable
    from dbt_recluster.iceberg.iceberg_table import IcebergTable


class ClusteringSession:
    """The session of an in-process method; of any other method, none (but see :class:`RemoteSession`)."""

    def __init__(self, connections: ReclusterConnectionManager) -> None:
        self._connections = connections
        self._profile: Any = connections.profile
        self.credentials: ReclusterCredentials = self._profile.credentials  # type: ignore[assignment]

    @property
    def missing_reason(self) -> str | None:
        """The reason that there is no session to recluster with, or None if there is one."""
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
        environment.require_pyspark()
        from dbt_recluster.adapter.connections.handles import spark_session

        return spark_session(self.credentials)

    def open(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order."""
        from dbt_recluster.api import ClusteredTable

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
            environment.check_environment(self.spark, self.credentials.catalog)

    def columns(self, types: Mapping[str, str]) -> Columns:
        """Return columns by their types, under the connection's rule for the case of names."""
        return Columns.parse(types, case_sensitive=self.case_sensitive)

    @cached_property
    def case_sensitive(self) -> bool:
        """Whether the connection distinguishes ``k`` from ``K``."""
        return str(self._connections.ask("set spark.sql.caseSensitive")[0][1]).lower() == "true"


class RemoteSession(ClusteringSession):
    """A session for the tables of a connection to a Spark elsewhere, which starts with the first of them.

    Before a table is changed, both sides must see the same one. SQL does not show its uuid, and a copy registered in
    another catalog has the same uuid. But ``metadata_log_entries`` lists its metadata files: every commit writes a new
    one, and the last is the catalog's.
    """

    missing_reason = None

    def __init__(self, connections: ReclusterConnectionManager) -> None:
        super().__init__(connections)
        self._settings = self.credentials.recluster_session or {}
        self._session_catalog = default_catalog(self._settings, self.credentials.catalog)
        self._ask = connections.ask
        logs = Path(getattr(self._profile, "log_path", None) or "logs")
        self._log = logs.resolve() / "recluster_session.log"
        self._error: ReclusterError | None = None
        self._opened = threading.local()

    @property
    def spark(self) -> SparkSession:
        """The session; the first call starts Spark, which takes seconds.

        Raises:
            SparkEnvironmentError: Spark does not start, or lacks what clustering needs. It is tried once.
        """
        return starter.session_of({**self._settings, environment.DEFAULT_CATALOG: self._session_catalog}, self._start)

    def open(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order, once it is known to be the same on both sides."""
        from dbt_recluster.iceberg.actions import without_scheme

        files, snapshot_id = self._metadata_log(relation)
        try:
            catalog, *rest = name_parts(relation)
            is_ours = len(rest) > 1 and catalog == self.credentials.catalog
            table = super().open(join_parts((self._session_catalog, *rest)) if is_ours else relation)
        except NotAnIcebergTableError as e:
            raise DifferentTableError(
                f"the session of recluster_session has no table {relation}: {e}. Over the connection its metadata is "
                f"{files[-1]}. {self._places()}"
            ) from e
        iceberg = table.iceberg
        is_same_file = without_scheme(files[-1]) == without_scheme(iceberg.metadata_file)
        if not is_same_file or snapshot_id != iceberg.snapshot_id:
            self._check_log(relation, iceberg)
        if (opened := getattr(self._opened, "tables", None)) is not None:
            opened.append((relation, iceberg, iceberg.metadata_file))
        return table

    @contextmanager
    def cancellable(self) -> Iterator[None]:
        """Run Spark jobs that dbt's cancel ends; at the end, refresh the changed tables over the connection."""
        opened: list[tuple[str, IcebergTable, str]] = []
        self._opened.tables = opened
        try:
            with super().cancellable():
                yield
        finally:
            self._opened.tables = None
            for name, table, file in opened:
                try:
                    table.refresh()
                    if table.metadata_file != file:
                        self._ask(f"refresh table {name}", False)
                except Exception as e:
                    # The change is committed; the connection may answer from its cache for half a minute.
                    logger.debug(f"{name} was not refreshed over the connection: {message(e)}")

    def check(self) -> None:
        """Check for ``dbt debug`` the session and the first Iceberg table of the schema, and log both."""
        spark, schema = self.spark, str(self.credentials.schema)
        master = spark.sparkContext.master
        text = f"recluster_session: Spark {spark.version} on {master}, catalog {self._session_catalog}"
        same = f"{schema} has no Iceberg table yet by which to tell that the connection's catalog is the same"
        try:
            names = [f"{schema}.{row[1]}" for row in self._ask(f"show tables in {schema}")[:5]]
        except DbtRuntimeError:  # the schema does not exist yet
            names = []
        for name in names:
            try:
                self.open(name)
            except NotAnIcebergTableError:
                continue
            same = f"{name} is the same table over the connection"
            break
        logger.info(f"{text}; {same}")

    def _start(self) -> SparkSession:
        if self._error is not None:
            raise self._error
        began = time.monotonic()
        try:
            environment.refuse_spark_connect("run dbt without it")
            settings = session_settings(self._settings, self._session_catalog, self._log)
            if starter.is_running():
                spark = starter.new_session(settings)
            else:
                self._log.parent.mkdir(parents=True, exist_ok=True)
                spark = starter.start_spark(
                    settings,
                    report=lambda line: logger.info(f"recluster_session: {line}"),
                    class_archive=self.credentials.class_archive,
                )
            environment.check_environment(spark)
        except Exception as e:  # whatever pyspark and Java raise
            self._error = SparkEnvironmentError(f"recluster_session: {message(e)}")
            raise self._error from e
        logger.debug(f"recluster_session answered after {time.monotonic() - began:.1f} s")
        return spark

    def _metadata_log(self, name: str) -> tuple[list[str], int | None]:
        """Return a table's metadata files over the connection, the current one last, and its snapshot id."""
        try:
            rows = self._ask(f"select file, latest_snapshot_id from {name}.metadata_log_entries")
        except DbtRuntimeError as e:
            raise NotAnIcebergTableError(
                f"{name} is not a table whose metadata the connection can read, as an Iceberg table's: "
                f"{message(e).splitlines()[0]}"
            ) from e
        # Earlier entries may name expired snapshots; the last one never does.
        snapshot_id = rows[-1][1]
        return [str(row[0]) for row in rows], None if snapshot_id is None else int(snapshot_id)

    def _check_log(self, name: str, table: IcebergTable) -> None:
        """Compare the metadata logs: another writer may have committed meanwhile, or a cache may be stale."""
        from dbt_recluster.iceberg.actions import without_scheme

        table.refresh()
        ours = table.metadata_file
        self._ask(f"refresh table {name}", False)
        files, _ = self._metadata_log(name)
        table.refresh()
        session_files = map(without_scheme, [*table.earlier_metadata_files(), table.metadata_file])
        # If it is one table, each side's log has the file that was current on the other side a moment ago.
        if without_scheme(ours) in map(without_scheme, files) and without_scheme(files[-1]) in session_files:
            return
        raise DifferentTableError(
            f"{name} over the connection is another table than {table.name} in the session of recluster_session. "
            f"Over the connection its metadata is {files[-1]}, in the session {table.metadata_file}. {self._places()}"
        )

    def _places(self) -> str:
        """Describe both sides, without any value that might be secret."""
        try:
            catalog = str(self._ask("show current namespace")[0][0])
        except DbtRuntimeError:
            catalog = "its default one"
        prefix = f"spark.sql.catalog.{self._session_catalog}"
        kinds = (self._settings.get(f"{prefix}{key}") for key in (".type", ".catalog-impl", ""))
        kind = next(filter(None, kinds), "not configured").rpartition(".")[2]
        where = f"`method: {self.credentials.method}` at {self.credentials.host}:{self.credentials.port}"
        return (
            f"The connection ({where}) is in the catalog {catalog}, the session in {self._session_catalog} ({kind}). "
            "Nothing was changed. Let recluster_session configure the catalog that the connection's Spark has."
        )


def session_settings(profile_settings: Mapping[str, str], catalog: str, log: Path) -> dict[str, str]:
    """Return the settings to start the session with: ``profile_settings``, and defaults."""
    is_local = profile_settings.get("spark.master", "local").startswith("local")
    remote = {**local_spark.DEFAULTS, "spark.ui.enabled": "false"}
    settings = {
        **(local_spark.local_settings() if is_local else remote),
        environment.DEFAULT_CATALOG: catalog,
        # Tables change over the connection, so a cached one is stale.
        f"spark.sql.catalog.{catalog}.cache-enabled": "false",
        **profile_settings,
    }
    if settings.get(f"spark.sql.catalog.{catalog}") == environment.SESSION_CATALOG:
        settings.setdefault("spark.sql.catalogImplementation", "hive")
    settings |= local_spark.iceberg_settings({**starter.outside_settings(), **settings})
    java = starter.JAVA_OPTIONS
    settings[java] = f"{local_spark.log_options(log)} {settings.get(java, '')}".strip()
    return settings
