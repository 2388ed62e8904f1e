"""Every error of dbt-recluster, in one flat list. Messages say what is wrong and what to do next."""

from __future__ import annotations

from collections.abc import Sequence


class ReclusterError(Exception):
    """Base of every error that dbt-recluster raises itself."""

    def __init__(self, message: str = "", *, orphans: Sequence[str] = ()) -> None:
        """Take what to say, and in ``orphans`` the files that were written and are left behind, all of them."""
        super().__init__(message)
        self.orphans = tuple(orphans)
        self.bytes_rewritten = 0  # by the rounds of the same recluster that were committed before


class ClusterKeyError(ReclusterError):
    """A cluster key names an unknown column, an expression that is not supported, or a type that cannot be ordered."""


class OptionError(ReclusterError):
    """An option has the wrong type or a value outside its range."""


class PredicateError(ReclusterError):
    """A ``where`` predicate cannot be parsed or cannot be used to choose blocks."""


class NotAnIcebergTableError(ReclusterError):
    """The name is not one of an Iceberg table."""


class UnsupportedTableError(ReclusterError):
    """Spark or Iceberg cannot read the table as it is."""


class JavaNotFoundError(ReclusterError):
    """The machine has no Java that Spark can run on."""


class LakeInUseError(ReclusterError):
    """Another process works in the same lake directory."""


class SparkEnvironmentError(ReclusterError):
    """Spark lacks Iceberg's classes, its SQL extensions, or an Iceberg catalog that answers."""


class ConcurrentChangeError(ReclusterError):
    """Other writers changed the chosen blocks too often in a row. The round changed nothing."""


class MergeFailedError(ReclusterError):
    """The chosen blocks could not be read, or the new ones not written. The round changed nothing."""


class CommitFailedError(ReclusterError):
    """The catalog could not be reached for the commit, or refused it. The round changed nothing."""


class CommitStateUnknownError(ReclusterError):
    """The catalog did not say whether the commit took place. The table is as before or as after; no file is deleted."""


class OrphanFilesError(ReclusterError):
    """A recluster failed, and files that it had written could not be deleted. The table does not use them."""


class BudgetSpentError(ReclusterError):
    """Nothing is left of the bytes that a run may rewrite over all its tables, so this one was not reclustered."""


class ReportError(ReclusterError):
    """A report cannot be drawn or written: the plotting library is missing, or the file cannot be made."""
