"""Workloads of benchmarks/curves.py: the columns of a key, row by row in the order of their arrival."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
from curve_layout import IntArray

DOMAIN = 1 << 20


def uniform(random: np.random.Generator, rows: int, dimensions: int, _: int) -> list[IntArray]:
    """Independent columns, evenly spread."""
    return [random.integers(0, DOMAIN, rows) for _ in range(dimensions)]


def skewed(random: np.random.Generator, rows: int, dimensions: int, _: int) -> list[IntArray]:
    """Independent columns by Zipf's law: the first value has a quarter of the rows, in the next column a third."""
    return [np.minimum(random.zipf(1.3 + 0.1 * place, rows), DOMAIN) for place in range(dimensions)]


def correlated(random: np.random.Generator, rows: int, dimensions: int, _: int) -> list[IntArray]:
    """All columns follow the first, up to a deviation of a twentieth of the domain."""
    first = random.random(rows)
    return [
        (np.clip(first + (place > 0) * random.normal(0, 0.05, rows), 0, 1) * (DOMAIN - 1)).astype(np.int64)
        for place in range(dimensions)
    ]


def in_order(random: np.random.Generator, rows: int, dimensions: int, loads: int) -> list[IntArray]:
    """The first column is time, and each load brings its own; the others are evenly spread."""
    time = np.floor(np.arange(rows) * loads / rows) + random.random(rows)
    return [(time * 1_000).astype(np.int64), *uniform(random, rows, dimensions - 1, loads)]


WORKLOADS: dict[str, Callable[[np.random.Generator, int, int, int], list[IntArray]]] = {
    "uniform": uniform,
    "skewed": skewed,
    "correlated": correlated,
    "in order": in_order,
}


def lineitem(directory: Path, scale: float, *columns: str) -> list[IntArray]:
    """Columns of TPC-H's lineitem, in the order of l_orderkey, in which it is generated; dates in days."""
    import pyarrow.parquet as pq

    path = directory / f"sf{scale:g}" / "lineitem.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        generator = Path(sys.executable).with_name("tpchgen-cli")
        arguments = ["parquet", "-s", f"{scale:g}", "--tables", "lineitem", "--output-dir", str(path.parent)]
        subprocess.run([str(generator), *arguments], check=True, capture_output=True)
    table = pq.read_table(path, columns=list(columns))
    return [table[column].to_numpy().astype("int64", copy=False).astype(np.int64) for column in columns]


def samples(random: np.random.Generator, rows: int) -> dict[str, pa.Array]:
    """Columns whose boundaries are recorded, of several types: the hardest ones have no order in their bits."""
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
