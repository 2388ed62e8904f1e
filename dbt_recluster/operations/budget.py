"""The bytes that one invocation may rewrite over all its tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dbt_recluster.exceptions import BudgetSpentError


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
