from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.iceberg import table_properties
from dbt_recluster.iceberg.recorded_levels import RecordedLevels

NUMBERS = st.integers(1, 2**63 - 1)


def packed(levels: RecordedLevels) -> RecordedLevels:
    text = levels.packed()
    assert len(text) <= table_properties.LEVELS.longest
    return RecordedLevels.of({table_properties.LEVELS: text})


def looked_up(levels: RecordedLevels, numbers: list[int]) -> list[int]:
    return levels.look_up(np.array(numbers, dtype=np.int64)).tolist()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("levels", {"0": text})
            for text in ("x", "K C", "5", "\u00c9", 5, "dsqyomtlwmkgiI", "b" * 100_000 + "B")
        ),
        *(("levels", value) for value in ({"x": "F"}, {"-1": "F"}, ["F"], None)),
        *(("old", value) for value in ([5], [-5, 1], [2**63, 1], [float("inf"), 1], 5)),
    ],
)
def test_a_malformed_property_is_ignored(name: str, value: Any) -> None:
    good = {"old": [5, 1], "levels": {"3": "KC"}}
    recorded = RecordedLevels.of({table_properties.LEVELS: json.dumps(good)})
    assert looked_up(recorded, [0, 4, 6, 10, 12]) == [-1, 1, -1, 3, 3]
    assert RecordedLevels.of({table_properties.LEVELS: json.dumps({**good, name: value})}) == RecordedLevels()


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", "[" * 100_000, "{}"])
def test_a_text_that_records_nothing(text: str) -> None:
    assert RecordedLevels.of({table_properties.LEVELS: text}) == RecordedLevels()


@given(st.dictionaries(NUMBERS, st.integers(0, 64), max_size=60), NUMBERS, st.integers(0, 64))
def test_levels_are_what_was_recorded(levels: dict[int, int], last_old: int, mean_old: int) -> None:
    recorded = RecordedLevels(levels, last_old, mean_old)
    assert packed(recorded) == recorded


def test_levels_of_a_curve_say_so() -> None:
    recorded = RecordedLevels({7: 2}, 5, 1, "3fd0c7a9e112")
    assert packed(recorded) == recorded
    assert "curve" not in RecordedLevels({7: 2}).packed()
    young = packed(RecordedLevels({2 * n: 30 + n % 3 for n in range(1, 4_001)}, curve=recorded.curve))
    assert (young.curve, young.last_old > 0) == (recorded.curve, True)
    strange = RecordedLevels.of(
        {table_properties.LEVELS: '{"old":[5,1],"levels":{},"curve":["' + "x" * 9_000 + '"]}'}
    )
    assert len(strange.packed()) < 100


def test_old_levels_become_a_mean_and_young_ones_stay() -> None:
    levels = {2 * n: 2 if n < 3_000 else 30 + n % 3 for n in range(1, 4_001)}
    recorded = packed(RecordedLevels(levels))
    assert recorded.by_number == {n: level for n, level in levels.items() if n > recorded.last_old}
    assert len(recorded.by_number) > 200
    old = [level for number, level in levels.items() if number <= recorded.last_old]
    assert abs(recorded.mean_old - sum(old) / len(old)) < 1
    assert looked_up(recorded, [2, 3, recorded.last_old, 8_001]) == [recorded.mean_old] * 3 + [-1]


@pytest.mark.thorough
@pytest.mark.parametrize("ids", [False, True], ids=["sequence numbers", "ids"])
def test_a_text_is_short_however_often_levels_are_added(ids: bool) -> None:
    """Ids, as in tables of format version 1, tell nothing of a snapshot's age: a new one may count as old."""
    draw = np.random.default_rng(1)
    recorded = RecordedLevels()
    for commit in range(1, 3_000):
        number = int(draw.integers(1, 2**63 - 1) if ids else 10 * commit + draw.integers(0, 9))
        added = {number: int(draw.integers(10, 65))}
        recorded = packed(
            RecordedLevels({**recorded.by_number, **added}, recorded.last_old, recorded.mean_old)
        )
        (level,) = looked_up(recorded, [number])
        assert level == added[number] or (ids and level == recorded.mean_old)
    assert 30 < recorded.mean_old < 45
