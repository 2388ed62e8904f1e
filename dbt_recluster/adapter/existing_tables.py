"""The existing table of a relation: its format, its clustering, and files in its successor's way.

Two things are in the way of a table that replaces another in Iceberg's session catalog. It drops a table of Spark's own
like an Iceberg table, whose files stay; and Spark creates a table of its own only in an empty directory.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dbt.adapters.base.relation import BaseRelation
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.catalogs import Catalogs
from dbt_recluster.adapter.clustering_session import ClusteringSession
from dbt_recluster.adapter.connections import ConnectionMethod
from dbt_recluster.adapter.dbt_errors import ConfigurationError, as_dbt_errors, logger
from dbt_recluster.iceberg.table_properties import CARRIED_OVER, CLUSTER_BY
from dbt_recluster.key.columns import quote

if TYPE_CHECKING:
    from dbt_recluster.operations.table_clustering import TableClustering


class ExistingTables:
    """Format, clustering and files of the table behind a relation, by dbt's listing or else the catalog."""

    def __init__(self, session: ClusteringSession, catalogs: Catalogs) -> None:
        self.session = session
        self.catalogs = catalogs
        self._ask = catalogs.ask

    # --- format and clustering ---

    def may_be_clustered(self, relation: BaseRelation) -> bool:
        """Return whether a relation may be an Iceberg table with a sort order or properties of ours.

        The session catalog's listing has them, which saves a statement for each model without clustering.
        """
        if not getattr(relation, "is_iceberg", False):
            return False
        information = getattr(relation, "information", None)
        names = ("sort-order", CLUSTER_BY, *CARRIED_OVER)
        return information is None or any(f"{name}=" in information for name in names)

    def clustering(self, relation: BaseRelation) -> TableClustering:
        """Return a table's sort order and properties, by SQL unless Spark redacts them."""
        from dbt_recluster.operations.table_clustering import TableClustering

        rows = self._ask(f"show tblproperties {relation.render()}")
        shown = TableClustering.from_properties((row[0], row[1]) for row in rows)
        if not shown.is_redacted or self.session.missing_reason:
            return shown
        with as_dbt_errors():
            return TableClustering.of_table(self.session.open(relation.render()).iceberg)

    def is_iceberg(self, relation: BaseRelation) -> bool:
        """Return whether there is an Iceberg table of this name."""
        return self._provider(relation) == "iceberg"

    def check_is_iceberg(self, relation: BaseRelation) -> None:
        """Refuse to cluster an existing table of another format."""
        if (provider := self.catalogs.provider(relation.render())) not in (None, "iceberg"):
            raise ConfigurationError(
                f"cluster_by cannot be applied to {relation}, which is a table of {provider}: run once with "
                "--full-refresh to make it an Iceberg table, or leave cluster_by out"
            )

    def takes_grants(self, relation: BaseRelation) -> bool:
        """Return whether to try grants, for which only services built on Spark have statements."""
        in_process = self.session.credentials.in_process
        return not in_process and self.catalogs.is_session_catalog(relation.database)

    def cannot_replace_view(self, relation: BaseRelation | None) -> bool:
        """Return whether ``create or replace view`` would not change a view (macros/materializations/view.sql)."""
        if relation is None or not relation.is_view:
            return False
        if "table_type=ICEBERG-VIEW" in (getattr(relation, "information", None) or ""):
            return True
        return self.session.credentials.in_process and self.catalogs.shares_directories(relation)

    def cannot_rename(self, relation: BaseRelation) -> bool:
        """Return whether a relation's catalog keeps Iceberg tables under their directories' names."""
        return self.catalogs.kind(relation.database) == "hadoop"

    def _provider(self, relation: BaseRelation) -> str | None:
        try:
            return self.catalogs.provider(relation.render())
        except DbtRuntimeError:  # no such table, or broken metadata, which a drop does not read
            return None

    # --- files ---

    def is_own_table_of_spark(self, relation: BaseRelation) -> bool:
        """Return whether a relation is a table of another format in Iceberg's session catalog."""
        is_shared = relation.is_table and self.catalogs.shares_directories(relation)
        return is_shared and self._provider(relation) not in (None, "iceberg")

    def check_directory(
        self, relation: BaseRelation, existing: BaseRelation | None, is_seed: bool, config: Any
    ) -> None:
        """Refuse a table of Spark's own where files of another table would be in its way."""
        root = config.get("location_root")
        information = getattr(existing, "information", None) or ""
        if "Type: MANAGED" in information or not self.catalogs.shares_directories(relation):
            return
        if root is None and (directory := self._lake_directory(relation)):
            self._check_neighbours(relation, directory)
            return
        place = f"{root.rstrip('/')}/{relation.identifier}" if root else self._location(relation)
        from dbt_recluster.iceberg.actions import without_scheme

        if not _is_in(without_scheme(place), information):
            return
        remedies = ["drop it and move them away", "change location_root" if root else "change the alias"]
        if root and not is_seed:
            overwrites = "spark.sql.legacy.allowNonEmptyLocationInCTAS"
            if str(self._ask(f"set {overwrites}")[0][1]).lower() == "true":
                return
            remedies.append(f"set {overwrites} to true and have them overwritten")
        raise ConfigurationError(
            f"{relation} cannot be replaced by a table of {config.get('file_format')}: the files of the present one "
            f"stay in {place} when it is dropped, and Spark makes no table among them. You may "
            f"{', or '.join(remedies)}"
        )

    def clear_directory(self, relation: BaseRelation) -> None:
        """Move the files of a dropped table out of the way of a table of Spark's own, in an embedded lake."""
        if not self.catalogs.shares_directories(relation) or not (directory := self._lake_directory(relation)):
            return
        if _holds_files(directory):
            # No table can have this name.
            aside = directory.with_name(f"{directory.name}.{datetime.now(timezone.utc):%Y%m%dT%H%M%S.%f}")
            directory.rename(aside)
            logger.warning(
                f"{relation}: there were files in its directory that no table of the lake has. They are in {aside} "
                "now, for you to delete"
            )

    def _location(self, relation: BaseRelation) -> str:
        """Return the directory of a table in a format of Spark's."""
        described = dict(row[:2] for row in self._ask(f"describe schema {relation.without_identifier()}"))
        return f"{unquote(described['Location'])}/{str(relation.identifier).lower()}"

    def _lake_directory(self, relation: BaseRelation) -> Path | None:
        """Return the same in an embedded lake; None for another lake."""
        if self.session.credentials.method != ConnectionMethod.EMBEDDED:
            return None
        scheme, _, path = self._location(relation).partition(":")
        return Path(path) if scheme == "file" else None

    def _check_neighbours(self, relation: BaseRelation, directory: Path) -> None:
        """Refuse to move files of another table, renamed or registered twice."""
        if not _holds_files(directory):
            return
        catalog = f"{quote(relation.database)}." if relation.database else ""
        for schema in self.catalogs.schemas(relation.database):
            for row in self._ask(f"show table extended in {catalog}{quote(schema)} like '*'"):
                is_this = (row[0], row[1]) == (relation.schema, str(relation.identifier).lower())
                if row[0] and not is_this and _is_in(str(directory), str(row[3])):
                    raise ConfigurationError(
                        f"{relation} cannot be made: {row[0]}.{row[1]} has its files in {directory}, where Spark would "
                        "put those of the new table. Give the model another alias"
                    )


def _holds_files(directory: Path) -> bool:
    """Return whether a directory is non-empty."""
    return directory.is_dir() and any(directory.iterdir())


def _is_in(directory: str, information: str) -> bool:
    """Return whether a table with this description has its files, or its metadata, in a directory."""
    return f"{directory}/" in information or f"{directory}\n" in information
