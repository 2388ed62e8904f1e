from __future__ import annotations

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


CURVES = st.sampled_from(["", "3fd0c7a9e112"])


@given(st.dictionaries(NUMBERS, st.integers(0, 64), max_size=60), NUMBERS, st.integers(0, 64), CURVES)
def test_levels_are_what_was_recorded(levels: dict[int, int], last: int, mean: int, curve: str) -> None:
    recorded = RecordedLevels(levels, last, mean, curve)
    assert packed(recorded) == recorded


def test_old_levels_become_a_mean_and_young_ones_stay() -> None:
    levels = {2 * n: 2 if n < 3_000 else 30 + n % 3 for n in range(1, 4_001)}
    recorded = packed(RecordedLevels(levels, curve="3fd0c7a9e112"))
    assert recorded.curve == "3fd0c7a9e112"
    assert recorded.by_number == {n: level for n, level in levels.items() if n > recorded.last_old}
    assert len(recorded.by_number) > 200
    old = [level for number, level in levels.items() if number <= recorded.last_old]
    assert abs(recorded.mean_old - sum(old) / len(old)) < 1
    assert looked_up(recorded, [2, 3, recorded.last_old, 8_001]) == [recorded.mean_old] * 3 + [-1]


@pytest.mark.parametrize("ids", [False, True], ids=["sequence numbers", "ids"])
def test_a_text_is_short_however_often_levels_are_added(ids: bool) -> None:
    """Ids, as in tables of format version 1, tell nothing of a snapshot's age: a new one may count as old."""
    draw = np.random.default_rng(1)
    recorded = packed(RecordedLevels({1_000 * n: 10 + n % 55 for n in range(1, 1_000)}))
    for commit in range(100_000, 100_300):
        number = int(draw.integers(1, 2**63 - 1) if ids else 10 * commit + draw.integers(0, 9))
        added = {number: int(draw.integers(10, 65))}
        recorded = packed(
            RecordedLevels({**recorded.by_number, **added}, recorded.last_old, recorded.mean_old)
        )
        (level,) = looked_up(recorded, [number])
        assert level == added[number] or (ids and level == recorded.mean_old)
    assert 30 < recorded.mean_old < 45
