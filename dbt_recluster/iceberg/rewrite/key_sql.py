"""Keys, and the rows of new blocks, as SQL of Spark for a shuffle, and of DuckDB for the native writer.

The cuts are known by then, so neither samples the rows again.

A row's place on a curve: a binary search among literal boundaries finds each rank, and look-ups in a table of the
curve's states make a place of the ranks (see :mod:`dbt_recluster.key.curve`). Each step is a column that refers to
earlier ones: Spark compiles such small steps, while a tree of comparisons is too large a method for Java to compile.
Boundaries are values of the column from which its transform reaches them, so a place needs neither Iceberg's functions
nor the session's time zone.

In DuckDB, a table's columns are c0, c1... and the key's items k0, k1... Its conditions name their constants by
variables, which hold Arrow arrays: no value is written as text. Where there is one, a block has a condition on columns
too, by which DuckDB skips row groups.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import accumulate, chain, compress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbt_recluster.iceberg.rewrite.native_tasks import Statement
from dbt_recluster.key.box_tree import SHARE, SHARES, BoxTree
from dbt_recluster.key.cluster_key import ClusterKey, KeyField
from dbt_recluster.key.columns import Columns, quote, quote_path
from dbt_recluster.key.curve import Curve, curve_states
from dbt_recluster.key.transforms import Span, Transform, Truncate
from dbt_recluster.key.types import IntArray, Time, column_type, value_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KeyValue = Sequence[pa.Scalar]

# A catalog of Iceberg's functions alone; the session catalog may not have them.
_FUNCTIONS = "recluster_iceberg_functions"
_LATERAL_ALIASES = "spark.sql.lateralColumnAlias.enableImplicitResolution"
# Threads of dbt share a session.
_setting = threading.Lock()
_ROW_MASK = (1 << 30) - 1  # the product with the next constant fits into a long
_WORD_MASK = (1 << 32) - 1
_GOLDEN = 0x9E3779B1
# Functions of Spark that the SQL of keys uses.
MACROS = (
    "get(items, place) as items[place + 1]",
    "shiftleft(a, b) as a << b",
    "shiftright(a, b) as a >> b",
    "unix_date(day) as day - date '1970-01-01'",
    "unix_micros(ts) as epoch_us(ts)",
)


def exact_literal(value: pa.Scalar, spark_type: str) -> str:
    """Return a value as SQL, independent of quoting rules, time zones and rounding."""
    return value_type(value.type).literal(value, spark_type) if value.is_valid else f"cast(null as {spark_type})"


def printed(spark: SparkSession, values: Sequence[pa.Scalar], spark_type: str) -> list[str]:
    """Return values of one type as Spark prints them, in UTC; binary as hex. Times may be microseconds since 1970."""
    if not values:
        return []
    kind = column_type(spark_type)
    if isinstance(kind, Time):
        values = [value.cast(kind.whole).cast(kind.arrow) for value in values]
    show = "lower(hex(value))" if spark_type == "binary" else "cast(value as string)"
    array = keys_sql([[value] for value in values], [spark_type])
    row = spark.sql(f"select transform({array}, value -> coalesce({show}, 'NULL'))").first()
    return [str(text) for text in row[0]] if row is not None else []


def key_sql(names: Sequence[str]) -> str:
    """Return a row's key as one SQL value; Spark compares structs like tuples, NULL first."""
    if len(names) == 1:
        return names[0]
    fields = (f"'k{place}', {name}" for place, name in enumerate(names))
    return f"named_struct({', '.join(fields)})"


def keys_sql(keys: Sequence[KeyValue], types: Sequence[str]) -> str:
    """Return the first ``len(types)`` columns of keys as a constant array of values like :func:`key_sql`."""
    items = (key_sql([*map(exact_literal, key, types)]) for key in keys)
    return f"array({', '.join(items)})"


def column_starts(field: KeyField, spark_type: str, boundaries: pa.Array) -> pa.Array:
    """Return the least values of a column at which a key item reaches boundaries, within the range of its type.

    Boundaries are values of the item, as in ``BlockMetadata``; those of another type are a ValueError. The values are
    one for each: dates as days since 1970, times as microseconds.
    """
    kind, transform = column_type(spark_type), field.transform
    width = transform.width if isinstance(transform, Truncate) else 1
    try:
        return kind.starts(boundaries, partial(transform.start, of_date=kind.in_days), width)
    except ValueError:
        raise ValueError(f"{field} is {spark_type}, which boundaries of type {boundaries.type} do not cut") from None


