"""The rows of new blocks as DuckDB's queries.

The table's columns are c0, c1... Constants are variables that hold Arrow arrays, so no value is written as text. Where
there is one, a block has a condition on columns too, by which DuckDB skips row groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dbt_recluster.iceberg.rewrite.file_groups import Cuts
from dbt_recluster.iceberg.rewrite.native_tasks import Statement
from dbt_recluster.key.box_tree import SHARES, BoxTree
from dbt_recluster.key.cluster_key import KeyField
from dbt_recluster.key.sql import KeySql
from dbt_recluster.key.transforms import Transform
from dbt_recluster.key.types import IntArray, column_type


@dataclass(frozen=True)
class NativeKey(KeySql):
    """A cluster key in DuckDB's SQL."""

    columns: Sequence[str] = ()
    file_name: Callable[[str], str] = str  # of a struct's field in files
    variables: dict[str, pa.Array] = field(default_factory=dict, init=False)  # that all blocks refer to

    # Alone, the number of a row in its file would be 0 in each of many files of one row.
    row: ClassVar[str] = "(getvariable('first_rows')[file_index + 1] + file_row_number)"

    def column(self, path: str) -> str:
        """Return SQL of a column or struct field."""
        name = next(name for name in self.columns if f"{path}.".startswith(f"{name}."))
        fields = path.removeprefix(name).split(".")[1:]
        return f"c{self.columns.index(name)}" + "".join(f"['{self.file_name(part)}']" for part in fields)

    def array(self, values: pa.Array, _: str) -> str:
        """Make an array a variable."""
        name = f"array_{len(self.variables)}"
        self.variables[name] = values
        return f"getvariable('{name}')"

    def searched(self, item: KeyField, boundaries: pa.Array) -> tuple[str, str]:
        """Return a column on the curve, and the array to search its values in: those of the curve are the first."""
        return self.column(item.column), self.array(self.column_starts(item, boundaries), "")

    def column_starts(self, item: KeyField, values: pa.Array) -> pa.Array:
        """Return the least values of a column at which an item reaches ``values``, NULL for NULL."""
        kind, starts = column_type(self.types[item.column]), item.transform.as_bounds(values.drop_null())
        starts = self.starts(item, starts)
        if kind.whole is not None and starts.type == kind.whole:
            starts = starts.cast(pa.timestamp("us", "UTC") if kind.text == "timestamp" else kind.arrow)
        valid = np.asarray(values.is_valid())
        return starts.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


class BlockSql:
    """The blocks of a file group as queries.

    A row is compared with the start of a block as a struct, as DuckDB does with tuples. Whether an item is valid
    precedes it: NULL is least.
    """

    def __init__(self, key: NativeKey, cuts: Cuts) -> None:
        self._key, self._cuts = key, cuts
        self.variables: dict[str, pa.Array] = {}
        if isinstance(cuts, BoxTree):
            assert key.curve is not None
            self._boxes = list(zip(*cuts.regions(key.curve.parts), strict=True))
            return
        parts = [pa.array(values, values[0].type) for values in zip(*(cut.key for cut in cuts), strict=True)]
        fields = [field for part in parts for field in (part.is_valid(), part)]
        fields.append(pa.array([round(cut.share * SHARES) for cut in cuts], pa.int32()))
        self.variables["cuts"] = pa.StructArray.from_arrays(fields, [f"f{place}" for place in range(len(fields))])
        if parts:
            self.variables["starts"] = key.column_starts(key.key.fields[0], parts[0])
        names = (f"{name} is not null, {name}" for name in [*key.order][: len(parts)])
        self._row = f"row({', '.join([*names, key.share])})"
        self._is_single = len(parts) == 1 and not any(cut.share for cut in cuts)

    def statement(self, first: int, end: int, directories: tuple[str, ...]) -> Statement:
        """Return the query of the blocks from one to before another."""
        if isinstance(self._cuts, BoxTree):
            boxes = [self._box(*self._boxes[number]) for number in range(first, end)]
            cases = " ".join(f"when {box} then {place}" for place, box in enumerate(boxes))
            any_box = " or ".join(f"({box})" for box in boxes)
            return Statement(any_box, f"case {cases} end" if len(boxes) > 1 else None, directories)
        least, most = (first - 1 if first else None), (end - 1 if end <= len(self._cuts) else None)
        exact = [] if least is None else [self._reached(least)]
        exact += [] if most is None else [f"not {self._reached(most)}"]
        if least is not None and not self._cuts[least].key[0].is_valid:
            least = None
        item = self._key.key.fields[0]
        if self._is_single:  # the column decides
            where = self._range(0, "starts", least, most, "<")
        elif item.transform == Transform():
            where = [*self._range(0, "starts", least, most, "<="), *exact]
        else:  # rows from a start on may have the values of an item before it
            where = [*self._range(0, "starts", least, None), *exact]
        inner = [f"({self._reached(cut)})::int" for cut in range(first, end - 1)]
        return Statement(" and ".join(where) or "true", " + ".join(inner) or None, directories)

    def _box(self, lower: IntArray, upper: IntArray) -> str:
        """Return the condition of a box: the values that its ranks stand for."""
        assert self._key.curve is not None
        last, conditions = self._key.curve.parts - 1, list[str]()
        for place, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
            conditions += self._range(place, f"array_{place}", low - 1 if low else None, high if high < last else None)
        return " and ".join(conditions) or "true"

    def _range(self, place: int, starts: str, least: int | None, most: int | None, below: str = "<") -> list[str]:
        """Return conditions of an item's column, by which row groups are skipped, given the numbers of its starts."""
        column = self._key.column(self._key.key.fields[place].column)
        conditions = [] if least is None else [f"{column} >= {_value(starts, least)}"]
        if most is not None:
            end = f"{column} {below} {_value(starts, most)}"
            conditions.append(f"({end} or {column} is null)" if least is None else end)
        return conditions

    def _reached(self, number: int) -> str:
        """Return whether a row is at or above a cut."""
        return f"{self._row} >= {_value('cuts', number)}"


def _value(name: str, place: int) -> str:
    return f"getvariable('{name}')[{place + 1}]"
