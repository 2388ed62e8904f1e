"""Every error of dbt-recluster. Messages say what is wrong and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED_ORPHANS = 10


class _LeavesFiles(BaseException):
    """An error that names files which are left behind.

    Attributes:
        orphans: All files that were written and are left behind.
    """

    def __init__(self, message: str = "", *, orphans: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.orphans = tuple(orphans)


class ReclusterError(_LeavesFiles, Exception):
    """Base class of every error that dbt-recluster raises itself.

    Attributes:
        bytes_rewritten: Bytes rewritten by earlier rounds of the same recluster, which are committed.
    """

    bytes_rewritten = 0


class Interrupted(_LeavesFiles, KeyboardInterrupt):
    """Raised on Ctrl-C or SIGTERM during an operation; Spark can still be used.

    Not a ``ReclusterError``, so per-table handlers do not swallow it.
    """

    @classmethod
    def by(cls, error: BaseException | None) -> Interrupted:
        """Return the interruption that ended a step with an error, if it had one."""
        message = "interrupted; a round that was not committed changed nothing"
        orphans = getattr(error, "orphans", ())
        return cls(f"{message}. {error}" if orphans else message, orphans=orphans)


class ClusterKeyError(ReclusterError):
    """A cluster key names an unknown column, an unsupported expression, or a type without an order."""


class NoKeyYetError(ClusterKeyError):
    """``cluster_by: auto`` has chosen no key for the table yet."""


class KeyTypeError(ClusterKeyError):
    """A column of a cluster key has a type without an order, such as Iceberg's ``uuid``."""


class OptionError(ReclusterError):
    """An option has the wrong type or a value outside its range."""


class PredicateError(ReclusterError):
    """A ``where`` predicate cannot be parsed or cannot be used to choose blocks."""


class NotAnIcebergTableError(ReclusterError):
    """The name is not that of the main branch of an Iceberg table."""


class MissingTableError(NotAnIcebergTableError):
    """There is no such table."""


class OtherFormatError(NotAnIcebergTableError):
    """The name is that of a view, of a table of another format than Iceberg's, or of a part of a table."""


class CatalogError(ReclusterError):
    """A catalog does not answer."""


class CatalogNotFoundError(CatalogError):
    """Spark has no Iceberg catalog, or the catalog no namespace, of this name."""


class UnsupportedTableError(ReclusterError):
    """Spark or Iceberg cannot read the table as it is."""


class JavaNotFoundError(ReclusterError):
    """There is no Java that Spark can run on."""


class LakeInUseError(ReclusterError):
    """Another process uses the same lake directory."""


class SparkEnvironmentError(ReclusterError):
    """Spark lacks Iceberg's classes, its SQL extensions, or an Iceberg catalog that answers."""


class MaintenanceError(ReclusterError):
    """Snapshots, files or manifests of a table cannot be cleaned up, or it would harm another table."""


class DifferentTableError(ReclusterError):
    """The connection and ``recluster_session`` do not see the same table. Nothing was changed."""


class SubmitError(ReclusterError):
    """The command of ``recluster_submit`` does not exist, failed, or did not end in time."""


class ConcurrentChangeError(ReclusterError):
    """Other writers changed the blocks of a round too often in a row. The round changed nothing."""


class MergeFailedError(ReclusterError):
    """Blocks could not be read, written or verified. The round changed nothing."""


class CommitFailedError(ReclusterError):
    """The catalog could not be reached for a commit, or refused it. Nothing was changed."""


class CommitStateUnknownError(ReclusterError):
    """The catalog did not confirm the commit. The table is as before or as after; no file is deleted."""


class CommitMismatchError(ReclusterError):
    """A committed round has wrong row or file counts. The message says how to roll back."""


class OrphanFilesError(ReclusterError):
    """A recluster failed, and files that it had written could not be deleted. The table does not use them."""


class BudgetSpentError(ReclusterError):
    """The bytes that a run may rewrite over all its tables are spent, so this table was not reclustered."""


class EventLogError(ReclusterError):
    """There are no event logs of Spark where they were looked for, or a query log cannot be read."""


class ManifestError(ReclusterError):
    """dbt's manifest or run results cannot be read, or do not belong together. Nothing was done to any table."""


class ReportError(ReclusterError):
    """A report cannot be drawn or written: the plotting library is missing, or the file cannot be made."""


def orphan_note(table: str, files: Sequence[str], *, kept: bool = False) -> str:
    """Return a sentence that names the first of the files that are left behind and says how to remove them.

    They may have been ``kept`` on purpose, because the table may use them.
    """
    more = f" and {len(files) - _NAMED_ORPHANS:,} more beside them" if len(files) > _NAMED_ORPHANS else ""
    count = "1 new file" if len(files) == 1 else f"{len(files):,} new files"
    fate = ("is" if len(files) == 1 else "are") + " left" if kept else "could not be deleted"
    return (
        f"{count} {fate}: {', '.join(files[:_NAMED_ORPHANS])}{more}. Iceberg's remove_orphan_files(table => '{table}') "
        "removes files that the table does not use once they are three days old"
    )


class PlannerError(ReclusterError, ValueError):
    """The planner cannot work with its input. Nothing has been planned."""


class BoundsError(PlannerError):
    """The arrays that describe blocks have different lengths or values that cannot be compared."""


class PolicyError(PlannerError):
    """A policy's value is out of range, or needs figures that the blocks lack."""
