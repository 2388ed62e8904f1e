from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from dbt_recluster.clustering.values import moment, parse_moment
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.declaration import FORMAT, TABLE
from dbt_recluster.operations.runner import OPERATIONS, operation_named

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def test_a_time_is_a_date_a_time_or_a_period_before_now() -> None:
    for value, expected in {
        datetime(2026, 1, 2, 3): datetime(2026, 1, 2, 3, tzinfo=timezone.utc),
        "2026-01-02": datetime(2026, 1, 2, tzinfo=timezone.utc),
        "2026-01-02 03:00:00+02:00": datetime(2026, 1, 2, 1, tzinfo=timezone.utc),
        "7 days": NOW - timedelta(days=7),
        "1 hour": NOW - timedelta(hours=1),
    }.items():
        assert moment(value, NOW) == expected
    for value in ("lately", 7, "7", ["2026-01-01"], "7 months", ""):
        with pytest.raises(OptionError, match=r"^since must be a date"):
            parse_moment("since", value)


def test_a_misspelt_name_is_answered_with_the_nearest_or_all() -> None:
    for operation in OPERATIONS.values():
        for name, answer in (("tabel", "did you mean table"), ("xyz", "it takes table, format")):
            with pytest.raises(OptionError, match=f"has no argument {name!r}; {answer}"):
                operation.read((TABLE, FORMAT), {name: "a.t"})
    with pytest.raises(OptionError, match="there is no operation reclustr; did you mean recluster"):
        operation_named("reclustr")
    with pytest.raises(OptionError, match="there is no operation vacuum; there are recluster, "):
        operation_named("vacuum")