def box_columns(trees: Sequence[BoxTree], tree: str, ranks: Sequence[str], box: str) -> list[str]:
    """Return columns as SQL, of which the last is ``box``, int: the number of a row's box among those of all trees.

    ``tree`` is SQL of the number of each row's tree. ``ranks`` are the columns of each rank, and then of each row's
    share (see `box_tree.SHARE`). No column begins with the name ``box``.
    """
    nodes, boxes, root, columns, cuts, below, above = 0, 0, [], [], [], [], []
    for box_tree in trees:
        child = np.where(box_tree.child < 0, box_tree.child - boxes, box_tree.child + nodes)
        root.append(box_tree.root - boxes if box_tree.root < 0 else box_tree.root + nodes)
        columns += np.where(box_tree.column == SHARE, len(ranks) - 1, box_tree.column).tolist()
        cuts += box_tree.cut.tolist()
        below += child[:, 0].tolist()
        above += child[:, 1].tolist()
        nodes, boxes = nodes + len(box_tree.cut), boxes + len(box_tree)
    arrays = {"columns": columns, "cuts": cuts, "below": below, "above": above}
    # An empty text would be an array of one NULL.
    steps = [f"{_constants(values or [0], 'int')} as {box}_{name}" for name, values in arrays.items()]
    steps.append(f"get({_constants(root, 'int')}, {tree}) as {box}_0")
    height = max(box_tree.height for box_tree in trees)
    for step in range(height):
        node = f"{box}_{step}"
        is_above = f"get(array({', '.join(ranks)}), get({box}_columns, {node})) >= get({box}_cuts, {node})"
        following = f"if({is_above}, get({box}_above, {node}), get({box}_below, {node}))"
        steps.append(f"if({node} < 0, {node}, {following}) as {box}_{step + 1}")
    return [*steps, f"-1 - {box}_{height} as {box}"]


def share_sql(row: str) -> str:
    """Return SQL of a row's share from its number; multiples of the golden ratio spread every run of rows evenly."""
    return f"cast(shiftright((({row} & {_ROW_MASK}) * cast({_GOLDEN} as bigint)) & {_WORD_MASK}, 12) as int)"


def place_query(query: str, curve: Curve, key: ClusterKey, types: Mapping[str, str], place: str) -> str:
    """Return ``query`` with the columns of :func:`place_steps`, and ``place``_of_load, of `Curve.index_of_load`.

    Do not filter the result: Spark pushes the condition below the steps, and inlines each step twice.
    """
    columns = list(chain.from_iterable(place_steps(curve, key, types, place)))
    ascending = compress(zip(key.on_curve, curve.boundaries, strict=True), curve.ascending)
    is_new = " or ".join(_beyond(field, types[field.column], ends) for field, ends in ascending) or "false"
    following = 1 << (curve.bits * len(key.on_curve))
    columns.append(f"if({is_new}, {place} + {following}, {place}) as {place}_of_load")
    return f"select *, {', '.join(columns)} from (\n{query}\n)"


class KeyDialect:
    """The engine-specific parts of a place's SQL; the base class is Spark."""

    def column(self, path: str) -> str:
        """Return SQL of a column or struct field."""
        return quote_path(path)

    def array(self, values: pa.Array, spark_type: str) -> str:
        """Return SQL of an array of values of one type."""
        kind = column_type(spark_type)
        if kind.has_own_literals:
            return keys_sql([[value] for value in values.cast(kind.arrow)], [spark_type])
        return _constants(values.to_pylist(), spark_type)


