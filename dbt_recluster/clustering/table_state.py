"""What a table records of its reclustering for every process: a suspension, and the failure of the last attempt."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dbt_recluster.clustering.options import parse_iso_time
from dbt_recluster.iceberg.session.local_spark import replace_file
from dbt_recluster.iceberg.table_properties import FAILURE, SUSPENDED
from dbt_recluster.names import join_parts, name_parts
from dbt_recluster.text import moment_text

# As JSON within the 4,000 characters of a property.
_LONGEST_ERROR = 600


@dataclass(frozen=True)
class Suspension:
    """A suspension that has not ended. Its times are ISO 8601 in UTC."""

    since: str
    by: str | None = None  # the user of the Spark session; None if that is not recorded
    until: str | None = None  # when it ends by itself, or None
    reason: str | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Suspension | None:
        """Return the suspension that a table records and that has not ended, or None.

        An unreadable record suspends indefinitely, since the time of its text.
        """
        if (text := properties.get(SUSPENDED)) is None:
            return None
        recorded = SUSPENDED.load(text, cls._of_json) or cls(text)
        end = recorded.until and parse_iso_time(recorded.until)
        return recorded if not end or end > datetime.now(timezone.utc) else None

    @classmethod
    def _of_json(cls, facts: Mapping[str, Any]) -> Suspension:
        recorded = {name: str(fact) for name, fact in facts.items() if fact is not None}
        for name in {"since", "until"} & recorded.keys():
            time = parse_iso_time(recorded[name]).astimezone(timezone.utc)
            recorded[name] = time.isoformat(timespec="seconds")
        return cls(**recorded)

    def __str__(self) -> str:
        """Return it as it stands behind "suspended since"."""
        facts = {" by ": self.by, " until ": self.until and moment_text(self.until), ": ": self.reason}
        return moment_text(self.since) + "".join(f"{word}{fact}" for word, fact in facts.items() if fact)


@dataclass(frozen=True)
class Failure:
    """A failed attempt to recluster a table, which counts until one succeeds."""

    at: str  # ISO 8601 in UTC
    error: str  # without secrets

    @classmethod
    def now(cls, error: str) -> Failure:
        """Return the failure of an attempt that has just ended with an error."""
        return cls(datetime.now(timezone.utc).isoformat(timespec="seconds"), error[:_LONGEST_ERROR])

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Failure | None:
        """Return the failure that a table records, or None."""
        return FAILURE.load(properties.get(FAILURE), lambda of: cls(str(of["at"]), str(of["error"])))


class FailureFile:
    """The failures of tables that could not be changed, so that no property records them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, table: str) -> Failure | None:
        """Return the failure of a table, or None."""
        return self._read().get(join_parts(name_parts(table)))

    def keep(self, table: str, failure: Failure | None) -> None:
        """Keep the failure of a table, or forget it with None."""
        if failure is None and self.of(table) is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked_directory(self._path.parent):
            failures = {**self._read(), join_parts(name_parts(table)): failure}
            kept = {name: asdict(each) for name, each in failures.items() if each is not None}
            replace_file(self._path, json.dumps(kept).encode())

    def _read(self) -> dict[str, Failure]:
        try:
            return {name: Failure(**of) for name, of in json.loads(self._path.read_text(encoding="utf-8")).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


@contextmanager
def locked_directory(path: Path) -> Iterator[None]:
    """Keep other processes and threads from replacing files of a directory, where the system has such locks."""
    with ExitStack() as held:
        with suppress(ImportError, OSError):
            import fcntl

            descriptor = os.open(path, os.O_RDONLY)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
