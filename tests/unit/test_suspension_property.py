"""The property of a suspension, as earlier versions wrote it and as anybody may change it."""

from __future__ import annotations

import json

import pytest

from dbt_recluster.clustering.suspension import Suspension
from dbt_recluster.iceberg.table_properties import SUSPENDED

SINCE = "2026-01-01T00:00:00+00:00"


def of(text: str) -> Suspension | None:
    return Suspension.of_table({SUSPENDED: text})


@pytest.mark.parametrize(
    "text",
    ["", SINCE, "true", "7", "null", "[]", "{}", '{"since": null}', '{"since": "x", "who": "y"}', "[" * 9999]
    + [json.dumps({"since": SINCE, "until": until}) for until in ("soon", 5, [], "")],
)
def test_a_text_that_is_no_record_suspends_without_an_end(text: str) -> None:
    """Whoever wrote it wanted no recluster."""
    suspension = of(text)
    assert suspension == Suspension(text)
    assert str(suspension) == text


def test_facts_are_texts() -> None:
    suspension = of('{"since": 1, "by": ["etl"], "until": "2999-01-01", "reason": 2}')
    assert str(suspension) == "1 by ['etl'] until 2999-01-01: 2"


def test_it_ends() -> None:
    assert of(Suspension(SINCE, until="2026-01-02").as_property()) is None
    kept = Suspension(SINCE, "etl", "2999-01-01T00:00:00+00:00", 'a "reason"')
    assert of(kept.as_property()) == kept
    assert Suspension.of_table({}) is None
