from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from dbt_recluster.clustering.values import moment, parse_moment
from dbt_recluster.exceptions import ClusterKeyError, OptionError
from dbt_recluster.operations.declaration import FORMAT, TABLE, WHERE, Operation, key_argument
from dbt_recluster.operations.inspection import OPERATIONS, operation_named

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=timezone.utc)),
        (datetime(2026, 1, 2, 3), datetime(2026, 1, 2, 3, tzinfo=timezone.utc)),
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=timezone.utc)),
        ("2026-01-02T03:00:00Z", datetime(2026, 1, 2, 3, tzinfo=timezone.utc)),
        ("2026-01-02 03:00:00+02:00", datetime(2026, 1, 2, 1, tzinfo=timezone.utc)),
        ("7 days", NOW - timedelta(days=7)),
        ("1 hour", NOW - timedelta(hours=1)),
    ],
)
def test_since(value: Any, expected: datetime) -> None:
    assert moment(value, NOW) == expected


@pytest.mark.parametrize("value", ["lately", 7, "7", ["2026-01-01"], "7 months", ""])
def test_a_since_that_cannot_be(value: Any) -> None:
    with pytest.raises(OptionError, match=r"^since must be a date"):
        parse_moment("since", value)


def test_values_that_are_read() -> None:
    key = key_argument("a key")
    assert [FORMAT.read(value) for value in (None, "text", "JSON")] == ["text", "text", "json"]
    assert (key.read(None), str(key.read("to_date(ts), k"))) == (None, "days(ts), k")
    assert (WHERE.read(None), WHERE.read("a = 1")) == (None, "a = 1")


@pytest.mark.parametrize(
    ("name", "value"),
    [("where", 3), ("where", " "), ("depth", "deep"), ("dry_run", 7), ("format", "xml"), ("cluster_by", 3)],
)
def test_wrong_arguments_are_named_as_they_were_given(name: str, value: Any) -> None:
    with pytest.raises((OptionError, ClusterKeyError), match=f"^{name} must be"):
        OPERATIONS["recluster"].read((FORMAT,), {name: value})


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_misspelt_argument_is_answered_with_the_nearest_or_all(operation: Operation) -> None:
    with pytest.raises(OptionError, match="has no argument 'tabel'; did you mean table"):
        operation.read((TABLE, FORMAT), {"tabel": "a.t"})
    with pytest.raises(OptionError, match="has no argument 'xyz'; it takes table, format"):
        operation.read((TABLE, FORMAT), {"xyz": "a.t"})


def test_a_misspelt_operation_is_answered_with_the_nearest_or_all() -> None:
    with pytest.raises(OptionError, match="there is no operation reclustr; did you mean recluster"):
        operation_named("reclustr")
    with pytest.raises(OptionError, match="there is no operation vacuum; there are recluster, "):
        operation_named("vacuum")
