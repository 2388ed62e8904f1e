"""The existing table of a relation: its format, its clustering, files in its successor's way, and its replacement.

Two things are in the way of a table that replaces another in Iceberg's session catalog. It drops a table of Spark's own
like an Iceberg table, whose files stay; and Spark creates a table of its own only in an empty directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import RelationType
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.catalogs import Catalogs
from dbt_recluster.adapter.clustering_session import ClusteringSession
from dbt_recluster.adapter.connections.credentials import ConnectionMethod
from dbt_recluster.adapter.dbt_errors import ConfigurationError, as_dbt_errors, failure, logger
from dbt_recluster.iceberg.table_properties import AUTO_KEY, CARRIED_OVER, CLUSTER_BY
from dbt_recluster.key.columns import quote, sql_literal

if TYPE_CHECKING:
    from dbt_recluster.adapter.table_clustering import TableClustering


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
        names = ("sort-order", CLUSTER_BY, AUTO_KEY, *CARRIED_OVER)
        return information is None or any(f"{name}=" in information for name in names)

    def clustering(self, relation: BaseRelation) -> TableClustering:
        """Return a table's sort order and properties, by SQL unless Spark redacts them."""
        from dbt_recluster.adapter.table_clustering import TableClustering
        from dbt_recluster.iceberg.sort_order import sort_order_text

        rows = self._ask(f"show tblproperties {relation.render()}")
        shown = TableClustering.from_properties((row[0], row[1]) for row in rows)
        if not shown.is_redacted or self.session.missing_reason:
            return shown
        with as_dbt_errors():
            table = self.session.open(relation.render()).iceberg
            return TableClustering(sort_order_text(table), table.properties)

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

    def check_renaming(self, relation: BaseRelation) -> None:
        """Refuse to replace a table that cannot get another name until then."""
        if getattr(relation, "is_iceberg", False) and self.cannot_rename(relation):
            raise ConfigurationError(
                f"{relation} cannot be replaced by anything but an Iceberg table: a Hadoop catalog renames no table, "
                "so a failure would lose it. Drop it first, or leave the model an Iceberg table"
            )

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

    def occupied_directory(self, relation: BaseRelation) -> Path | None:
        """Return the directory of a table of Spark's own in an embedded lake, if there are files in it."""
        if not self.catalogs.shares_directories(relation) or not (directory := self._lake_directory(relation)):
            return None
        return directory if _holds_files(directory) else None

    @staticmethod
    def move_files(relation: BaseRelation, directory: Path) -> Path:
        """Move the files of another table out of the way of one of Spark's own; return where they are."""
        # No table can have this name.
        aside = directory.with_name(f"{directory.name}.{datetime.now(timezone.utc):%Y%m%dT%H%M%S.%f}")
        # Before the files are moved: with `--warn-error` it raises.
        logger.warning(
            f"{relation}: there are files in its directory that no table of the lake has. They are moved to {aside}, "
            "for you to delete"
        )
        directory.rename(aside)
        return aside

    def metadata_file(self, relation: BaseRelation) -> str:
        """Return the last metadata file of an Iceberg table."""
        return str(self._ask(f"select file from {relation}.metadata_log_entries order by timestamp")[-1][0])

    def register(self, relation: BaseRelation, metadata_file: str) -> None:
        """Make an Iceberg table of the session catalog from its metadata file."""
        name, file = relation.include(database=False).render(), sql_literal(metadata_file)
        self._ask(f"call spark_catalog.system.register_table(table => {sql_literal(name)}, metadata_file => {file})")

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
            for row in self.catalogs.described(f"{catalog}{quote(schema)}"):
                is_this = (row[0], row[1]) == (str(relation.schema).lower(), str(relation.identifier).lower())
                if row[0] and not is_this and _is_in(str(directory), str(row[3])):
                    raise ConfigurationError(
                        f"{relation} cannot be made: {row[0]}.{row[1]} has its files in {directory}, where Spark would "
                        "put those of the new table. Give the model another alias"
                    )


