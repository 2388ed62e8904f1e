"""Columns of benchmarks/curves.py whose boundaries are recorded: the hardest ones have no order in their bits."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa


def samples(random: np.random.Generator, rows: int) -> dict[str, pa.Array]:
    """Samples of columns of several types."""
    uuids = [str(uuid.UUID(bytes=random.bytes(16))) for _ in range(rows)]
    words = [
        f"https://www.example.com/{random.integers(0, 200)}/article-{random.integers(0, 10**6)}.html"
        for _ in range(rows)
    ]
    days = [dt.date(1992, 1, 1) + dt.timedelta(int(day)) for day in random.integers(0, 2_526, rows)]
    large = [Decimal(int.from_bytes(random.bytes(15), "big")) for _ in range(rows)]
    return {
        "bigint, random": pa.array(random.integers(-(1 << 62), 1 << 62, rows)),
        "bigint, Zipf": pa.array(np.minimum(random.zipf(1.3, rows), 1 << 40)),
        "int, a sequence": pa.array(random.integers(0, 6_000_000, rows), pa.int32()),
        "date, seven years": pa.array(days),
        "timestamp, microseconds": pa.array(
            random.integers(1_600_000_000_000_000, 1_700_000_000_000_000, rows)
        ),
        "double, normal": pa.array(random.normal(size=rows)),
        "decimal(38), random": pa.array(large, pa.decimal128(38, 0)),
        "uuid as text": pa.array(uuids),
        "URLs": pa.array(words),
        "binary, random": pa.array([random.bytes(16) for _ in range(rows)]),
        "three values": pa.array(random.integers(0, 3, rows)),
        "text of 2,000 equal characters first": pa.array(["x" * 2_000 + text for text in uuids]),
    }
