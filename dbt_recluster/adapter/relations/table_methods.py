"""What is in the place of a table: its clustering, its format, and files that are in the way of its successor.

In Iceberg's session catalog two things are in the way of a table that replaces another. It drops a table of Spark's own
as one of Iceberg's, whose files stay; and Spark makes a table of its own only where there are no files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections import embedded
from dbt_recluster.adapter.connections.credentials import ConnectionMethod
from dbt_recluster.adapter.dbt_errors import ConfigurationError, as_dbt_errors, logger
from dbt_recluster.adapter.relations.freshness import FreshnessMethods
from dbt_recluster.adapter.relations.relation_config import TableClustering
from dbt_recluster.clustering.options import KEY_PROPERTY
from dbt_recluster.columns import quote
from dbt_recluster.iceberg.catalog_files import without_scheme
from dbt_recluster.iceberg.sort_order import sort_order_text

_OVERWRITES = "spark.sql.legacy.allowNonEmptyLocationInCTAS"


class TableMethods(FreshnessMethods):
    """The part of the adapter that knows what is in the place of a table."""

    def may_have_clustering(self, relation: BaseRelation | None) -> bool:
        """Whether a relation is an Iceberg table with a sort order or a key, as far as its listing tells.

        In the session catalog it tells, which saves a statement for each model that has nothing to do with clustering.
        """
        if not getattr(relation, "is_iceberg", False):
            return False
        information = getattr(relation, "information", None)
        return information is None or "sort-order=" in information or f"{KEY_PROPERTY}=" in information

    def table_clustering(self, relation: BaseRelation) -> TableClustering:
        """Return the sort order and properties of a table, by SQL unless Spark hides what matters."""
        rows = self.ask(f"show tblproperties {relation.render()}")
        shown = TableClustering.from_properties((row[0], row[1]) for row in rows)
        if not shown.is_redacted or self.cannot_recluster():
            return shown
        with as_dbt_errors():
            table = self.open_table(relation.render()).iceberg
            return TableClustering(sort_order_text(table), table.properties)

    def is_iceberg_table(self, relation: BaseRelation) -> bool:
        """Whether there is an Iceberg table of this name, as the catalog says now."""
        try:
            return self.catalogs.provider(relation.render()) == "iceberg"
        except DbtRuntimeError:
            return False

    @available.parse(lambda *_: False)
    def shares_directories(self, relation: BaseRelation) -> bool:
        """Whether Iceberg's tables and Spark's own have the same directories where a relation is."""
        return self.catalogs.is_iceberg_session_catalog(relation.database)

    @available.parse(lambda *_: False)
    def is_own_table_of_spark(self, relation: BaseRelation) -> bool:
        """Whether a relation is a table that Iceberg's session catalog holds for Spark, as the catalog says now."""
        if not relation.is_table or not self.shares_directories(relation):
            return False
        try:
            return self.catalogs.provider(relation.render()) not in (None, "iceberg")
        except DbtRuntimeError:  # there is none, or its metadata are broken, which a drop does not read
            return False

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
            name = ".".join(quote(part) for part in (relation.database, schema) if part)
            for row in self.ask(f"show table extended in {name} like '*'"):
                is_this = (row[0], row[1]) == (relation.schema, str(relation.identifier).lower())
                if row[0] and not is_this and _is_in(str(directory), str(row[3])):
                    raise ConfigurationError(
                        f"{relation} cannot be made: {row[0]}.{row[1]} has its files in {directory}, where Spark would "
                        "put those of the new table. Give the model another alias"
                    )


def _is_in(directory: str, information: str) -> bool:
    """Whether a table with this description has its files, or its metadata, in a directory."""
    return f"{directory}/" in information or f"{directory}\n" in information