def place_steps(
    curve: Curve, key: ClusterKey, types: Mapping[str, str], place: str, dialect: KeyDialect | None = None
) -> list[list[str]]:
    """Return columns as SQL, of which the last is ``place``: the place of each row on the curve of a key, bigint.

    The columns of a step refer to those of earlier steps. ``types`` are Spark's of the columns on the curve, by their
    names in the key. No column begins with the name ``place``. Boundaries of another type than their column are a
    ValueError.
    """
    fields, dialect = key.on_curve, dialect or KeyDialect()
    searched = [
        _searched(field, types[field.column], boundaries, dialect)
        for field, boundaries in zip(fields, curve.boundaries, strict=True)
    ]
    curve_of = curve_states(len(fields))
    # By a state, followed by the part of the cell: the next state, followed by when the part is visited.
    entries = ((curve_of.following << len(fields)) | curve_of.place).ravel()
    arrays = [f"{place}_boundaries_{position}" for position in range(len(fields))]
    constants = [f"{array} as {name}" for name, (_, array) in zip(arrays, searched, strict=True)]
    constants.append(f"{dialect.array(pa.array(entries, pa.int32()), 'int')} as {place}_states")
    steps, ranks = [constants], ["0"] * len(fields)
    for bit in reversed(range(curve.bits)):
        columns = []
        for position, (value, _) in enumerate(searched):
            rank, name = ranks[position], f"{place}_rank_{position}_{bit}"
            reached = f"{value} >= get({arrays[position]}, {rank} + {(1 << bit) - 1})"
            # A comparison with NULL is NULL, which counts as false.
            columns.append(f"if({reached}, {rank} + {1 << bit}, {rank}) as {name}")
            ranks[position] = name
        steps.append(columns)
    return [*steps, [f"{_place(ranks, f'{place}_states', curve.bits)} as {place}"]]


def _searched(field: KeyField, spark_type: str, boundaries: pa.Array, dialect: KeyDialect) -> tuple[str, str]:
    """Return SQL of the values of a column on a curve, NULL for NULL, and of the array that they are searched in."""
    value, compared = column_type(spark_type).compared
    array = dialect.array(column_starts(field, spark_type, boundaries), compared or spark_type)
    return value.format(dialect.column(field.column)), array


def _beyond(field: KeyField, spark_type: str, boundaries: pa.Array) -> str:
    """Return SQL of whether a value is above the last boundary; a comparison with NULL is NULL."""
    following = field.transform.next(boundaries[-1])
    ends, reaches = boundaries[-1:], ">"
    if following is not None:
        ends, reaches = pa.array([following.as_py()], following.type), ">="
        start = field.transform.start(following, of_date=column_type(spark_type).in_days)
        if column_starts(field, spark_type, ends)[0].as_py() != start:
            return "false"  # the type has no such value
    value, array = _searched(field, spark_type, ends, KeyDialect())
    return f"{value} {reaches} get({array}, 0)"


def _constants(values: Iterable[Any], spark_type: str) -> str:
    """Return an array as SQL. Spark reads a text of many values much faster than as many literals."""
    texts = (f"{value:f}" if isinstance(value, Decimal) else str(value) for value in values)
    return f"cast(split('{','.join(texts)}', ',') as array<{spark_type}>)"


def _place(ranks: Sequence[str], table: str, bits: int) -> str:
    """Return the place of ranks, given the name of a table of states."""
    width, entry, terms = len(ranks), "", []
    for level in reversed(range(bits)):
        part = " + ".join(
            f"shiftleft(shiftright({rank}, {level}) & 1, {position})" for position, rank in enumerate(ranks)
        )
        # The state is entered again with the bits of the place cleared. Spark computes what repeats itself once.
        entry = f"get({table}, {f'({entry} & {-1 << width}) + ' if entry else ''}{part})"
        place = f"cast({entry} & {(1 << width) - 1} as bigint)"
        terms.append(f"shiftleft({place}, {level * width})")
    return " + ".join(terms)


@dataclass(frozen=True)
class BlockStart:
    """The key where a block begins, except the first, and the share of its rows that belongs to earlier blocks."""

    key: KeyValue
    share: float = 0.0


# How a file group is cut into blocks: all starts in ascending order, or along a curve the boxes.
Cuts = Sequence[BlockStart] | BoxTree


def count_blocks(cuts: Cuts) -> int:
    """Return the number of blocks; some may turn out to have no row."""
    return len(cuts) if isinstance(cuts, BoxTree) else len(cuts) + 1


