from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from dbt_recluster.adapter.arguments import parse_format, parse_key, parse_where
from dbt_recluster.clustering.values import parse_since
from dbt_recluster.exceptions import ClusterKeyError, OptionError

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        (None, None),
        (date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=timezone.utc)),
        (datetime(2026, 1, 2, 3), datetime(2026, 1, 2, 3, tzinfo=timezone.utc)),
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=timezone.utc)),
        ("2026-01-02T03:00:00Z", datetime(2026, 1, 2, 3, tzinfo=timezone.utc)),
        ("2026-01-02 03:00:00+02:00", datetime(2026, 1, 2, 1, tzinfo=timezone.utc)),
        ("7 days", NOW - timedelta(days=7)),
        ("1 hour", NOW - timedelta(hours=1)),
    ],
)
def test_since(value: Any, moment: datetime | None) -> None:
    assert parse_since(value, NOW) == moment


@pytest.mark.parametrize("value", ["lately", 7, "7", ["2026-01-01"], "7 months", ""])
def test_a_since_that_cannot_be(value: Any) -> None:
    with pytest.raises(OptionError, match=r"^since must be a date"):
        parse_since(value)


def test_the_others() -> None:
    assert [parse_format(value) for value in (None, "text", "JSON")] == ["text", "text", "json"]
    assert parse_key(None) is None
    assert str(parse_key("to_date(ts), k")) == "days(ts), k"
    assert (parse_where(None), parse_where("a = 1")) == (None, "a = 1")
    with pytest.raises(ClusterKeyError):
        parse_key(3)
    with pytest.raises(OptionError, match=r"^format must be"):
        parse_format("xml")
    with pytest.raises(OptionError, match=r"^where must be"):
        parse_where(" ")
