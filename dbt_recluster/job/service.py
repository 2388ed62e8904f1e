"""``recluster --every``: which tables a pass works on, and when the next pass begins."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator

from dbt_recluster.clustering.options import Expected, parse_value
from dbt_recluster.exceptions import SparkEnvironmentError
from dbt_recluster.iceberg.catalog_tables import check_catalog, current_metadata_file
from dbt_recluster.iceberg.session.jobs import stop_if_interrupted
from dbt_recluster.iceberg.session.jvm import SparkSession, is_stopped
from dbt_recluster.operations.declaration import Answer
from dbt_recluster.operations.targets import Target

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_INTERVAL = re.compile(r"0*([1-9]\d{0,5})\s*([smhd])", re.IGNORECASE)
# Seconds after which an unchanged table is planned again: a threshold `auto` and suspensions go by time. Also the
# longest pause after failures.
_LONGEST_PAUSE = 3600.0
_POLL = 0.5


def _seconds(value: Any) -> float | None:
    match = _INTERVAL.fullmatch(str(value).strip())
    return None if match is None else float(int(match[1]) * _UNITS[match[2].lower()])


_Interval = Annotated[
    float, BeforeValidator(_seconds), Expected("a whole number above 0 with a unit, such as 30s, 5m or 1h")
]
parse_interval = partial(parse_value, _Interval)


@dataclass(frozen=True)
class _Pause:
    """A table that is left alone for a while."""

    until: float  # by the monotonic clock
    metadata_file: str | None = None  # ends with another one, unless the table failed
    after_failure: float = 0.0  # its length in seconds; 0 if nothing was left to do


class ChangedTables:
    """The tables that a pass works on: changed since nothing was left to do, or due for another try.

    Args:
        spark: The session of all passes.
        interval: Seconds from the start of one pass to the next.
    """

    def __init__(self, spark: SparkSession, interval: float) -> None:
        self._spark, self._interval = spark, interval
        self._started = 0.0
        self._metadata_files: dict[str, str | None] = {}  # None of a table that cannot be loaded
        self._pauses: dict[str, _Pause] = {}

    def begin(self) -> None:
        """Begin a pass; raise SparkEnvironmentError if Spark has stopped."""
        self._started = time.monotonic()
        with suppress(Exception):  # its JVM has ended
            if not is_stopped(self._spark):
                return
        raise SparkEnvironmentError("Spark has stopped")

    def of(self, targets: Sequence[Target]) -> list[Target]:
        """Return the targets that the pass works on; raise CatalogError if a catalog does not answer."""
        names = {target.relation for target in targets}
        for by_table in (self._metadata_files, self._pauses):
            for dropped in by_table.keys() - names:
                del by_table[dropped]
        return [target for target in targets if self._has_changed(target.relation)]

    def record(self, targets: Sequence[Target], answers: Sequence[Answer]) -> None:
        """Record what the pass answered; no answer is nothing to do. Raise CatalogError as the cause of a failure."""
        answered = {answer.table: answer for answer in answers}
        for name in (target.relation for target in targets):
            answer, before = answered.get(name), self._pauses.pop(name, None)
            if answer is not None and answer.error is not None:
                check_catalog(self._spark, name)
                seconds = max(self._interval, 2 * before.after_failure if before else 0.0)
                seconds = min(seconds, max(self._interval, _LONGEST_PAUSE))
                self._pauses[name] = _Pause(self._started + seconds, after_failure=seconds)
            elif answer is None or answer.result is None or not answer.result.rounds:
                self._pauses[name] = _Pause(self._started + _LONGEST_PAUSE, self._metadata_files[name])

    def wait(self) -> None:
        """Wait until the next pass, or raise Interrupted if a signal arrives."""
        stop_if_interrupted()
        while (left := self._started + self._interval - time.monotonic()) > 0:
            time.sleep(min(left, _POLL))
            stop_if_interrupted()

    def _has_changed(self, name: str) -> bool:
        stop_if_interrupted()
        pause = self._pauses.get(name)
        is_over = pause is None or self._started >= pause.until
        if pause is not None and pause.after_failure and not is_over:
            return False
        current = self._metadata_files[name] = self._metadata_file(name)
        return pause is None or is_over or current != pause.metadata_file

    def _metadata_file(self, name: str) -> str | None:
        """Return the current metadata file of a table, which is not kept; None if it cannot be loaded."""
        try:
            return current_metadata_file(self._spark, name)
        except Exception:  # the pass says why
            check_catalog(self._spark, name)
            return None
