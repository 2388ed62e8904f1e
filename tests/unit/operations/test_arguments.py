from contextlib import suppress
from datetime import datetime, timedelta, timezone

import pytest

from dbt_recluster.api import OPERATIONS
from dbt_recluster.clustering.options import Moment, parse_value, parsed_moment
from dbt_recluster.exceptions import OptionError, ReclusterError
from dbt_recluster.operations.arguments import FORMAT, TABLE

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
# Values come from YAML and Jinja, so they have any type.
ANYTHING = (5, 1e308, -1, True, "", "x", "1e400", [], [[]], [{}], {}, {"days": 1e308}, b"x", object())


def test_a_time_is_a_date_a_time_or_a_period_before_now() -> None:
    for value, expected in {
        datetime(2026, 1, 2, 3): datetime(2026, 1, 2, 3, tzinfo=timezone.utc),
        "2026-01-02": datetime(2026, 1, 2, tzinfo=timezone.utc),
        "2026-01-02 03:00:00+02:00": datetime(2026, 1, 2, 1, tzinfo=timezone.utc),
        "7 days": NOW - timedelta(days=7),
        "1 hour": NOW - timedelta(hours=1),
    }.items():
        assert parsed_moment(value, NOW) == expected
    for value in ("lately", 7, "7", ["2026-01-01"], "7 months", ""):
        with pytest.raises(OptionError, match=r"^since must be a date"):
            parse_value(Moment, "since", value)


def test_a_misspelt_name_is_answered_with_the_nearest_or_all() -> None:
    for operation in OPERATIONS.values():
        for name, answer in (("tabel", "did you mean table"), ("xyz", "it takes table, format")):
            with pytest.raises(OptionError, match=f"has no argument {name!r}; {answer}"):
                operation.read((TABLE, FORMAT), {name: "a.t"})
    with pytest.raises(OptionError, match="there is no operation reclustr; did you mean recluster"):
        OPERATIONS.named("reclustr")
    with pytest.raises(OptionError, match="there is no operation vacuum; there are recluster, "):
        OPERATIONS.named("vacuum")


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_value_of_an_argument_is_a_fault(name: str) -> None:
    for argument in (TABLE, FORMAT, *OPERATIONS[name].arguments):
        for value in ANYTHING:
            with suppress(ReclusterError):
                argument.read(value)
