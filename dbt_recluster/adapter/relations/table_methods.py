"""What there is in the place of a table: its clustering, when it was loaded, and files in the way of its successor.

In Iceberg's session catalog two things are in the way of a table that replaces another. It drops a table of Spark's own
as one of Iceberg's, whose files stay; and Spark makes a table of its own only where there are no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dbt.adapters.base.impl import FreshnessResponse
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.contracts.macros import MacroResolverProtocol
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections import embedded
from dbt_recluster.adapter.connections.credentials import ConnectionMethod
from dbt_recluster.adapter.dbt_errors import ConfigurationError, as_dbt_errors, logger
from dbt_recluster.adapter.relations.catalog_methods import CatalogMethods
from dbt_recluster.adapter.relations.catalogs import quoted
from dbt_recluster.clustering.options import KEY_PROPERTY
from dbt_recluster.iceberg.table_properties import CARRIED_OVER

if TYPE_CHECKING:
    from dbt_recluster.adapter.relations.relation_config import TableClustering

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# To Spark a union of twice as many tables is more than twice the work: 100 tables took 21 s by 25, and 44 s at once.
_TABLES_OF_A_STATEMENT = 25
_INSTEAD = "give the source a loaded_at_field or a loaded_at_query"
_OVERWRITES = "spark.sql.legacy.allowNonEmptyLocationInCTAS"


class TableMethods(CatalogMethods):
    """The part of the adapter that knows what is in the place of a table."""

    # --- its clustering and its format ---

    def may_have_clustering(self, relation: BaseRelation | None) -> bool:
        """Whether a relation is an Iceberg table with a sort order or properties of ours, as far as its listing tells.

        In the session catalog it tells, which saves a statement for each model that has nothing to do with clustering.
        """
        if not getattr(relation, "is_iceberg", False):
            return False
        information = getattr(relation, "information", None)
        return information is None or any(
            f"{name}=" in information for name in ("sort-order", KEY_PROPERTY, *CARRIED_OVER)
        )

    def table_clustering(self, relation: BaseRelation) -> TableClustering:
        """Return the sort order and properties of a table, by SQL unless Spark hides what matters."""
        from dbt_recluster.adapter.relations.relation_config import TableClustering
        from dbt_recluster.iceberg.sort_order import sort_order_text

        rows = self.ask(f"show tblproperties {relation.render()}")
        shown = TableClustering.from_properties((row[0], row[1]) for row in rows)
        if not shown.is_redacted or self.cannot_recluster():
            return shown
        with as_dbt_errors():
            table = self.open_table(relation.render()).iceberg
            return TableClustering(sort_order_text(table), table.properties)

    def is_iceberg_table(self, relation: BaseRelation) -> bool:
        """Whether there is an Iceberg table of this name, as the catalog says now."""
        return self._provider(relation) == "iceberg"

    def _provider(self, relation: BaseRelation) -> str | None:
        try:
            return self.catalogs.provider(relation.render())
        except DbtRuntimeError:  # there is none, or its metadata are broken, which a drop does not read
            return None

    # --- its files ---

    @available.parse(lambda *_: False)
    def shares_directories(self, relation: BaseRelation) -> bool:
        """Whether Iceberg's tables and Spark's own have the same directories where a relation is."""
        return self.catalogs.is_iceberg_session_catalog(relation.database)

    @available.parse(lambda *_: False)
    def is_own_table_of_spark(self, relation: BaseRelation) -> bool:
        """Whether a relation is a table that Iceberg's session catalog holds for Spark, as the catalog says now."""
        is_shared = relation.is_table and self.shares_directories(relation)
        return is_shared and self._provider(relation) not in (None, "iceberg")

    def check_is_iceberg(self, relation: BaseRelation) -> None:
        """Refuse to cluster a table of another format, which this build would write into."""
        if (provider := self.catalogs.provider(relation.render())) not in (None, "iceberg"):
            raise ConfigurationError(
                f"cluster_by cannot be applied to {relation}, which is a table of {provider}: run once with "
                "--full-refresh to make it an Iceberg table, or leave cluster_by out"
            )

    def check_directory(
        self, relation: BaseRelation, existing: BaseRelation | None, config: Any, *, is_seed: bool
    ) -> None:
        """Refuse to replace a table by one of Spark's own if the files that a drop leaves would be in its way."""
        root = config.get("location_root")
        information = getattr(existing, "information", None) or ""
        if "Type: MANAGED" in information or not self.shares_directories(relation):
            return
        if root is None and (directory := self._lake_directory(relation)):
            self._check_neighbours(relation, directory)
            return
        place = f"{root.rstrip('/')}/{relation.identifier}" if root else self._location(relation)
        from dbt_recluster.iceberg.catalog_files import without_scheme

        if not _is_in(without_scheme(place), information):
            return
        remedies = ["drop it and move them away", "change location_root" if root else "change the alias"]
        if root and not is_seed:
            if str(self.ask(f"set {_OVERWRITES}")[0][1]).lower() == "true":
                return
            remedies.append(f"set {_OVERWRITES} to true and have them overwritten")
        raise ConfigurationError(
            f"{relation} cannot be replaced by a table of {config.get('file_format')}: the files of the present one "
            f"stay in {place} when it is dropped, and Spark makes no table among them. You may "
            f"{', or '.join(remedies)}"
        )

    @available.parse_none
    def clear_directory(self, relation: BaseRelation) -> None:
        """Make room for a table of Spark's own in an embedded lake, where files of a dropped table may have stayed."""
        if not self.shares_directories(relation) or not (directory := self._lake_directory(relation)):
            return
        if moved := embedded.set_aside(directory):
            logger.warning(
                f"{relation}: there were files in its directory that no table of the lake has. They are in {moved} "
                "now, for you to delete"
            )

    def _location(self, relation: BaseRelation) -> str:
        """Where Spark puts the files of a table of its own."""
        described = dict(row[:2] for row in self.ask(f"describe schema {relation.without_identifier()}"))
        return f"{unquote(described['Location'])}/{str(relation.identifier).lower()}"

    def _lake_directory(self, relation: BaseRelation) -> Path | None:
        """The same in an embedded lake, or None for a lake elsewhere."""
        if self.credentials.method != ConnectionMethod.EMBEDDED:
            return None
        scheme, _, path = self._location(relation).partition(":")
        return Path(path) if scheme == "file" else None

    def _check_neighbours(self, relation: BaseRelation, directory: Path) -> None:
        """Refuse to move files of another table, which may have been renamed, or registered a second time."""
        if not embedded.holds_files(directory):
            return
        for schema in self.list_schemas(relation.database):
            for row in self.ask(f"show table extended in {quoted(relation.database, schema)} like '*'"):
                is_this = (row[0], row[1]) == (relation.schema, str(relation.identifier).lower())
                if row[0] and not is_this and _is_in(str(directory), str(row[3])):
                    raise ConfigurationError(
                        f"{relation} cannot be made: {row[0]}.{row[1]} has its files in {directory}, where Spark would "
                        "put those of the new table. Give the model another alias"
                    )

    # --- freshness of sources without a ``loaded_at_field`` ---

    # A commit of kind `replace` (a recluster, a compaction, rewritten manifests) changes no row, so it does not make a
    # source look fresh (macros/relations/get_relation_last_modified.sql).

    def calculate_freshness_from_metadata_batch(
        self, sources: list[BaseRelation], macro_resolver: MacroResolverProtocol | None = None
    ) -> tuple[list[AdapterResponse | None], dict[BaseRelation, FreshnessResponse]]:
        """Return the freshness of the sources that metadata tell it of; dbt asks for each of the others by itself."""
        responses: list[AdapterResponse | None] = []
        freshness: dict[BaseRelation, FreshnessResponse] = {}
        for tables in _batches(sources):
            try:
                response, loads = self._last_modified(tables, macro_resolver)
            except DbtRuntimeError:
                iceberg = [table for table in tables if self._why_unknown(table) is None]
                if not iceberg:
                    continue
                if len(iceberg) == len(tables):
                    raise
                response, loads = self._last_modified(iceberg, macro_resolver)
            responses.append(response)
            freshness.update(loads)
        return responses, freshness

    def calculate_freshness_from_metadata(
        self, source: BaseRelation, macro_resolver: MacroResolverProtocol | None = None
    ) -> tuple[AdapterResponse | None, FreshnessResponse]:
        """Return the freshness of a source."""
        responses, freshness = self.calculate_freshness_from_metadata_batch([source], macro_resolver)
        if source not in freshness:
            expired = (
                f"the snapshot of the last load of {source} has expired, and the later ones only rewrote files. "
                f"Keep snapshots longer (history.expire.max-snapshot-age-ms), or {_INSTEAD}"
            )
            raise ConfigurationError(self._why_unknown(source) or expired)
        return responses[0], freshness[source]

    def _last_modified(
        self, tables: list[BaseRelation], macro_resolver: MacroResolverProtocol | None
    ) -> tuple[AdapterResponse | None, dict[BaseRelation, FreshnessResponse]]:
        """Ask for Iceberg tables of one catalog in one statement; those without the snapshot of a load are left out."""
        result: Any = self.execute_macro(
            "get_relation_last_modified",
            kwargs={"information_schema": tables[0].information_schema_only(), "relations": tables},
            macro_resolver=macro_resolver,
            needs_conn=True,
        )
        freshness = {
            tables[int(row["source"]) - 1]: self._create_freshness_response(
                _moment(row["last_modified"]), _moment(row["snapshotted_at"])
            )
            for row in result.table
            if not row["load_expired"]
        }
        return result.response, freshness

    def _why_unknown(self, source: BaseRelation) -> str | None:
        """Return why a source has no snapshots, or None for an Iceberg table."""
        relation = self.get_relation(source.database, str(source.schema), str(source.identifier))
        if relation is None:
            return f"there is no table {source}"
        if getattr(relation, "is_iceberg", False):
            return None
        kind = "a view" if relation.is_view else "no Iceberg table"
        return f"{source} is {kind}, and has no metadata that tell when it was loaded: {_INSTEAD}"


def _is_in(directory: str, information: str) -> bool:
    """Whether a table with this description has its files, or its metadata, in a directory."""
    return f"{directory}/" in information or f"{directory}\n" in information


def _batches(sources: Iterable[BaseRelation]) -> Iterator[list[BaseRelation]]:
    """Yield lists of distinct sources of one catalog that one statement can ask for."""
    distinct = sorted(set(sources), key=lambda source: (source.database or "", source.render()))
    for _, group in groupby(distinct, key=lambda source: source.database):
        tables = list(group)
        for start in range(0, len(tables), _TABLES_OF_A_STATEMENT):
            yield tables[start : start + _TABLES_OF_A_STATEMENT]


def _moment(microseconds: Any) -> datetime | None:
    """Return a time since 1970: a timestamp would come in the time zone of the session, or of this process."""
    return None if microseconds is None else _EPOCH + timedelta(microseconds=int(microseconds))
