from __future__ import annotations

from dbt_recluster.clustering.table import RecentlyUsed


def test_what_was_used_last_is_kept() -> None:
    kept: RecentlyUsed[int, list[int]] = RecentlyUsed(10, len)
    read = []
    for key in (1, 2, 1, 3, 1, 2):
        value = kept.get(key)
        if value is None:
            read.append(key)
            value = [key] * 4
            kept.put(key, value)
        assert value == [key] * 4
    assert read == [1, 2, 3, 2]


def test_more_than_all_is_not_kept() -> None:
    kept: RecentlyUsed[int, list[int]] = RecentlyUsed(10, len)
    kept.put(1, [1] * 11)
    assert kept.get(1) is None
    kept.put(2, [2] * 10)
    assert kept.get(2) == [2] * 10


def test_a_new_value_takes_the_place_of_the_old_one() -> None:
    kept: RecentlyUsed[int, list[int]] = RecentlyUsed(10, len)
    kept.put(1, [1] * 6)
    kept.put(2, [2] * 4)
    kept.put(1, [])
    kept.put(3, [3] * 6)
    assert (kept.get(1), kept.get(2), kept.get(3)) == ([], [2] * 4, [3] * 6)
    kept.put(2, [2] * 5)  # 1 was used least recently, but 3 has to go too
    assert (kept.get(1), kept.get(2), kept.get(3)) == (None, [2] * 5, None)
