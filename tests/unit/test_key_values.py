from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from dbt_recluster.cluster_key import KeyField
from dbt_recluster.key_values import UNKNOWN, value_text


@pytest.mark.parametrize(
    ("value", "field", "spark_type", "text"),
    [
        (None, KeyField("c"), "int", "NULL"),
        (UNKNOWN, KeyField("c"), "string", "?"),
        (7, KeyField("c"), "int", "7"),
        (20000, KeyField("c", "day"), "timestamp", "2024-10-04"),
        (-1, KeyField("c", "day"), "date", "1969-12-31"),
        (661, KeyField("c", "month"), "date", "2025-02"),
        (-1, KeyField("c", "month"), "date", "1969-12"),
        (55, KeyField("c", "year"), "date", "2025"),
        (480001, KeyField("c", "hour"), "timestamp", "2024-10-04 01h"),
        (1_700_000_000_000_000, KeyField("c"), "timestamp", "2023-11-14 22:13:20"),
        (Decimal("1250"), KeyField("c", "truncate", 50), "decimal(10,2)", "12.50"),
        (b"\x01\xff", KeyField("c"), "binary", "01ff"),
        ("x" * 24, KeyField("c"), "string", "x" * 24),
        ("shipment-of-the-day-1998-12-01", KeyField("c"), "string", "shipment...ay-1998-12-01"),
    ],
)
def test_values(value: Any, field: KeyField, spark_type: str, text: str) -> None:
    assert value_text(value, field, spark_type) == text
