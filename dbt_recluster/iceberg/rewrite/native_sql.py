"""Keys and the rows of blocks as DuckDB's SQL, in which a table's columns are c0, c1... and the key's items k0, k1...

A condition names its constants by variables, which hold Arrow arrays: no value is written as text. Each block has a
condition on columns too, where there is one, by which DuckDB skips row groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dbt_recluster.iceberg.rewrite.key_sql import (
    BlockStart,
    Cuts,
    KeyDialect,
    column_starts,
    place_steps,
    share_sql,
)
from dbt_recluster.iceberg.rewrite.native_tasks import Statement
from dbt_recluster.key.box_tree import SHARES, BoxTree
from dbt_recluster.key.cluster_key import ClusterKey, KeyField
from dbt_recluster.key.columns import Columns
from dbt_recluster.key.curve import Curve, IntArray
from dbt_recluster.key.transforms import Span, Transform

# Functions of Spark that the SQL of keys uses.
MACROS = (
    "get(items, place) as items[place + 1]",
    "shiftleft(a, b) as a << b",
    "shiftright(a, b) as a >> b",
    "unix_date(day) as day - date '1970-01-01'",
    "unix_micros(ts) as epoch_us(ts)",
)


@dataclass(frozen=True)
class NativeKey(KeyDialect):
    """A cluster key in DuckDB's SQL."""

    key: ClusterKey
    curve: Curve | None
    columns: Columns
    file_name: Callable[[str], str]  # of a struct's field in files
    variables: dict[str, pa.Array] = field(default_factory=dict, init=False)  # that all blocks refer to

    def column(self, path: str) -> str:
        """Return SQL of a column or struct field."""
        name = next(name for name in self.columns.names if f"{path}.".startswith(f"{name}."))
        fields = path[len(name) + 1 :].split(".") if len(path) > len(name) else []
        quoted = (f"'{self.file_name(part)}'" for part in fields)
        return f"c{self.columns.names.index(name)}" + "".join(f"[{part}]" for part in quoted)

    def array(self, values: pa.Array, _: str) -> str:
        """Make an array a variable."""
        name = f"array_{len(self.variables)}"
        self.variables[name] = values
        return f"getvariable('{name}')"

    def item(self, item: KeyField) -> str | None:
        """Return SQL of a key item, or None if DuckDB has none in the order of Spark."""
        return item.transform.duckdb_sql(self.column(item.column), self.columns.types[item.column])

    def steps(self) -> list[list[str]]:
        """Return columns as SQL, each step by those before: key items, a row's share, its place on the curve."""
        items = [f"{self.item(item)} as k{place}" for place, item in enumerate(self.key.fields)]
        steps = [[*items, f"{share_sql('file_row_number')} as share"]]
        if self.curve is not None:
            steps += place_steps(self.curve, self.key, self.columns.types, "place", self)
        return steps

    @property
    def order(self) -> list[str]:
        """The columns that rows are sorted by."""
        names = [f"k{place}" for place in range(len(self.key.fields))]
        if self.curve is not None:
            names.insert(len(self.key.leading), "place")
        return names

    def starts(self, item: KeyField, values: pa.Array) -> pa.Array:
        """Return the least values of the column at which an item reaches ``values``, NULL for NULL."""
        spark_type = self.columns.types[item.column]
        known = column_starts(item, spark_type, item.transform.as_bounds(values.drop_null()))
        valid = np.asarray(values.is_valid())
        place = pa.array(np.cumsum(valid) - 1, mask=~valid)
        starts = known.take(place)
        if spark_type.startswith("timestamp"):
            return starts.cast(pa.timestamp("us", "UTC" if spark_type == "timestamp" else None))
        return starts.cast(pa.date32()) if spark_type == "date" else starts


