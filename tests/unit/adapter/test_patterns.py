from __future__ import annotations

import pytest

from dbt_recluster.adapter.relations.catalogs import names_like

NAMES = ["events_2025", "Events_2026", "eventsx2026", "users", "50%", "a.c", "a\\c"]


@pytest.mark.parametrize(
    ("pattern", "exclude", "expected"),
    [
        ("%", "", sorted(NAMES)),
        ("events%", "", ["Events_2026", "events_2025", "eventsx2026"]),
        ("EVENTS_202_", "%2025", ["Events_2026", "eventsx2026"]),
        (r"events\_%", "", ["Events_2026", "events_2025"]),
        (r"%\%", "", ["50%"]),
        ("a.c", "", ["a.c"]),
        (r"a\\c", "", ["a\\c"]),
        ("a_c", "a.%", ["a\\c"]),
        ("user", "", []),
        ("", "", []),
        ("users", "%", []),
    ],
)
def test_names_like(pattern: str, exclude: str, expected: list[str]) -> None:
    assert names_like(NAMES, pattern, exclude) == expected
