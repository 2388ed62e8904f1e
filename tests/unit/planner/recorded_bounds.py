"""Tables of real rows of compound keys, of which the planner is told what a table format records of their columns."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from block_tables import Block, rounds

from dbt_recluster.planner import Blocks, Policy

URL = "https://www.example.com/"

# Values of each type, ascending; a key holds their positions, and -1 for NULL.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), list(range(0, 24, 2))),
    "float": (pa.float64(), [-2.5, -0.0, 0.5, 1.0, 2.0, 3.0, 4.5, 9.0, 11.0, 12.0, 13.0, float("nan")]),
    "url": (pa.string(), [URL + letter for letter in "abcdefghijkl"]),
    "text": (
        pa.string(),
        ["a", "b", "c", *(URL + letter for letter in "abcd"), "x", "y", "z" * 20, "\U0010ffff" * 18],
    ),
    "binary": (pa.binary(), [b"\xff" * n + bytes([i]) for n in (17, 20) for i in range(6)]),
    "date": (pa.date32(), [dt.date(2024, 1, day) for day in range(1, 13)]),
    "time": (pa.timestamp("us"), [dt.datetime(2024, 1, 1, microsecond=300 * i) for i in range(12)]),
    "decimal": (pa.decimal128(10, 2), [Decimal(i) / 4 for i in range(12)]),
    "boolean": (pa.bool_(), [False, True]),
    "many": (pa.string(), [f"prefix-{i // 5:09d}-{i % 5}" for i in range(400)]),
}
# Whole bounds; cut off after 16 characters or bytes, as Iceberg does; rounded outwards; none; no upper bound.
RECORDED = ("whole", "cut", "rounded", "missing", "half")

Key = tuple[int, ...]


@dataclass(frozen=True)
class Column:
    kind: str
    recorded: str

    def bounds(self, places: Sequence[int]) -> tuple[Any, Any, bool]:
        """The lower and the upper bound of these values, and whether the upper one is unknown."""
        values = TYPES[self.kind][1]
        known = [place for place in places if place >= 0]
        if self.recorded == "missing":
            return None, None, True
        if not known:
            return None, None, False
        numbers = [place for place in known if values[place] == values[place]]
        nan = len(numbers) < len(known)
        if self.recorded == "rounded" and numbers:
            greatest = len(values) - 1 - (values[-1] != values[-1])
            numbers = [min(numbers) // 3 * 3, min(-(-max(numbers) // 3) * 3, greatest)]
        lower, upper = (values[min(numbers)], values[max(numbers)]) if numbers else (values[-1], values[-1])
        if self.recorded == "cut" and isinstance(lower, str | bytes):
            lower, upper = lower[:16], upper if len(upper) <= 16 else _rounded_up(upper[:16])
        if nan:
            upper = values[-1]
        unknown = upper is None or self.recorded == "half"
        return None if len(known) < len(places) else lower, None if unknown else upper, unknown


def _rounded_up(prefix: Any) -> Any:
    """The least text or bytes above all that begin so, or None if there is none."""
    greatest = "\U0010ffff" if isinstance(prefix, str) else b"\xff"
    stem = prefix.rstrip(greatest)
    if not stem:
        return None
    return stem[:-1] + (chr(ord(stem[-1]) + 1) if isinstance(stem, str) else bytes([stem[-1] + 1]))


def describe(table: Sequence[Block], columns: Sequence[Column]) -> Blocks:
    """Describe a table to the planner, as its columns' bounds do."""
    bounds = [
        [column.bounds([key[place] for key in block.keys]) for block in table] for place, column in enumerate(columns)
    ]
    kinds = [TYPES[column.kind][0] for column in columns]
    return Blocks.build(
        [pa.array([low for low, _, _ in of], kind) for of, kind in zip(bounds, kinds, strict=True)],
        [pa.array([high for _, high, _ in of], kind) for of, kind in zip(bounds, kinds, strict=True)],
        rows=[len(block.keys) for block in table],
        bytes=[10 * len(block.keys) for block in table],
        level=[block.level for block in table],
        run=[block.run for block in table],
        unbounded=[np.array([unknown for _, _, unknown in of], bool) for of in bounds],
    )


def cut_evenly(keys: list[Key], block_rows: int) -> list[tuple[Key, ...]]:
    """Cut sorted keys into blocks of nearly the same size; equal keys may come apart."""
    parts = np.array_split(np.arange(len(keys)), -(-len(keys) // block_rows))
    return [tuple(keys[i] for i in part) for part in parts]


def rows_rewritten(table: list[Block], columns: Sequence[Column], policy: Policy, most: int) -> int:
    """Repeat plan and merge, at most so often, and return the rows that all rounds rewrite."""
    steps = rounds(table, policy, partial(describe, columns=columns), cut_evenly, most)
    return sum(planned.rows for _, planned in steps)
