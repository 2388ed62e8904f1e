"""The tables of a connection that leads to a Spark elsewhere, opened in the session of ``recluster_session``.

Both must see the same table before anything is changed. SQL does not show a table's uuid, and a copy that is registered
in another catalog has the same one. But ``metadata_log_entries`` lists the table's metadata files: every commit writes
one under a new name, and the last one is what the catalog knows of the table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections.recluster_session import ReclusterSession
from dbt_recluster.adapter.dbt_errors import message
from dbt_recluster.exceptions import DifferentTableError, NotAnIcebergTableError
from dbt_recluster.iceberg.catalog_files import without_scheme
from dbt_recluster.table_names import join_parts, name_parts

if TYPE_CHECKING:
    from dbt_recluster.clustering.table import ClusteredTable
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

# Tables that `dbt debug` looks at before it gives up to find an Iceberg table.
_TRIED = 5

logger = AdapterLogger("Recluster")


@dataclass(frozen=True)
class MetadataLog:
    """The metadata files of a table as the connection sees it, the current one last, and the current snapshot's id."""

    files: tuple[str, ...]
    snapshot_id: int | None

    @property
    def current(self) -> str:
        """The metadata file that the catalog points to."""
        return self.files[-1]

    def is_of(self, table: IcebergTable) -> bool:
        """Whether this is the current state of ``table``."""
        return (
            without_scheme(self.current) == without_scheme(table.metadata_file)
            and self.snapshot_id == table.snapshot_id
        )


class ConnectionTables:
    """Opens a connection's tables in the session that reclusters them.

    Args:
        session: The session.
        ask: Runs a short statement over the connection and returns its rows; False as second argument means that it
            has none.
        connection: The connection in words, for errors.
        catalog: The connection's name for the session's catalog, or None if its names have two parts.
    """

    def __init__(
        self, session: ReclusterSession, ask: Callable[..., list[Any]], connection: str, catalog: str | None
    ) -> None:
        self.session = session
        self._ask = ask
        self._connection = connection
        self._catalog = catalog
        self._opened = threading.local()

    def open(self, name: str) -> ClusteredTable:
        """Open a table in the session.

        Raises:
            DifferentTableError: The session's table is another one, or it has none of that name.
            NotAnIcebergTableError: The connection has no such Iceberg table.
        """
        from dbt_recluster.clustering.table import ClusteredTable

        log = self._metadata_log(name)
        try:
            table = ClusteredTable(self.session.spark, self._name_in_session(name))
        except NotAnIcebergTableError as e:
            raise DifferentTableError(
                f"the session of recluster_session has no table {name}: {e}. Over the connection its metadata is "
                f"{log.current}. {self._places()}"
            ) from e
        if not log.is_of(table.iceberg):
            self._check_log(name, table.iceberg)
        if (opened := getattr(self._opened, "tables", None)) is not None:
            opened.append((name, table.iceberg, table.iceberg.metadata_file))
        return table

    @contextmanager
    def refreshing(self) -> Iterator[None]:
        """At the end, have the connection read those tables again that this thread opened and changed."""
        self._opened.tables = []
        try:
            yield
        finally:
            for name, table, file in self._opened.tables:
                try:
                    table.refresh()
                    if table.metadata_file != file:
                        self._ask(f"refresh table {name}", False)
                except Exception as e:
                    # The table is as it should be; the connection may answer from its cache for half a minute.
                    logger.debug(f"{name} was not refreshed over the connection: {message(e)}")
            self._opened.tables = []

    def check(self, schema: str) -> str:
        """Check the session, and the first Iceberg table of ``schema``, for ``dbt debug``; return what was seen.

        Raises:
            SparkEnvironmentError: The session does not start or lacks something.
            DifferentTableError: The connection and the session see different tables.
        """
        spark = self.session.spark
        master = spark.sparkContext.master
        seen = f"recluster_session: Spark {spark.version} on {master}, catalog {self.session.catalog}"
        try:
            names = [f"{schema}.{row[1]}" for row in self._ask(f"show tables in {schema}")[:_TRIED]]
        except DbtRuntimeError:
            names = []
        for name in names:
            try:
                self.open(name)
            except NotAnIcebergTableError:
                continue
            return f"{seen}; {name} is the same table over the connection"
        return f"{seen}; {schema} has no Iceberg table yet by which to tell that the connection's catalog is the same"

    def _name_in_session(self, name: str) -> str:
        catalog, *rest = name_parts(name)
        if len(rest) < 2 or catalog != self._catalog:
            return name
        return join_parts((self.session.catalog, *rest))

    def _metadata_log(self, name: str) -> MetadataLog:
        try:
            rows = self._ask(f"select file, latest_snapshot_id from {name}.metadata_log_entries")
        except DbtRuntimeError as e:
            reason = message(e).splitlines()[0]
            raise NotAnIcebergTableError(
                f"{name} is not a table whose metadata the connection can read, as an Iceberg table's: {reason}"
            ) from e
        # An entry has the snapshot that was current then, unless it has expired; the last one never has.
        snapshot_id = rows[-1][1]
        return MetadataLog(
            tuple(str(row[0]) for row in rows), None if snapshot_id is None else int(snapshot_id)
        )

    def _check_log(self, name: str, table: IcebergTable) -> None:
        """Compare a table that differs at first sight: another writer may have committed, or a cache be stale."""
        table.refresh()
        ours = table.metadata_file
        self._ask(f"refresh table {name}", False)
        log = self._metadata_log(name)
        table.refresh()
        known = [*table.earlier_metadata_files(), table.metadata_file]
        # Of one table, each side knows what was the other's current file a moment before.
        if without_scheme(ours) in map(without_scheme, log.files) and without_scheme(log.current) in map(
            without_scheme, known
        ):
            return
        raise DifferentTableError(
            f"{name} over the connection is another table than {table.name} in the session of recluster_session. "
            f"Over the connection its metadata is {log.current}, in the session {table.metadata_file}. {self._places()}"
        )

    def _places(self) -> str:
        try:
            catalog = str(self._ask("select current_catalog()")[0][0])
        except Exception:
            catalog = "its default one"
        return (
            f"The connection ({self._connection}) is in the catalog {catalog}, the session in "
            f"{self.session.describe()}. Nothing was changed. Let recluster_session configure the catalog that the "
            "connection's Spark has."
        )
