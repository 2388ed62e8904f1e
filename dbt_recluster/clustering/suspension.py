"""The suspension of a table, recorded in its properties: until when nobody reclusters it, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from dbt_recluster.clustering.values import parse_iso_time
from dbt_recluster.iceberg.table_properties import SUSPENDED


@dataclass(frozen=True)
class Suspension:
    """A suspension that has not ended. Its times are ISO 8601 in UTC."""

    since: str
    by: str | None = None  # the user of the Spark session; None if that is not recorded
    until: str | None = None  # when it ends by itself, or None
    reason: str | None = None

    @classmethod
    def of_table(cls, properties: Mapping[str, str]) -> Suspension | None:
        """Return the suspension that a table records and that has not ended, or None.

        A damaged record, or one of earlier versions, suspends without an end; its text stands for the time.
        """
        if (text := properties.get(SUSPENDED)) is None:
            return None
        recorded = SUSPENDED.load(text, cls._of_json) or cls(text)
        end = recorded.until and parse_iso_time(recorded.until)
        return recorded if not end or end > datetime.now(timezone.utc) else None

    @classmethod
    def _of_json(cls, facts: Mapping[str, Any]) -> Suspension:
        recorded = cls(**{name: str(fact) for name, fact in facts.items() if fact is not None})
        if recorded.until is not None:
            parse_iso_time(recorded.until)
        return recorded

    def as_property(self) -> str:
        """Return the value of the property."""
        return SUSPENDED.dump(asdict(self))

    def __str__(self) -> str:
        """Return it as it stands behind "suspended since"."""
        facts = {" by ": self.by, " until ": self.until, ": ": self.reason}
        return self.since + "".join(f"{word}{fact}" for word, fact in facts.items() if fact)
