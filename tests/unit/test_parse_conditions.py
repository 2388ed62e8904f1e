from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.values import After, When, parse_after, parse_when
from dbt_recluster.exceptions import OptionError

QUERY = "select * from t"


def test_conditions_are_read() -> None:
    options = ReclusterOptions(after=None, when=None)
    assert (options.after, options.when) == (None, ())
    assert parse_after("after", {"rows": "1e6", "commits": 5, "share": 0.1}) == After(1e6, 5, 0.1)
    assert parse_after("after", {"days": "2", "hours": 0.5}) == After(days=2, hours=0.5)
    assert parse_when("when", ()) == ()
    assert parse_when("when", [{"ratio": "70"}, {"ratio": 100}]) == (When(ratio=70), When(ratio=100))
    assert parse_when("when", {"skipped": 0.9}) == (When(skipped=0.9),)
    assert parse_when("when", [{"query": QUERY, "opens": 40, "seconds": 2}, {"skipped": "0.5"}]) == (
        When(QUERY, 40, 2),
        When(skipped=0.5),
    )
    assert not options.has_conditions
    assert ReclusterOptions(after=After(rows=1)).has_conditions
    assert ReclusterOptions(when=(When(skipped=1),)).has_conditions


@pytest.mark.parametrize(
    "value", [5, "5", [], {}, {"weeks": 1}, {"days": 0}, {"rows": 0}, {"rows": "many"}, {"share": 1.1}]
)
def test_what_is_no_change_is_refused(value: Any) -> None:
    with pytest.raises(OptionError, match=r"^after"):
        parse_after("after", value)


@pytest.mark.parametrize(
    "value",
    [
        0.9,
        [],
        {},
        [0.9],
        {"query": QUERY},
        {"opens": 4},
        {"query": "k = 3", "opens": 4},
        {"query": QUERY, "skipped": 0.5},
        {"skipped": 0.5, "seconds": 1},
        {"skipped": 2},
        {"ratio": 101},
        {"ratio": 70, "skipped": 0.5},
        {"ratio": 70, "query": QUERY},
        {"query": QUERY, "opens": -1},
        {"query": QUERY, "blocks": 3},
        [[("skipped", 0.5)]],
    ],
)
def test_what_is_no_query_is_refused(value: Any) -> None:
    message = r"^when must be a mapping such as \{skipped: 0.9\}, .* begins with select or with .*, not "
    with pytest.raises(OptionError, match=message):
        parse_when("when", value)
