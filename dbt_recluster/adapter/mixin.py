"""What the parts of the adapter that work on tables share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from dbt.adapters.base.meta import AdapterMeta

from dbt_recluster.adapter.operations import Target
from dbt_recluster.exceptions import ReclusterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class TableMixin(metaclass=AdapterMeta):
    """A part of the adapter that works on tables through the session of this process."""

    @property
    def spark(self) -> SparkSession:
        """The session of this process."""
        raise NotImplementedError

    def _exists(self, relation: str) -> bool:
        raise NotImplementedError

    def _passed_over(self, target: Target) -> bool:
        """Whether this is one of "every model" that is not built yet."""
        return not target.required and not self._exists(target.relation)

    def _each(self, chosen: Iterable[Target], work: Callable[[Target], T]) -> tuple[list[T], list[str]]:
        """Do ``work`` on every table that is built; return what it returned, and what failed in words.

        A table that fails does not keep the next one from its turn.
        """
        done: list[T] = []
        failures: list[str] = []
        for target in chosen:
            if self._passed_over(target):
                continue
            error = target.error
            if error is None:
                try:
                    done.append(work(target))
                    continue
                except ReclusterError as e:
                    error = str(e)
            failures.append(error if target.relation in error else f"{target.relation}: {error}")
        return done, failures
