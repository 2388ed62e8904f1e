"""The Spark jobs that one round writes its blocks with: what they are called, and how much of the round they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dbt_recluster.iceberg.jobs import job_step
from dbt_recluster.iceberg.task_progress import Told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RoundJobs:
    """The jobs of one round, one after the other.

    Args:
        spark: The session they run in.
        sizes: The bytes of each set of the round.
        told: Takes the share of all these bytes that is merged; None tells nobody.
    """

    def __init__(self, spark: SparkSession, sizes: Sequence[int], told: Told | None) -> None:
        self._spark = spark
        self._sizes = sizes
        self._told = told
        self._before = 0

    @contextmanager
    def step(self, what: str, sets: Sequence[int]) -> Iterator[Told | None]:
        """Name the jobs of the block after ``sets`` (counted from 0); yield what takes the share done of it alone."""
        own, total, told = sum(self._sizes[each] for each in sets), max(1, sum(self._sizes)), self._told

        def tell(share: float) -> None:
            assert told is not None
            told((self._before + share * own) / total)

        numbers = numbers_from_one(sets)
        with job_step(self._spark, f"{what} of {'sets' if len(sets) > 1 else 'set'} {numbers}"):
            yield None if told is None else tell
        self._before += own


def numbers_from_one(positions: Sequence[int]) -> str:
    """Return positions as people count them, neighbours together: ``1 to 3, 5``."""
    spans: list[list[int]] = []
    for number in sorted(position + 1 for position in positions):
        if spans and spans[-1][1] + 1 == number:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans)
