"""Names of tables: what is written is what is read, and what Spark resolves is what matches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.exceptions import OptionError
from dbt_recluster.names import NameResolution, join_parts, name_parts


@pytest.mark.parametrize(
    "name",
    [
        *("an.other, an.events", "an.events; drop table an.other", "foo-an.events", "events.*", "an events"),
        *("", " ", ".", "an.", ".events", "an..events", "``", "`an.events", "`an``.events", "a`n`.events"),
        *("an.`events`x", "an.events\0", "an.events--", 'an."events"', None, 7, ["an.events"]),
    ],
)
def test_a_text_that_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(OptionError, match="is not the name of a table: its parts are joined by dots"):
        name_parts(name)


PART = st.text(min_size=1, max_size=5) | st.sampled_from(["an", "`", "a.b", "``", "-"])


@given(st.lists(PART, min_size=1, max_size=4))
def test_a_name_that_is_written_is_read_again(parts: list[str]) -> None:
    assert list(name_parts(join_parts(parts))) == parts


# Two catalogs may differ in case only, and a namespace may be called like a catalog.
NAMES = st.lists(
    st.sampled_from(["an", "AN", "lake", "Lake", "t", "spark_catalog", "SPARK_CATALOG"]),
    min_size=2,
    max_size=4,
).map(tuple)


@given(
    one=NAMES,
    other=NAMES,
    catalogs=st.dictionaries(st.sampled_from(["lake", "Lake", "an"]), st.booleans()),
    data=st.data(),
)
def test_names_match_if_spark_resolves_them_to_one_table(
    one: tuple[str, ...], other: tuple[str, ...], catalogs: dict[str, bool], data: Any
) -> None:
    """``catalogs`` tells which of them take upper and lower case for different."""
    catalogs["spark_catalog"] = False
    current = data.draw(st.sampled_from(sorted(catalogs)))

    def catalog(name: str) -> str | None:
        found = name.lower() if name.lower() == "spark_catalog" else name
        return found if found in catalogs else None

    def resolve(parts: tuple[str, ...]) -> tuple[str, ...]:
        first = catalog(parts[0])
        where, rest = (first, parts[1:]) if first else (current, parts)
        return where, *(rest if catalogs[where] else (part.lower() for part in rest))

    names = NameResolution(
        lambda: current,
        lambda name: catalog(name) is not None,
        lambda a, b: resolve(name_parts(a)) == resolve(name_parts(b)),
    )
    assert names.is_same(one, other) == (resolve(one) == resolve(other))
    assert names.is_same(one, other) == names.is_same(other, one)
