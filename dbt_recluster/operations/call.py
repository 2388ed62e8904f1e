"""A call of an operation: one table, the arguments, and where it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, ReclusterOptions
from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.exceptions import BudgetSpentError
from dbt_recluster.iceberg.catalog_files import CatalogFiles
from dbt_recluster.operations.model_options import ModelOptions, recorded_key
from dbt_recluster.operations.tables import Target

if TYPE_CHECKING:
    from dbt_recluster.clustering.table import ClusteredTable


class RunBudget:
    """The budget of a run, such as dbt's var ``recluster_max_bytes``.

    Under a budget, tables are reclustered one after the other: two at the same time could each spend all that is left.

    Attributes:
        total: The bytes of the whole run, or None for no limit.
    """

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        self._lock = threading.Lock()
        self._spent = 0

    @contextmanager
    def limit(self, own: int | None) -> Iterator[int | None]:
        """Reserve the budget for one table and yield the most bytes that it may rewrite; None is no limit.

        Args:
            own: The limit of this table, or None.

        Raises:
            BudgetSpentError: Nothing is left.
        """
        if self.total is None:
            yield own
            return
        with self._lock:
            left = self.total - self._spent
            if left <= 0:
                raise BudgetSpentError(
                    f"the {self.total} bytes of var recluster_max_bytes are spent in this run"
                )
            yield left if own is None else min(left, own)

    def spend(self, count: int) -> None:
        """Count bytes that were rewritten; call it while the budget is reserved."""
        self._spent += count


class Context(Protocol):
    """Where operations run.

    Attributes:
        budget: The bytes that all tables together may rewrite.
        trigger: What reclusters: ``run`` after a build, otherwise ``manual``.
        resume: The command that resumes a suspended table, with ``%s`` for its name.
        absent: Why :meth:`exists` is false, for the line of a rewrite; empty for no line.
    """

    @property
    def budget(self) -> RunBudget: ...  # noqa: D102
    @property
    def trigger(self) -> str: ...  # noqa: D102
    @property
    def resume(self) -> str: ...  # noqa: D102
    @property
    def absent(self) -> str: ...  # noqa: D102

    def open(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order.

        Raises:
            NotAnIcebergTableError: There is no such table.
        """

    def exists(self, target: Target) -> bool:
        """Whether a table that the user did not name exists and is to be worked on."""

    def queries(self, unique_id: str) -> Mapping[str, str]:
        """Return the compiled SQL of what reads a node's table, by name."""

    def progress(self) -> ProgressCallback | None:
        """Return what shows the progress of one recluster, or None."""

    def explain(self, error: Exception) -> str:
        """Return an error in one line."""


@dataclass
class Call:
    """An operation on one table.

    Attributes:
        target: The table.
        arguments: The arguments of the operation.
        context: Where it runs.
        catalog: The files of the other tables, which the calls of one operation read once.
        warnings: What the user should know.
    """

    target: Target
    arguments: Mapping[str, Any]
    context: Context
    catalog: CatalogFiles = field(default_factory=CatalogFiles)
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def opened(self) -> ClusteredTable:
        """The table under the key of its sort order."""
        return self.context.open(self.target.relation)

    @cached_property
    def table(self) -> ClusteredTable:
        """The table under the key of the operation, of its model, or of its sort order, in this order."""
        own = self.target.options
        key = self.arguments.get("cluster_by")
        if key is None:
            key = recorded_key(self.opened.iceberg.properties) if own is None else own.cluster_by
        return self.opened if key is None else self.opened.under(key)

    @cached_property
    def queries(self) -> Mapping[str, str]:
        """The queries of the project that read the table, by name."""
        return self.context.queries(self.target.unique_id) if self.target.unique_id else {}

    def options(self, **more: Any) -> ReclusterOptions:
        """Return the options of the table's model, or else those that it records, replaced by the arguments."""
        names = [*RECLUSTER_OPTIONS, "dry_run"]
        given = {name: value for name in names if (value := self.arguments.get(name)) is not None}
        own = self.target.options or ModelOptions.of_table(self.opened.iceberg.properties, but=given)
        return replace(own.recluster, **given, **more)
