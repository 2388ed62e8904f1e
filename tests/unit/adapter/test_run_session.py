from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from dbt_recluster.adapter.session import SessionHandle


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
def test_values_of_a_seed_as_literals(value: Any, literal: str) -> None:
    assert SessionHandle._fix_binding(value) == literal
