"""The decision of ``cluster_by: auto``, without a table."""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from math import log2

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from dbt_recluster.advice.auto_key import DAYS, MARGIN, AutoKey, Comparison, KeyCosts, compare_keys

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
BYTES = st.floats(0, 1e12)
COSTS = st.lists(st.tuples(BYTES, BYTES, BYTES), min_size=1, max_size=4)


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(1, 10**9), st.floats(1e-9, 1e9), COSTS), max_size=60))
def test_the_key_changes_at_most_once_for_each_doubling(
    steps: Sequence[tuple[float, int, float, Sequence[tuple[float, float, float]]]],
) -> None:
    state, now, changes = AutoKey(), START, list[AutoKey]()
    for days, rows, a_day, costs in steps:
        now += timedelta(days=days)
        if not state.waits(now, rows, a_day):
            keys = [KeyCosts(f"k{number}", *of) for number, of in enumerate(costs)]
            found = compare_keys(KeyCosts("", 2e12), keys)
            state = AutoKey.from_properties({"recluster.auto_key": state.compared(now, rows, a_day, found).text()})
            changes += [state] if found.pays else []
    for before, after in pairwise(changes):
        assert after.rows >= 2 * before.rows or after.reads >= 2 * before.reads
    if changes:
        first, last = changes[0], changes[-1]
        assert len(changes) <= 1 + log2(last.rows / first.rows) + log2(last.reads / first.reads) + 1e-9


def test_a_damaged_record_counts_as_none() -> None:
    found = Comparison(KeyCosts("k", 1.0), 1e9, 1.0)
    whole = AutoKey().compared(START, 10, 1.0, found).text()
    assert AutoKey.from_properties({"recluster.auto_key": whole}).choices[0].key == "k"
    for part, damaged in (('"reads":1.0', '"reads":Infinity'), ('"saved":1', '"saved":{},"x":1'), ('"k"', '"k; drop"')):
        assert AutoKey.from_properties({"recluster.auto_key": whole.replace(part, damaged)}) == AutoKey()


@given(BYTES, COSTS)
def test_a_key_that_was_chosen_is_kept_while_the_reads_stay(
    opened: float, costs: Sequence[tuple[float, float, float]]
) -> None:
    keys = [KeyCosts(str(number), *of) for number, of in enumerate(costs)]
    found = compare_keys(KeyCosts("", opened), keys)
    assert found.pays == (found.saved > MARGIN * found.rewritten)
    if found.pays:
        own = found.best._replace(first=0.0)
        assert not compare_keys(own, [own if key == found.best else key for key in keys]).pays


def test_the_first_of_about_equal_keys_and_what_its_upkeep_costs() -> None:
    found = compare_keys(KeyCosts("", 100.0), [KeyCosts("a", 10.1, 1.0, 50.0), KeyCosts("a, b", 10.0, 1.0, 50.0)])
    assert found == Comparison(KeyCosts("a", 10.1, 1.0, 50.0), DAYS * 89.9, 50.0 + DAYS)


def drifting(begin: Sequence[float], end: Sequence[float], a_day: float, backlog: float) -> float:
    """Return what a month costs, relative to the best fixed key in hindsight.

    Reads drift evenly from shares of those for each key to others; a read opens a twentieth of the table by its own key
    and all of it by another. Each day loads 1; the default threshold rewrites 1.5 for that.
    """
    state, own, cost = AutoKey(), -1, 0.0
    mixes = np.linspace(np.array(begin) / sum(begin), np.array(end) / sum(end), DAYS)
    fixed = np.full(len(begin), backlog + 1.5 * DAYS)
    for day, mix in enumerate(mixes):
        size, now = backlog + day + 1, START + timedelta(days=day)
        opened = a_day * size * (1 - 0.95 * mix)
        if not state.waits(now, int(1000 * size), a_day):
            keys = [KeyCosts(str(key), of, 1.5, size * (key != own)) for key, of in enumerate(opened.tolist())]
            found = compare_keys(KeyCosts("", a_day * size) if own < 0 else keys[own], keys)
            state = state.compared(now, int(1000 * size), a_day, found)
            if found.pays:
                own, cost = int(found.best.key), cost + size
        cost += a_day * size if own < 0 else opened[own] + 1.5
        fixed += opened
    return float(cost / fixed.min())


SHARES = st.lists(st.floats(0.01, 1), min_size=3, max_size=3)


@given(SHARES, SHARES, st.floats(-2, 3), st.sampled_from([0.0, 5.0, 100.0]))
@example([1, 0, 0], [0, 1, 0], 2, 0.0)
def test_drifting_reads_cost_at_most_twice_the_best_key_in_hindsight(
    begin: Sequence[float], end: Sequence[float], power: float, backlog: float
) -> None:
    assert drifting(begin, end, 10**power, backlog) <= 2
