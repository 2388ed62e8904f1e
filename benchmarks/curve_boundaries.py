"""Boundaries of benchmarks/curves.py as text for a property of the table: short ones, of any type.

Numbers, dates and times are whole numbers here, floats by the order of their bits, and text and binary are bytes. Any
value between two rows of a sample cuts there as well as the row does. So the shortest one is taken: the number with
most trailing zero bits, the shortest prefix.
"""

from __future__ import annotations

import base64
import uuid
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from curve_layout import IntArray

MOST_CHARACTERS = 3_900
# A boundary may lie this share of a part beside its place.
_TOLERANCE = 0.125


def boundaries(sample: Sequence[int] | Sequence[bytes], parts: int) -> list[int] | list[bytes]:
    """Cut a sorted sample into equal parts: ascending boundaries, one less than parts. Equal ones repeat."""
    last = len(sample) - 1
    ends = []
    for part in range(1, parts):
        low = sample[max(0, round((part - _TOLERANCE) * len(sample) / parts) - 1)]
        high = sample[min(last, round((part + _TOLERANCE) * len(sample) / parts))]
        ends.append(shortest(low, high))
    return ends


def shortest(low: int | bytes, high: int | bytes) -> int | bytes:
    """The shortest value above ``low`` and not above ``high``, or both where they are equal."""
    if low == high:
        return high
    if isinstance(low, bytes):
        length = next(n for n in range(1, len(high) + 1) if high[:n] > low)
        return high[:length]
    zeros = (low ^ high).bit_length() - 1
    return (high >> zeros) << zeros


def encode(ends: Sequence[int] | Sequence[bytes]) -> str:
    """Write ascending boundaries: each as the difference from the one before, compressed."""
    if isinstance(ends[0], bytes):
        data = b"".join(_shared_prefixes(ends))
    else:
        common = 0
        for end in ends:
            common |= end
        zeros = (common & -common).bit_length() - 1 if common else 0
        steps = [
            ends[0] >> zeros,
            *((after - before) >> zeros for before, after in pairwise(ends)),
        ]
        data = bytes([zeros]) + b"".join(map(_varint, [abs(steps[0]) * 2 + (steps[0] < 0), *steps[1:]]))
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _shared_prefixes(ends: Sequence[bytes]) -> Iterator[bytes]:
    before = b""
    for end in ends:
        shared = next(
            (n for n, (a, b) in enumerate(zip(before, end, strict=False)) if a != b),
            min(len(before), len(end)),
        )
        yield _varint(shared) + _varint(len(end) - shared) + end[shared:]
        before = end


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def samples(random: np.random.Generator, rows: int) -> dict[str, list[int] | list[bytes]]:
    """Sorted samples of columns of several types, the hardest ones without any order in their bits."""

    def numbers(values: IntArray) -> list[int]:
        return np.sort(values).tolist()

    def text(values: list[str]) -> list[bytes]:
        return sorted(value.encode() for value in values)

    double = np.abs(random.normal(size=rows)).view(np.int64)
    words = [
        f"https://www.example.com/{random.integers(0, 200)}/article-{random.integers(0, 10**6)}.html"
        for _ in range(rows)
    ]
    return {
        "bigint, random": numbers(random.integers(-(1 << 62), 1 << 62, rows)),
        "bigint, Zipf": numbers(np.minimum(random.zipf(1.3, rows), 1 << 40)),
        "int, a sequence": numbers(random.integers(0, 6_000_000, rows)),
        "date, seven years": numbers(random.integers(8_036, 10_562, rows)),
        "timestamp, microseconds": numbers(
            random.integers(1_600_000_000_000_000, 1_700_000_000_000_000, rows)
        ),
        "double, normal": numbers(double),
        "decimal(38), random": sorted(int.from_bytes(random.bytes(15), "big") for _ in range(rows)),
        "uuid as text": text([str(uuid.UUID(bytes=random.bytes(16))) for _ in range(rows)]),
        "URLs": text(words),
        "binary, random": sorted(random.bytes(16) for _ in range(rows)),
        "three values": numbers(random.integers(0, 3, rows)),
        "text of 2,000 equal characters first": text(
            ["x" * 2_000 + str(uuid.UUID(bytes=random.bytes(16))) for _ in range(rows)]
        ),
    }
