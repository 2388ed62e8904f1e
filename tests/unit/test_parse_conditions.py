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
    assert parse_when("when", ()) == ()
    assert parse_when("when", {"skipped": 0.9}) == (When(skipped=0.9),)
    assert parse_when("when", [{"query": QUERY, "opens": 40, "seconds": 2}, {"skipped": "0.5"}]) == (
        When(QUERY, 40, 2),
        When(skipped=0.5),
    )
    assert not options.has_conditions
    assert ReclusterOptions(after=After(rows=1)).has_conditions
    assert ReclusterOptions(when=(When(skipped=1),)).has_conditions


@pytest.mark.parametrize(
    "value", [5, "5", [], {}, {"days": 1}, {"rows": 0}, {"rows": "many"}, {"share": 1.1}]
)
def test_what_is_no_change_is_refused(value: Any) -> None:
    with pytest.raises(OptionError, match=r"^after"):
        parse_after("after", value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.9, r"must be a mapping such as \{skipped: 0.9\}"),
        ([], "must be a mapping such as"),
        ([0.9], "must be a mapping with opens or seconds or skipped"),
        ({"query": QUERY}, "must be a mapping with opens or seconds or skipped"),
        ({"opens": 4}, "need a query that begins with select or with, not None"),
        ({"query": "k = 3", "opens": 4}, "need a query that begins with select or with"),
        ({"query": QUERY, "skipped": 0.5}, "skipped is a share of at most 1, and stands alone"),
        ({"skipped": 2}, "skipped is a share of at most 1"),
        ({"query": QUERY, "opens": -1}, "opens must be a number above 0, not -1"),
        ({"query": QUERY, "blocks": 3}, "has opens, seconds, skipped, and no 'blocks'"),
    ],
)
def test_what_is_no_query_is_refused(value: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_when("when", value)
