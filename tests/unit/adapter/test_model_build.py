"""The texts of a build: queries put into others, values of a seed."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.adapter.connections.handles import SessionHandle
from dbt_recluster.adapter.impl import ReclusterAdapter, ReclusterRelation
from dbt_recluster.adapter.model_build import without_end

QUERIES = (
    "select 1 as k",
    "select ';' as k",
    "select 'it\\'s; -- ' as k",
    'select "/*;" as k',
    "select r'\\' as k",
    "select 1 as `;--`",
    "select 1 /* ; */ as k",
    "select 1 -- ;\nas k",
    "select 8 - -1 / 2 as k",
    "select car'x' as k",
)
ENDS = st.lists(st.sampled_from([";", " ", "\n", "-- it's;\n", "/* ; ' */"]), max_size=6).map("".join)


@pytest.mark.parametrize("query", QUERIES)
@given(end=ENDS)
def test_an_end_is_left_out_and_nothing_else(query: str, end: str) -> None:
    assert without_end(query + end) == query


@given(st.text(alphabet="a'\"`;-/*\\ \nr", max_size=30))
def test_what_is_left_out_is_no_part_of_a_query(query: str) -> None:
    kept = without_end(query)
    assert query.startswith(kept)
    assert without_end(kept) == kept
    assert not query[len(kept) :].strip(" \n") or query[len(kept) :].lstrip(" \n")[0] in ";-/"


def test_macros_that_dbt_parses_learn_nothing_and_ask_nothing() -> None:
    """Macros in hooks are parsed before there is a connection."""
    build = ReclusterAdapter._parse_replacements_["current_build"]()
    table = ReclusterRelation.create(database="lake", schema="s", identifier="t")
    assert {build.sorted_query("select 1 as k", is_load) for is_load in (False, True)} == {"select 1 as k"}
    assert (build.replacement.beside(table), build.creation_properties()) == (None, {})
    assert not build.replacement.takes_drop(table)
    assert not build.schema_changes
    build.set_clustering()
    build.check_new_types(table)


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (None, "null"),
        (True, "true"),
        (9007199254740993, "9007199254740993"),
        (Decimal("1234567890.123456789"), "1234567890.123456789"),
        (1.5, "1.5"),
        ("it's", r"'it\'s'"),
        ("back\\slash", r"'back\\slash'"),
        (dt.date(2026, 1, 2), "'2026-01-02'"),
        (dt.datetime(2026, 1, 2, 3, 4, 5, 678901), "'2026-01-02 03:04:05.678901'"),
    ],
)
def test_each_value_of_a_seed_has_its_literal(value: Any, literal: str) -> None:
    assert SessionHandle._fix_binding(value) == literal