class BlockSql:
    """The blocks of a file group as queries."""

    def __init__(self, key: NativeKey, cuts: Cuts) -> None:
        self._key = key
        self.variables: dict[str, pa.Array] = {}
        self._boxes: list[tuple[IntArray, IntArray]] | None = None
        self._cuts: Sequence[BlockStart] = ()
        items = key.key.fields
        if isinstance(cuts, BoxTree):
            assert key.curve is not None
            for place, (item, ends) in enumerate(zip(items, key.curve.boundaries, strict=True)):
                self.variables[f"starts_{place}"] = key.starts(item, ends)
            self._boxes = list(zip(*cuts.regions(key.curve.parts), strict=True))
            return
        self._cuts = cuts
        self._shared = any(cut.share for cut in cuts)
        for place, item in enumerate(items[: len(cuts[0].key) if cuts else 0]):
            values = pa.array([cut.key[place] for cut in cuts], cuts[0].key[place].type)
            # Spark's results of spans are dates and ints.
            is_span = isinstance(item.transform, Span)
            self.variables[f"cuts_{place}"] = item.transform.as_bounds(values) if is_span else values
            if not place and item.transform != Transform():
                self.variables["starts_0"] = key.starts(item, values)

    def statement(self, first: int, end: int, directories: tuple[str, ...]) -> Statement:
        """Return the query of the blocks from one to before another."""
        if self._boxes is not None:
            boxes = [self._condition(*self._boxes[number]) for number in range(first, end)]
            if len(boxes) == 1:
                return Statement(boxes[0], None, directories)
            cases = " ".join(f"when {box} then {place}" for place, box in enumerate(boxes))
            return Statement(" or ".join(f"({box})" for box in boxes), f"case {cases} end", directories)
        conditions = [self._at_or_above(first - 1)] if first else []
        if end <= len(self._cuts):
            conditions.append(self._below(end - 1, bool(first) and self._cuts[first - 1].key[0].is_valid))
        inner = [f"coalesce({self._reached(cut)}, false)::int" for cut in range(first, end - 1)]
        return Statement(" and ".join(conditions) or "true", " + ".join(inner) or None, directories)

    def _condition(self, lower: IntArray, upper: IntArray) -> str:
        """Return the condition of a box: the values that its ranks stand for."""
        assert self._key.curve is not None
        conditions = []
        for place, (low, high) in enumerate(zip(lower, upper, strict=True)):
            column = self._key.column(self._key.key.fields[place].column)
            name = f"starts_{place}"
            if low:
                conditions.append(f"{column} >= {_value(name, low - 1)}")
            if high + 1 < self._key.curve.parts:
                below = f"{column} < {_value(name, high)}"
                conditions.append(below if low else f"({below} or {column} is null)")
        return " and ".join(conditions) or "true"

    def _is_single(self, cut: BlockStart) -> bool:
        return len(cut.key) == 1 and not self._shared

    def _at_or_above(self, number: int) -> str:
        cut = self._cuts[number]
        if not cut.key[0].is_valid:
            return self._reached(number)
        known = self._first_column(number, ">=")
        return known if self._is_single(cut) else f"{known} and {self._reached(number)}"

    def _below(self, number: int, no_null: bool) -> str:
        cut = self._cuts[number]
        exact = f"({self._reached(number)}) is not true"
        if not cut.key[0].is_valid:
            return f"k0 is null and {exact}"
        is_single = self._is_single(cut)
        if not is_single and self._key.key.fields[0].transform != Transform():
            return exact
        known = self._first_column(number, "<" if is_single else "<=")
        column = self._key.column(self._key.key.fields[0].column)
        known = known if no_null else f"({known} or {column} is null)"
        return known if is_single else f"{known} and {exact}"

    def _first_column(self, number: int, comparison: str) -> str:
        """Return a condition on the first column, by which row groups are skipped."""
        item = self._key.key.fields[0]
        name = "cuts_0" if item.transform == Transform() else "starts_0"
        return f"{self._key.column(item.column)} {comparison} {_value(name, number)}"

    def _reached(self, number: int) -> str:
        """Return whether a row is at or above a cut: false or NULL if it is below."""
        cut = self._cuts[number]
        text = f"share >= {round(cut.share * SHARES)}" if self._shared else ""
        for place, value in reversed(list(enumerate(cut.key))):
            name, constant = f"k{place}", _value(f"cuts_{place}", number)
            if not text:  # every value is at or above NULL
                text = f"{name} >= {constant}" if value.is_valid else ""
                continue
            above, same = f"{name} > {constant}", f"{name} = {constant}"
            if not value.is_valid:
                above, same = f"{name} is not null", f"{name} is null"
            text = f"({above} or ({same} and {text}))"
        return text or "true"


def _value(name: str, place: int) -> str:
    return f"getvariable('{name}')[{place + 1}]"
