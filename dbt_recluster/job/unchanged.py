"""Tables to which nobody has written since nothing was left to do: in a process that stays, and from earlier commands.

Every commit, of rows or of properties, gives a table another metadata file. So while the catalog names the one that was
read last, the same command finds the same. `ChangedTables` asks Spark for it at each pass of ``recluster --every``.
`UnchangedTables` keeps it in the user's cache directory, and pyiceberg asks a REST catalog without starting Spark.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbt_recluster.clustering.options import parser
from dbt_recluster.exceptions import SparkEnvironmentError
from dbt_recluster.iceberg.catalog_tables import check_catalog, current_metadata_file
from dbt_recluster.iceberg.session.environment import ICEBERG_CATALOG, package_version
from dbt_recluster.iceberg.session.jobs import stop_if_interrupted
from dbt_recluster.iceberg.session.jvm import SparkSession, is_stopped
from dbt_recluster.iceberg.session.local_spark import cache_directory, replace_file
from dbt_recluster.names import name_parts
from dbt_recluster.operations.declaration import Answer
from dbt_recluster.operations.targets import Target

logger = logging.getLogger(__name__)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_INTERVAL = re.compile(r"0*([1-9]\d{0,5})\s*([smhd])", re.IGNORECASE)
# Seconds after which an unchanged table is planned again: a threshold `auto` and suspensions go by time. Also the
# longest pause after failures.
_LONGEST_PAUSE = 3600.0
_POLL = 0.5
# The settings of other catalogs have other names in pyiceberg, or it has no such catalog.
_REST = ("rest", "org.apache.iceberg.rest.RESTCatalog")
# Of a threshold `auto`, and of options that go by time, only the table itself knows the present value.
_SECONDS = 24 * 60 * 60


def _seconds(value: Any) -> float | None:
    match = _INTERVAL.fullmatch(str(value).strip())
    return None if match is None else float(int(match[1]) * _UNITS[match[2].lower()])


parse_interval = parser("a whole number above 0 with a unit, such as 30s, 5m or 1h", _seconds)


@dataclass(frozen=True)
class _Pause:
    until: float  # by the monotonic clock
    metadata_file: str | None = None  # ends with another one, unless the table failed
    after_failure: float = 0.0  # its length in seconds; 0 if nothing was left to do


class ChangedTables:
    """The tables that a pass works on: changed since nothing was left to do, or due for another try.

    ``interval`` are the seconds from the start of one pass to the next.
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
        for known in (self._metadata_files, self._pauses):
            for dropped in known.keys() - names:
                del known[dropped]
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


class UnchangedTables:
    """The tables without anything to do that earlier commands have recorded in the user's cache directory.

    An answer is for Spark's ``settings``, which name the catalogs, and for the ``arguments`` as they were given.
    """

    def __init__(self, settings: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
        self._settings = settings
        self._rules = repr((package_version(), sorted(settings.items()), sorted(arguments.items())))
        self._directory: Path | None = None
        if importlib.util.find_spec("pyiceberg") is not None:
            with suppress(OSError, RuntimeError):  # the latter where there is no home
                self._directory = cache_directory()

    def answer(self, table: str) -> Answer | None:
        """Return the answer of an earlier command if nothing was written to the table since it, or None."""
        if (file := self._file(table)) is None or not file.is_file():
            return None
        try:
            known = json.loads(file.read_text("utf-8"))
            if time.time() - known["at"] > _SECONDS or self._metadata_file(table) != known["metadata_file"]:
                return None
            since = time.strftime("%H:%M:%S", time.localtime(known["at"]))
            reason = f"nothing was written since the check at {since}"
            text = f"{known['text']} ({reason})"
            return Answer(table, {**known["values"], "reason": reason}, text, warnings=known["warnings"])
        except Exception as e:  # Spark looks, and says what is wrong
            logger.debug("%s: pyiceberg does not know whether it has changed: %s", table, type(e).__name__)
            return None

    def remember(self, answer: Answer, metadata_file: str) -> None:
        """Record that nothing was to be done to a table that was read from this metadata file."""
        if (file := self._file(answer.table)) is None:
            return
        known = {name: getattr(answer, name) for name in ("values", "text", "warnings")}
        with suppress(OSError, TypeError, ValueError):
            file.parent.mkdir(0o700, exist_ok=True)
            replace_file(file, json.dumps({**known, "metadata_file": metadata_file, "at": time.time()}).encode())

    def _file(self, table: str) -> Path | None:
        """Return the file of a table, or None if its catalog cannot be asked."""
        if self._directory is None or self._catalog(table) is None:
            return None
        name = hashlib.sha256(f"{table}\n{self._rules}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        return self._directory / "unchanged" / f"{name}.json"

    def _catalog(self, table: str) -> dict[str, str] | None:
        """Return the properties of a table's catalog for pyiceberg, or None."""
        name, *rest = name_parts(table)
        prefix = f"spark.sql.catalog.{name}"
        if len(rest) < 2 or self._settings.get(prefix) != ICEBERG_CATALOG:
            return None
        given = {key.removeprefix(f"{prefix}."): value for key, value in self._settings.items() if key != prefix}
        properties = {key: value for key, value in given.items() if not key.startswith("spark.")}
        implementation = properties.pop("catalog-impl", "") or properties.get("type")
        return {**properties, "type": "rest"} if implementation in _REST else None

    def _metadata_file(self, table: str) -> str:
        from pyiceberg.catalog import load_catalog

        name, *rest = name_parts(table)
        catalog = load_catalog(name, **(self._catalog(table) or {}))
        return str(catalog.load_table(tuple(rest)).metadata_location)
