"""Reads that a model declares, and its conditions, as they are written."""

from typing import Any

import pytest

from dbt_recluster.clustering.options import (
    RECLUSTER_OPTIONS,
    After,
    DeclaredRead,
    ReclusterOptions,
    When,
    is_query,
    reads_as_text,
)
from dbt_recluster.exceptions import OptionError


def parse(name: str, value: Any) -> Any:
    return RECLUSTER_OPTIONS[name].read(name, value)


QUERY = "-- of the dashboard\n(select 1 from t where d > 2)"
DAY, USER = "d >= date'2026-01-01'", "user = 'it\\'s \"x\"'"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], ()),
        ("even", ()),
        (DAY, (DeclaredRead(DAY),)),
        ([DAY, {"where": USER, "weight": 2.5}], (DeclaredRead(DAY), DeclaredRead(USER, weight=2.5))),
        ({"where": DAY, "weight": "3"}, (DeclaredRead(DAY, weight=3.0),)),
        ({"where": "values in (1, 2)"}, (DeclaredRead("values in (1, 2)"),)),  # whatever its first word
        (
            [QUERY, {"query": QUERY, "weight": 3}],
            (DeclaredRead(query=QUERY), DeclaredRead(query=QUERY, weight=3)),
        ),
    ],
)
def test_reads_are_the_same_after_they_were_kept_as_text(value: Any, expected: object) -> None:
    reads = parse("reads", value)
    assert reads == expected
    assert parse("reads", reads_as_text(reads)) == reads
    of_table = RECLUSTER_OPTIONS["reads"].of_table
    assert of_table({"recluster.option.reads": reads_as_text(reads)}) == reads
    assert of_table({}) is ReclusterOptions().reads is None  # those that the table records


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([DAY, 7], "a read must be a SQL predicate such as .*, a query .*, or a mapping .*, not 7"),
        ("", "a read must be a SQL predicate"),
        ([{"query": QUERY, "where": DAY}], "not {'query': "),
        ([{"query": DAY}], "a query that begins with select or with.*, not {'query'"),
        ([{"weight": 1}], "not {'weight': 1}"),
        ("[1", "reads must be a list of SQL predicates"),
        ([{"where": DAY, "weight": -1}], "`weight` above 0 and at most 1,000,000,000, not {.*'weight': -1}"),
        ([{"where": DAY, "weight": "often"}], "`weight` above 0 and at most .*, not {.*'weight': 'often'}"),
        ([f"k = {n}" for n in range(500)], r"must be shorter: 500 reads take [\d,]+ characters"),
    ],
)
def test_a_value_that_is_no_read_is_refused(value: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse("reads", value)


def test_queries_are_told_from_predicates() -> None:
    for query in ("select 1", " \n/* a\nb */ WITH x as (select 1) select * from x", "from t"):
        assert is_query(query)
    slow = "/**/" * 2_000 + " k = 1"
    for predicate in ("selected = 1", "from = 3", "(d > 1)", slow):
        assert not is_query(predicate)


def test_conditions_are_parsed() -> None:
    assert parse("after", {"rows": "1e6", "commits": 5, "share": 0.1}) == After(1e6, 5, 0.1)
    assert parse("after", {"days": "2", "hours": 0.5}) == After(days=2, hours=0.5)
    assert parse("after", {"deleted": 1, "updated": "2"}) == After(deleted=1, updated=2)
    of_rows = {"query": QUERY, "selectivity": 0.5}
    assert parse("when", of_rows) == (When(QUERY, selectivity=0.5),)
    assert parse("when", ()) == ()
    assert parse("when", [{"ratio": "70"}, {"ratio": 100}]) == (When(ratio=70), When(ratio=100))
    of_query = {"query": QUERY, "opens": 40, "seconds": 2}
    assert parse("when", [of_query, {"skipped": "0.5"}]) == (When(QUERY, 40, 2), When(skipped=0.5))
    assert ReclusterOptions(when=(When(skipped=1),)).when == (When(skipped=1),)


AFTER = [5, "5", [], {}, {"weeks": 1}, {"days": 0}, {"rows": "many"}, {"share": 1.1}]
AFTER += [{unit: 1e308} for unit in ("hours", "days", "rows", "commits")]
WHEN: list[Any] = [
    *(
        0.9,
        [],
        {},
        [0.9],
        [[("skipped", 0.5)]],
        {"skipped": 2},
        {"ratio": 101},
        {"ratio": 70, "skipped": 0.5},
    ),
    *({"opens": 4}, {"query": "k = 3", "opens": 4}, {"skipped": 0.5, "seconds": 1}),
    *(
        {"query": QUERY, **limits}
        for limits in ({}, {"skipped": 0.5}, {"ratio": 70}, {"opens": -1}, {"x": 3}, {"selectivity": 2})
    ),
]


def test_a_value_that_is_no_condition_is_refused() -> None:
    for value in AFTER:
        with pytest.raises(OptionError, match=r"^after must be a mapping of commits, rows, .*, not "):
            parse("after", value)
    message = r"^when must be a mapping such as \{skipped: 0.9\}, .* begins with select or with .*, not "
    for value in WHEN:
        with pytest.raises(OptionError, match=message):
            parse("when", value)
