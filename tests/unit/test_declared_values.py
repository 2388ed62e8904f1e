"""Reads that a model declares, and its conditions, as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, ReclusterOptions
from dbt_recluster.clustering.values import (
    After,
    DeclaredRead,
    When,
    is_query,
    parse_after,
    parse_reads,
    parse_when,
    reads_as_text,
)
from dbt_recluster.exceptions import OptionError

QUERY = "-- of the dashboard\n(select 1 from t where d > 2)"
DAY, USER = "d >= date'2026-01-01'", "user = 'it\\'s \"x\"'"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], ()),
        ("even", ()),
        (DAY, (DeclaredRead(DAY),)),
        ([DAY, {"where": USER, "weight": 2.5}], (DeclaredRead(DAY), DeclaredRead(USER, 2.5))),
        ({"where": DAY, "weight": "3"}, (DeclaredRead(DAY, 3.0),)),
        (
            [QUERY, {"query": QUERY, "weight": 3}],
            (DeclaredRead(QUERY, 1.0, True), DeclaredRead(QUERY, 3.0, True)),
        ),
    ],
)
def test_reads_are_the_same_after_they_were_kept_as_text(
    value: Any, expected: tuple[DeclaredRead, ...]
) -> None:
    reads = parse_reads("reads", value)
    assert reads == expected
    assert parse_reads("reads", reads_as_text(reads)) == reads
    assert ReclusterOptions(reads=value).reads == reads
    assert RECLUSTER_OPTIONS["reads"].of_table({"recluster.option.reads": reads_as_text(reads)}) == reads


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7, "a read must be a SQL predicate such as .*, a query .*, or a mapping .*, not 7"),
        ("", "a read must be a SQL predicate"),
        ([DAY, 7], "a read must be a SQL predicate .*, not 7"),
        ([{"queries": DAY}], "not {'queries': "),
        ([{"query": QUERY, "where": DAY}], "not {'query': "),
        ([{"query": DAY}], "a query that begins with select or with.*, not {'query'"),
        ([{"weight": 1}], "not {'weight': 1}"),
        ([{}], "not {}"),
        ("[1", "reads must be a list of SQL predicates"),
        ([{"where": DAY, "weight": -1}], "`weight` above 0 and at most 1,000,000,000, not {.*'weight': -1}"),
        ([{"where": DAY, "weight": "often"}], "`weight` above 0 and at most .*, not {.*'weight': 'often'}"),
        ([f"k = {n}" for n in range(1_000_000)], r"must be shorter: 1,000,000 reads take [\d,]+ characters"),
        ([f"k = {number}" for number in range(500)], r"must be shorter: 500 reads take [\d,]+ characters"),
    ],
)
def test_what_is_no_read_is_refused(value: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_reads("reads", value)


def test_where_is_a_predicate_whatever_its_first_word() -> None:
    (read,) = parse_reads("reads", {"where": "values in (1, 2)"})
    assert read.is_query is False
    assert parse_reads("reads", reads_as_text([read])) == (read,)


def test_comments_before_a_query_take_no_time() -> None:
    assert not is_query("/**/" * 2_000 + " k = 1")


def test_nothing_said_is_what_the_table_records() -> None:
    assert ReclusterOptions().reads is None
    assert RECLUSTER_OPTIONS["reads"].of_table({}) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1", True),
        (" \n/* a\nb */ WITH x as (select 1) select * from x", True),
        ("from t", True),
        ("selected = 1", False),
        ("from = 3", False),
        ("(d > 1)", False),
    ],
)
def test_queries_are_told_from_predicates(text: str, expected: bool) -> None:
    assert is_query(text) == expected


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
