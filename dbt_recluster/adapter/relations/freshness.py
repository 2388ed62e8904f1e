"""``dbt source freshness`` from Iceberg's snapshots, for sources without a ``loaded_at_field``.

A commit of kind ``replace`` (a recluster, a compaction, rewritten manifests) changes no row, so it does not make a
source look fresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import Any

from dbt.adapters.base.impl import FreshnessResponse
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.contracts.macros import MacroResolverProtocol
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.dbt_errors import ConfigurationError
from dbt_recluster.adapter.relations.catalog_methods import CatalogMethods

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# To Spark a union of twice as many tables is more than twice the work: 100 tables took 21 s by 25, and 44 s at once.
_TABLES_OF_A_STATEMENT = 25
_INSTEAD = "give the source a loaded_at_field or a loaded_at_query"


class FreshnessMethods(CatalogMethods):
    """The part of the adapter that knows when a table was last loaded."""

    def calculate_freshness_from_metadata_batch(
        self, sources: list[BaseRelation], macro_resolver: MacroResolverProtocol | None = None
    ) -> tuple[list[AdapterResponse | None], dict[BaseRelation, FreshnessResponse]]:
        """Return the freshness of the sources that metadata tell it of; dbt asks for each of the others by itself."""
        responses: list[AdapterResponse | None] = []
        freshness: dict[BaseRelation, FreshnessResponse] = {}
        for tables in _batches(sources):
            try:
                response, found = self._last_modified(tables, macro_resolver)
            except DbtRuntimeError:
                iceberg = [table for table in tables if self._why_unknown(table) is None]
                if not iceberg:
                    continue
                if len(iceberg) == len(tables):
                    raise
                response, found = self._last_modified(iceberg, macro_resolver)
            responses.append(response)
            freshness.update(found)
        return responses, freshness

    def calculate_freshness_from_metadata(
        self, source: BaseRelation, macro_resolver: MacroResolverProtocol | None = None
    ) -> tuple[AdapterResponse | None, FreshnessResponse]:
        """Return the freshness of a source."""
        try:
            response, freshness = self._last_modified([source], macro_resolver)
        except DbtRuntimeError as e:
            if (reason := self._why_unknown(source)) is None:
                raise
            raise ConfigurationError(reason) from e
        if source not in freshness:
            raise ConfigurationError(
                f"the snapshot of the last load of {source} has expired, and the later ones only rewrote files. "
                f"Keep snapshots longer (history.expire.max-snapshot-age-ms), or {_INSTEAD}"
            )
        return response, freshness[source]

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
