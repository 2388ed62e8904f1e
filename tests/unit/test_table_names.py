"""Names of tables: what is written is what is read, and what Spark resolves is what matches."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.exceptions import OptionError
from dbt_recluster.names import join_parts, name_parts


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