@dataclass(frozen=True)
class KeyedRows:
    """Rows and their cluster key."""

    frame: DataFrame  # the table's columns and ours
    # In SQL, the columns to sort by: each key item, and the place on a curve before the items of the curve. Plain
    # columns are not copied.
    names: tuple[str, ...]
    columns: tuple[str, ...]  # the table's, quoted
    prefix: str  # of our columns; no column of the table has it

    @classmethod
    def of(cls, frame: DataFrame, key: ClusterKey, curve: Curve | None, group_of: Mapping[str, int]) -> KeyedRows:
        """Add each row's file group, by the location of its file, its transformed key items and place on the curve."""
        from pyspark.sql import functions as F

        columns, prefix, names = frame.columns, "__recluster", []
        while any(column.lower().startswith(prefix) for column in columns):
            prefix += "_"
        group = f"{prefix}_group"
        if len(set(group_of.values())) == 1:
            frame = frame.withColumn(group, F.lit(0))
        else:
            file = f"{prefix}_file"
            groups = frame.sparkSession.createDataFrame(list(group_of.items()), f"{file} string, {group} int")
            frame = frame.withColumn(file, F.input_file_name()).join(F.broadcast(groups), file)
        with key_columns(frame.sparkSession, key) as values:
            for position, (field, value) in enumerate(zip(key.fields, values, strict=True)):
                if field.transform == Transform():
                    names.append(quote_path(field.column))
                else:
                    names.append(f"{prefix}_key_{position}")
                    frame = frame.withColumn(names[-1], value)
        if curve is not None:
            names.insert(len(key.leading), f"{prefix}_place")
            on_curve = [field.column for field in key.on_curve]
            types = dict(zip(on_curve, _types(frame, map(quote_path, on_curve)), strict=True))
            steps = place_steps(curve, key, types, f"{prefix}_place")
            frame = _with_steps(frame, list(chain.from_iterable(steps)))
        return cls(frame, tuple(names), tuple(map(quote, columns)), prefix)

    def to_write(self, cuts: Sequence[Cuts]) -> DataFrame:
        """Make each new block of all groups, given their cuts, a sorted Spark partition of the table's columns."""
        from pyspark.sql import functions as F

        rows, group, block = self, f"{self.prefix}_group", f"{self.prefix}_block"
        if trees := [tree for tree in cuts if isinstance(tree, BoxTree)]:
            ranks = [f"{self.prefix}_place_rank_{column}_0" for column in range(trees[0].lower.shape[1])]
            if any((tree.column == SHARE).any() for tree in trees):
                rows = rows._with_share()
                ranks.append(rows.names[-1])
            rows = rows._with(*box_columns(trees, group, ranks, block))
        else:
            rows = rows._by_starts([starts for starts in cuts if not isinstance(starts, BoxTree)], group, block)
        blocks, salt = sum(map(count_blocks, cuts)), f"{self.prefix}_salt"
        rows = rows._with(f"get({_constants(partition_salts(blocks), 'int')}, {block}) as {salt}")
        shuffled = rows.frame.repartition(blocks, salt)
        return shuffled.sortWithinPartitions(*map(F.expr, rows.names)).selectExpr(*self.columns)

    def _by_starts(self, starts: Sequence[Sequence[BlockStart]], group: str, number: str) -> KeyedRows:
        """Add the ``number`` of each row's block, by a binary search for the last start that is not above its key."""
        cuts = [start for of_group in starts for start in of_group]
        rows, values = self, [cut.key for cut in cuts]
        if any(cut.share for cut in cuts):
            rows = self._with_share()
            values = [[*cut.key, pa.scalar(round(cut.share * SHARES), pa.int32())] for cut in cuts]
        # Trailing NULLs do not decide whether a row is at or above a key: they are least.
        deciding = (place for key in values for place, value in enumerate(key, 1) if value.is_valid)
        names = rows.names[: max(deciding, default=1)]
        first_cuts = list(accumulate(map(len, starts), initial=0))
        keys, block, end = f"{self.prefix}_cuts", f"{number}_start", f"{self.prefix}_end"
        steps = [
            f"{keys_sql(values, _types(rows.frame, names))} as {keys}",
            f"get({_constants(first_cuts[:-1], 'int')}, {group}) as {block}",
            f"get({_constants(first_cuts[1:], 'int')}, {group}) as {end}",
        ]
        for bit in reversed(range(max(map(len, starts)).bit_length())):
            candidate = f"{block} + {(1 << bit) - 1}"
            # A comparison with a NULL key is NULL.
            reached = f"{candidate} < {end} and coalesce({key_sql(names)} >= get({keys}, {candidate}), false)"
            steps.append(f"if({reached}, {block} + {1 << bit}, {block}) as {number}_{bit}")
            block = f"{number}_{bit}"
        # Every group before this one has one block more than it has cuts.
        return rows._with(*steps, f"{block} + {group} as {number}")

    def _with_share(self) -> KeyedRows:
        """Add a last key column by which the rows of one value, which differ only in where they are read, are split."""
        share = f"{self.prefix}_share"
        rows = self._with(f"{share_sql('monotonically_increasing_id()')} as {share}")
        return replace(rows, names=(*self.names, share))

    def _with(self, *columns: str) -> KeyedRows:
        """Return the rows with more columns, each of which may refer to the ones before."""
        return replace(self, frame=_with_steps(self.frame, columns))