class Replacement:
    """The relation that a build replaces, which stays until its successor exists.

    dbt's materializations drop it first. Within the build, a drop renames it instead; the end of the build drops it, or
    renames it back if there is no successor. After a killed build, the next one does so (:func:`recovered`).
    """

    def __init__(
        self,
        adapter: Any,
        tables: ExistingTables,
        macros: Mapping[str, Any],
        existing: Any = None,  # the relation; without one, a drop is a drop
        becomes: RelationType = RelationType.Table,
    ) -> None:
        self._adapter = adapter
        self._tables = tables
        self._macros = macros
        self._existing = existing
        self._becomes = becomes
        config, language = macros.get("config", {}), macros.get("model", {}).get("language")
        is_table, is_iceberg = becomes == RelationType.Table, config.get("file_format") == "iceberg"
        # One statement replaces it, without a drop; a Python model's job does not.
        self._is_in_place = is_table and is_iceberg and language != "python" and bool(existing and existing.is_iceberg)
        # Its successor is built under another name first, so that its drop waits.
        self._is_beside = is_table and language == "sql" and not self._is_in_place
        self._drop_waits = False
        self._aside: Any = None  # the relation under its other name
        self._undo: list[Callable[[], object]] = []  # the steps by which it comes back

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Drop the relation, or put it back if it has no successor."""
        if not self._undo:
            return
        this, is_replaced = self._macros["this"], error is None or self._is_built()
        # A seed may have got some of its rows.
        ended = self._aside if is_replaced else this.incorporate(type=self._becomes)
        try:
            with self._adapter.connections.after_cancel():
                self._adapter.drop_relation(ended)
                for step in () if is_replaced else self._undo:
                    step()
        except (DbtRuntimeError, OSError) as e:
            state = "what it was before is still there" if is_replaced else "it is not back in its place"
            # With `--warn-error` a warning raises, which would hide ``error``.
            log = logger.warning if error is None else logger.error
            log(f"{this}: {state}, as {self._aside}, until the next run of its model: {failure(e)}")

    def _is_built(self) -> bool:
        return self._macros["load_result"]("main") is not None

    def _is_own(self, relation: BaseRelation) -> bool:
        return self._existing is not None and relation.render() in own_names(self._macros, self._existing)

    def takes_drop(self, relation: BaseRelation) -> bool:
        """Return whether a drop of ``relation`` is left to this class."""
        if not self._is_own(relation) or self._undo or self._is_built():
            return False
        if self._is_beside:
            self._drop_waits = True
        elif not self._is_in_place:
            self._tables.check_renaming(self._existing)
            this, kind = self._macros["this"], self._existing.type
            self._aside = named_aside(this).incorporate(type=kind)
            self._adapter.rename_relation(self._existing, self._aside)
            self._undo = [partial(self._adapter.rename_relation, self._aside, this.incorporate(type=kind))]
        return True

    def beside(self, relation: BaseRelation) -> Any:
        """Return the relation whose successor is built beside it, as ``relation``; its drop waits no longer."""
        if not self._drop_waits or not self._is_own(relation):
            return None
        self._is_beside = self._drop_waits = False
        return self._existing

    def first_name(self, relation: Any) -> Any:
        """Return the name by which the successor ``relation`` is created.

        An Iceberg table keeps the directory of that name, which no table of Spark's own may then need.
        """
        if not self._is_own(relation) or self._is_in_place:
            return relation
        is_iceberg = self._macros["config"].get("file_format") == "iceberg"
        if self._undo and not is_iceberg:
            return relation
        suffix = "__dbt_iceberg" if is_iceberg else "__dbt_tmp"
        return relation.incorporate(path={"identifier": f"{relation.identifier}{suffix}"}, type=RelationType.Table)

    def clear_directory(self, relation: BaseRelation) -> None:
        """Move files out of the way of a table of Spark's own."""
        directory = self._tables.occupied_directory(relation)
        if directory is None:
            return
        is_renamed = bool(self._undo) and self._is_own(relation)
        if is_renamed and self._existing.is_iceberg:
            # It has kept its directory, and cannot be dropped once that has moved.
            file = self._tables.metadata_file(self._aside)
            self._adapter.drop_relation(self._aside)
            self._undo = [partial(self._tables.register, relation, file)]
        moved = self._tables.move_files(relation, directory)
        self._undo[:0] = [partial(moved.rename, directory)] if is_renamed else []


def own_names(macros: Mapping[str, Any], existing: Any = None) -> set[str]:
    """Return the names of a node's relation: dbt's cache may have it in lower case and unquoted."""
    this = macros["this"]
    existing = existing or macros["load_cached_relation"](this)
    return {relation.render() for relation in (this, existing) if relation is not None}


def named_aside(relation: Any) -> Any:
    """Return the other name of a relation while it is replaced."""
    return relation.incorporate(path={"identifier": f"{relation.identifier}__dbt_replaced"})


def recovered(adapter: Any, macros: Mapping[str, Any]) -> Any:
    """Return the node's relation, after what a killed build has left to be done."""
    this, load = macros["this"], macros["load_cached_relation"]
    existing, aside = load(this), load(named_aside(this))
    if aside and existing:
        adapter.drop_relation(aside)
    elif aside:
        adapter.rename_relation(aside, this.incorporate(type=aside.type))
        existing = load(this)
        is_added_to = macros["config"].get("materialized") == "incremental" and not existing.is_view
        if is_added_to and not macros["should_full_refresh"]():
            raise ConfigurationError(
                f"{this} was restored from {aside}, which an interrupted run had left. The query of this run was "
                "compiled as if the table did not exist, and would add its rows again: run the model once more"
            )
    return existing


def _holds_files(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())


def _is_in(directory: str, information: str) -> bool:
    """Return whether a table with this description has its files, or its metadata, in a directory."""
    return f"{directory}/" in information or f"{directory}\n" in information
