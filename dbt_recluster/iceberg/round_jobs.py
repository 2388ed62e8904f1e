"""The Spark jobs that one round writes its blocks with: what they are called, and how much of the round they are."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

from dbt_recluster.iceberg.jobs import job_step
from dbt_recluster.iceberg.task_progress import Told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Takes the share of a round's bytes that is merged, 0 to 1, and how many of its sets are.
RoundTold = Callable[[float, int], None]


class RoundJobs:
    """The jobs of one round, one after the other.

    Args:
        spark: The session they run in.
        sizes: The bytes of each set of the round.
        told: Told how much of them is merged; None tells nobody.
    """

    def __init__(self, spark: SparkSession, sizes: Sequence[int], told: RoundTold | None) -> None:
        self._spark = spark
        self._sizes = sizes
        self._told = told
        self._bytes_before = 0
        self._sets_before = 0

    @contextmanager
    def step(self, what: str, set_of: Sequence[int], stages: int) -> Iterator[Told | None]:
        """Name the jobs of a block of code, and tell how much of the round is merged while they run.

        Args:
            what: What they do.
            set_of: The set, counted from 0, that each task of their last stage writes a block of, set after set.
            stages: How many stages there are.

        Yields:
            What takes the share done of these jobs alone.
        """
        tasks = Counter(set_of)
        sets, last = list(tasks), list(accumulate(tasks.values()))
        own, total, told = sum(self._sizes[each] for each in sets), max(1, sum(self._sizes)), self._told

        def tell(share: float) -> None:
            assert told is not None
            # Spark starts tasks in their order, so those that have ended are the first, but for a few.
            ended = (share * stages - (stages - 1)) * len(set_of)
            done = bisect_right(last, ended + 1e-6)
            told((self._bytes_before + share * own) / total, self._sets_before + done)

        numbers = numbers_from_one(sets)
        with job_step(self._spark, f"{what} of {'sets' if len(sets) > 1 else 'set'} {numbers}"):
            yield None if told is None else tell
        self._bytes_before += own
        self._sets_before += len(sets)


def numbers_from_one(positions: Sequence[int]) -> str:
    """Return positions as people count them, neighbours together: ``1 to 3, 5``."""
    spans: list[list[int]] = []
    for number in sorted(position + 1 for position in positions):
        if spans and spans[-1][1] + 1 == number:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans)