def _with_steps(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Add columns as SQL that refer to earlier ones, which a session may not allow otherwise."""
    conf = frame.sparkSession.conf
    with _setting:
        allowed = str(conf.get(_LATERAL_ALIASES))
        if allowed == "true":
            return frame.selectExpr("*", *columns)
        conf.set(_LATERAL_ALIASES, "true")
        try:
            return frame.selectExpr("*", *columns)
        finally:
            conf.set(_LATERAL_ALIASES, allowed)


def _types(frame: DataFrame, columns: Iterable[str]) -> list[str]:
    """Return Spark's types of columns, which are SQL."""
    return [field.dataType.simpleString() for field in frame.selectExpr(*columns).schema.fields]


@contextmanager
def key_columns(spark: SparkSession, key: ClusterKey) -> Iterator[list[Column]]:
    """Yield a column expression for each key item, by Iceberg's own transforms; apply them within the context."""
    from pyspark.sql import functions as F

    items = [F.expr(field.transform.sql(quote_path(field.column), _FUNCTIONS)) for field in key.fields]
    if all(field.transform == Transform() for field in key.fields):
        yield items
        return
    with _setting:
        spark.conf.set(f"spark.sql.catalog.{_FUNCTIONS}", "org.apache.iceberg.spark.SparkFunctionCatalog")
        try:
            yield items
        finally:
            spark.conf.unset(f"spark.sql.catalog.{_FUNCTIONS}")


def partition_salts(partitions: int) -> npt.NDArray[np.int32]:
    """Return, for each partition, an integer that Spark's hash partitioning sends there: int32 (partitions,).

    Each hashes to the number of its partition: the steps of Spark's hash(), murmur3, are undone from last to first.
    """
    hashed: Any = np.arange(partitions, dtype=np.uint32)
    hashed = (hashed ^ (hashed >> 16)) * _inverse(0xC2B2AE35)
    hashed = (hashed ^ (hashed >> 13) ^ (hashed >> 26)) * _inverse(0x85EBCA6B)
    hashed ^= (hashed >> 16) ^ 4
    mixed = _rotate((hashed - 0xE6546B64) * _inverse(5), 19) ^ 42  # Spark's seed
    salts = _rotate(mixed * _inverse(0x1B873593), 17) * _inverse(0xCC9E2D51)
    return np.asarray(salts).view(np.int32)


def _inverse(factor: int) -> np.uint32:
    """Return the factor that undoes a multiplication modulo 2**32."""
    return np.uint32(pow(factor, -1, 1 << 32))


def _rotate(numbers: Any, bits: int) -> Any:
    return (numbers << bits) | (numbers >> (32 - bits))


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
        fields = path.removeprefix(name).split(".")[1:]
        return f"c{self.columns.names.index(name)}" + "".join(f"['{self.file_name(part)}']" for part in fields)

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
        # Alone, the number of a row in its file would be 0 in each of many files of one row.
        row = "(getvariable('first_rows')[file_index + 1] + file_row_number)"
        steps = [[*items, f"{share_sql(row)} as share"]]
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
        items = key.key.fields
        if isinstance(cuts, BoxTree):
            assert key.curve is not None
            for place, (item, ends) in enumerate(zip(items, key.curve.boundaries, strict=True)):
                self.variables[f"starts_{place}"] = key.starts(item, ends)
            self._boxes = list(zip(*cuts.regions(key.curve.parts), strict=True))
            return
        self._cuts = cuts
        self._shared = any(cut.share for cut in cuts)
        self._is_single = not self._shared and all(len(cut.key) == 1 for cut in cuts)
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

    def _at_or_above(self, number: int) -> str:
        cut = self._cuts[number]
        if not cut.key[0].is_valid:
            return self._reached(number)
        known = self._first_column(number, ">=")
        return known if self._is_single else f"{known} and {self._reached(number)}"

    def _below(self, number: int, no_null: bool) -> str:
        cut = self._cuts[number]
        exact = f"({self._reached(number)}) is not true"
        if not cut.key[0].is_valid:
            return f"k0 is null and {exact}"
        if not self._is_single and self._key.key.fields[0].transform != Transform():
            return exact
        known = self._first_column(number, "<" if self._is_single else "<=")
        column = self._key.column(self._key.key.fields[0].column)
        known = known if no_null else f"({known} or {column} is null)"
        return known if self._is_single else f"{known} and {exact}"

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
