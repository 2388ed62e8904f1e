"""The bytes that one dbt invocation may rewrite over all its tables: var ``recluster_max_bytes``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dbt_recluster.exceptions import OptionError


class BudgetSpentError(OptionError):
    """Nothing is left of the run's budget, so this table was not reclustered."""


class Budget:
    """What is left of the bytes that a run may rewrite.

    Under a budget tables are reclustered one after the other: two at the same time could each take all that is
    left.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent = 0

    @contextmanager
    def turn(self, total: int | None, own: int | None) -> Iterator[int | None]:
        """Hold the budget for one table and give the most bytes it may rewrite; None is no limit.

        Args:
            total: The budget of the whole run, None where there is none.
            own: The limit of this table.

        Raises:
            BudgetSpentError: Nothing is left.
        """
        if total is None:
            yield own
            return
        with self._lock:
            left = total - self._spent
            if left <= 0:
                raise BudgetSpentError(f"the {total} bytes of var recluster_max_bytes are spent in this run")
            yield left if own is None else min(left, own)

    def spend(self, count: int) -> None:
        """Note bytes that were rewritten; call it while holding the budget."""
        self._spent += count
