"""Snapshots, files and manifests that a table no longer needs: Iceberg's own actions, and what makes them safe.

A merge leaves the old blocks in the table's storage until the snapshots that know them expire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import TypeVar

from dbt_recluster.clustering.maintenance_result import (
    Maintained,
    MaintenanceResult,
    ManifestsRewritten,
    OrphansRemoved,
    PositionDeletesRewritten,
    SnapshotsExpired,
)
from dbt_recluster.clustering.values import parse_moment, parse_snapshot_count
from dbt_recluster.exceptions import MaintenanceError, OptionError, ReclusterError
from dbt_recluster.iceberg.actions import ExpirableSnapshots, IcebergActions
from dbt_recluster.iceberg.catalog_files import CatalogFiles, directories
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.session.interruption import Interruptible, stop_if_interrupted
from dbt_recluster.iceberg.session.java_errors import short_message

T = TypeVar("T")

# A query reads the snapshot that was current when it began, and the longest one may take this long.
LEAST_RETENTION = timedelta(hours=1)
# A writer's files belong to no snapshot until it commits. Iceberg's own default.
LEAST_ORPHAN_AGE = timedelta(days=3)
# Fewer manifests than this are read in one go, whatever their size.
_FEW_MANIFESTS = 10
# Rewriting manifests has to leave a quarter of them, or it would be due again after a few commits.
_MANIFEST_GAIN = 4
# Iceberg's min-input-files: it leaves fewer position delete files of a partition as they are.
_FEW_DELETE_FILES = 5


class TableMaintenance:
    """Cleans up after a table's commits.

    Args:
        table: The table.
        now: The time to take for the current one, UTC; None is that of each call.
        catalog: The files of the catalog's tables, which a call on many tables reads once for all of them.
    """

    def __init__(
        self, table: IcebergTable, now: datetime | None = None, catalog: CatalogFiles | None = None
    ) -> None:
        self._table = table
        self._fixed_now = now
        self._catalog = CatalogFiles() if catalog is None else catalog
        self._actions = IcebergActions(table)

    def expire_snapshots(
        self,
        older_than: datetime | None = None,
        retain_last: int | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> SnapshotsExpired:
        """Expire snapshots, and delete the files that no other snapshot has.

        Branches and tags stay, but for those past ``history.expire.max-ref-age-ms``.

        Args:
            older_than: Snapshots committed before it expire; UTC without a zone; None is the table's
                ``history.expire.max-snapshot-age-ms``, five days if it is not set.
            retain_last: How many stay however old; None is ``history.expire.min-snapshots-to-keep``, 1 if not set.
            force: Allow ``older_than`` within the past hour.
            dry_run: Change nothing.

        Raises:
            OptionError: ``older_than`` lies in the future, or ``retain_last`` is not a number of snapshots.
            MaintenanceError: A running query may need what would go; files may belong to other tables
                (``gc.enabled``); or Iceberg fails.
        """
        older_than = self._past(older_than)
        if retain_last is not None:
            retain_last = parse_snapshot_count("retain_last", retain_last)
        if older_than is not None and older_than > self._now - LEAST_RETENTION and not force:
            raise MaintenanceError(
                f"expire_snapshots of {self._table.name}: a query that began before older_than may still read what "
                "would be deleted, so it must lie an hour back at least; force: true allows less"
            )
        self._check_files_are_its_own("expire_snapshots")
        return self._safely("expire_snapshots", lambda: self._expire(older_than, retain_last, dry_run))

    def remove_orphan_files(
        self, older_than: datetime | None = None, *, force: bool = False, dry_run: bool = True
    ) -> OrphansRemoved:
        """Delete files in the table's directories that no snapshot knows: what failed and killed writers left behind.

        Args:
            older_than: Only files last changed before it; UTC without a zone; None means three days ago.
            force: Allow less than three days, which deletes files that a writer has not committed yet, and files of
                a table in the same directory that the catalog does not list.
            dry_run: Only name them.

        Raises:
            OptionError: ``older_than`` lies in the future.
            CatalogError: The catalog does not list its tables.
            MaintenanceError: ``older_than`` is too young; another table writes into the same directories, or cannot be
                read; files may belong to other tables (``gc.enabled``); or Iceberg fails.
        """
        older_than = self._past(older_than)
        least = self._now - LEAST_ORPHAN_AGE
        if older_than is not None and older_than > least and not force:
            raise MaintenanceError(
                f"remove_orphan_files of {self._table.name}: files that a writer has not committed yet look like "
                "orphans, so older_than must lie three days back at least; force: true allows less"
            )
        self._check_files_are_its_own("remove_orphan_files")
        return self._safely(
            "remove_orphan_files", lambda: self._remove_orphans(older_than or least, force, dry_run)
        )

    def rewrite_manifests(self, *, dry_run: bool = False) -> ManifestsRewritten:
        """Rewrite the table's manifests, ordered by partition and of their target size.

        Raises:
            MaintenanceError: Iceberg fails.
        """
        return self._safely("rewrite_manifests", lambda: self._rewrite_manifests(dry_run))

    def rewrite_position_delete_files(self, *, dry_run: bool = False) -> PositionDeletesRewritten:
        """Join small position delete files, and drop those whose rows are gone.

        Raises:
            MaintenanceError: Iceberg fails.
        """
        return self._safely("rewrite_position_delete_files", lambda: self._rewrite_deletes(dry_run))

    def maintain(self, *, orphans: bool = False, dry_run: bool = False) -> Maintained:
        """Do what is due, in this order: delete files and manifests are rewritten, snapshots expire, orphans go.

        Args:
            orphans: Also remove orphan files, for which every file in the table's directories is listed.
            dry_run: Change nothing.

        Raises:
            MaintenanceError: See the other methods. What came before stays done.
        """
        steps: list[Callable[[], MaintenanceResult]] = [
            lambda: self._safely("rewrite_position_delete_files", lambda: self._due_deletes(dry_run)),
            lambda: self._safely("rewrite_manifests", lambda: self._due_manifests(dry_run)),
        ]
        if self._owns_files:
            steps.append(lambda: self.expire_snapshots(dry_run=dry_run))
            if orphans:
                steps.append(lambda: self.remove_orphan_files(dry_run=dry_run))
        results: list[MaintenanceResult] = []
        for step in steps:
            stop_if_interrupted()
            self._safely("maintain", self._table.refresh)
            results.append(step())
        return Maintained(self._table.name, tuple(result for result in results if result.changed))

    def _expire(
        self, older_than: datetime | None, retain_last: int | None, dry_run: bool
    ) -> SnapshotsExpired:
        snapshots = self._actions.expirable(older_than, retain_last)
        files, size = self._freed(snapshots)
        if (snapshots.count or snapshots.refs) and not dry_run:
            files = self._actions.expire(older_than, retain_last)
            self._table.refresh()
        return SnapshotsExpired(
            self._table.name,
            dry_run,
            snapshots.count,
            snapshots.refs,
            snapshots.kept,
            snapshots.kept_since.isoformat(timespec="seconds") if snapshots.kept_since else None,
            files,
            size,
        )

    def _freed(self, snapshots: ExpirableSnapshots) -> tuple[int | None, int | None]:
        if not snapshots.count:
            return 0, 0
        try:
            return self._actions.files_only_in(snapshots)
        except Exception:
            # Iceberg cannot read the metadata tables of a table with an old spec whose column was dropped, but can
            # expire its snapshots, which is how to repair it.
            return None, None

    def _remove_orphans(self, older_than: datetime, force: bool, dry_run: bool) -> OrphansRemoved:
        own = directories(self._table)
        if own is None:
            raise MaintenanceError(
                f"remove_orphan_files of {self._table.name}: it writes where its location provider says, so nobody "
                "knows which files are its own"
            )
        files: list[str] = []
        # Of another table there may be young files only, so whose they are is asked of files of any age.
        if unknown := sorted(self._actions.unknown_files(own, self._now)):
            unused = self._unused(own, unknown, force)
            files = sorted(self._actions.unknown_files(own, older_than).intersection(unused))
        stop_if_interrupted()
        if files and not dry_run:
            self._actions.delete_files(files)
        return OrphansRemoved(
            self._table.name, dry_run, older_than.isoformat(timespec="seconds"), tuple(files)
        )

    def _unused(self, own: Sequence[str], unknown: Sequence[str], force: bool) -> list[str]:
        """Return the files that no table uses, if the directories are this table's alone."""
        if other := self._catalog.neighbour(self._table, own):
            raise MaintenanceError(
                f"remove_orphan_files of {self._table.name}: {other} writes into the same directory, so it is "
                "not known whose the files there are"
            )
        listed = self._catalog.uuids(self._table)
        # Of all unknown files: in Hadoop's catalogs, metadata files of many tables have the same name.
        if not force and (foreign := self._actions.foreign_metadata(unknown, listed)):
            raise MaintenanceError(
                f"remove_orphan_files of {self._table.name}: another table that its catalog does not list seems to "
                f"have files in the same directory: {foreign} is not of this table. If that table was dropped, as "
                "--full-refresh drops one, force: true removes its files too"
            )
        return self._catalog.unused(self._table, unknown)

    def _rewrite_manifests(self, dry_run: bool) -> ManifestsRewritten:
        if dry_run:
            return ManifestsRewritten(self._table.name, True, *self._actions.manifests())
        before, after = (0, 0) if self._table.snapshot_id is None else self._actions.rewrite_manifests()
        self._table.refresh()
        return ManifestsRewritten(self._table.name, False, before, after)

    def _rewrite_deletes(self, dry_run: bool) -> PositionDeletesRewritten:
        if dry_run:
            most = self._actions.joinable_position_deletes()
            return PositionDeletesRewritten(self._table.name, True, most, None)
        before, after = self._actions.rewrite_position_deletes()
        self._table.refresh()
        return PositionDeletesRewritten(self._table.name, False, before, after)

    def _due_manifests(self, dry_run: bool) -> ManifestsRewritten:
        count, needed = self._actions.manifests()
        if count < max(_FEW_MANIFESTS, _MANIFEST_GAIN * needed):
            return ManifestsRewritten(self._table.name, dry_run, 0, 0)
        return self._rewrite_manifests(dry_run)

    def _due_deletes(self, dry_run: bool) -> PositionDeletesRewritten:
        if self._actions.joinable_position_deletes() < _FEW_DELETE_FILES:
            return PositionDeletesRewritten(self._table.name, dry_run, 0, 0)
        return self._rewrite_deletes(dry_run)

    @property
    def _now(self) -> datetime:
        return self._fixed_now or datetime.now(timezone.utc)

    def _past(self, older_than: datetime | None) -> datetime | None:
        if older_than is None:
            return None
        moment = parse_moment("older_than", older_than)
        if moment > self._now:
            raise OptionError(f"older_than lies in the future: {moment.isoformat(timespec='seconds')}")
        return moment

    @property
    def _owns_files(self) -> bool:
        return self._table.properties.get("gc.enabled", "true").lower() != "false"

    def _check_files_are_its_own(self, what: str) -> None:
        if not self._owns_files:
            raise MaintenanceError(
                f"{what} of {self._table.name}: its property gc.enabled is false, so its files may belong to other "
                "tables. Set it to true if they do not"
            )

    def _safely(self, what: str, work: Callable[[], T]) -> T:
        """Do one step, which Ctrl-C ends.

        Raises:
            MaintenanceError: It failed.
            Interrupted: Ctrl-C was pressed in the main thread.
        """
        try:
            with Interruptible(self._table.spark):
                return work()
        except ReclusterError:
            raise
        except Exception as e:
            raise MaintenanceError(f"{what} of {self._table.name} failed: {short_message(e)}") from e
