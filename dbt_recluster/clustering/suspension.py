"""A suspension: who keeps everybody from reclustering a table, why and until when, as a property of the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from dbt_recluster import table_properties
from dbt_recluster.clustering.values import parse_iso_time


@dataclass(frozen=True)
class Suspension:
    """A suspension that has not ended.

    Attributes:
        since: When it began, ISO 8601 in UTC.
        by: The user of the Spark session, or None if that is not recorded.
        until: When it ends by itself, ISO 8601 in UTC, or None.
        reason: Why, or None.
    """

    since: str
    by: str | None = None
    until: str | None = None
    reason: str | None = None

    @classmethod
    def of_table(cls, properties: Mapping[str, str]) -> Suspension | None:
        """Return the suspension that a table records; None if there is none, or it has ended.

        A text that is no such record, as earlier versions wrote it, is the time since when, without an end.
        """
        text = properties.get(table_properties.SUSPENDED)
        if text is None:
            return None
        try:
            recorded = cls(**json.loads(text))
            until = recorded.until and parse_iso_time(recorded.until)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return cls(text)
        return None if until and until <= datetime.now(timezone.utc) else recorded

    def as_property(self) -> str:
        """Return the value of the property."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})

    def __str__(self) -> str:
        """Return it as it stands behind "suspended since"."""
        by, until = (
            f" {word} {value}" if value else "" for word, value in (("by", self.by), ("until", self.until))
        )
        return f"{self.since}{by}{until}{f': {self.reason}' if self.reason else ''}"
