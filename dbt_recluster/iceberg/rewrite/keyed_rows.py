"""The rows of a merge with their cluster key and the number of their new block.

By ranges, each Spark partition has read the files of one block and keeps its rows; nothing is shuffled. Otherwise
everything is read once, and a shuffle sends each row to its block. The cuts are known by then, so Spark need not
sample all rows for them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbt_recluster.iceberg.rewrite.key_sql import (
    KeyValue,
    box_columns,
    deciding_columns,
    key_sql,
    keys_sql,
    place_columns,
)
from dbt_recluster.key.box_tree import SHARE, SHARES, BoxTree
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.columns import quote, quote_path
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.transforms import Transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# A catalog of Iceberg's functions alone; the session catalog may not have them.
_FUNCTIONS = "recluster_iceberg_functions"
_FUNCTION_CATALOG = "org.apache.iceberg.spark.SparkFunctionCatalog"
_LATERAL_ALIASES = "spark.sql.lateralColumnAlias.enableImplicitResolution"
# Threads of dbt share a session.
_setting = threading.Lock()

_ROW_MASK = (1 << 30) - 1  # the product with the next constant fits into a long
_WORD_MASK = (1 << 32) - 1
_GOLDEN = 0x9E3779B1
_SPARK_SEED = 42


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
    def of(
        cls, spark: SparkSession, frame: DataFrame, key: ClusterKey, curve: Curve | None = None
    ) -> KeyedRows:
        """Add a column for each transformed key item and for the place on the curve."""
        columns, prefix, names = frame.columns, "__recluster", []
        while any(column.lower().startswith(prefix) for column in columns):
            prefix += "_"
        with key_columns(spark, key) as values:
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
            frame = _with_steps(frame, place_columns(curve, key, types, f"{prefix}_place"))
        return cls(frame, tuple(names), tuple(map(quote, columns)), prefix)

    def with_blocks(self, cuts: Sequence[Cuts], group_of: Sequence[int]) -> KeyedRows:
        """Add the number of each row's new block, counted through the blocks of all groups.

        The rows of Spark partition i are of the group with ``cuts[group_of[i]]``.
        """
        group = f"{self.prefix}_group"
        rows = self._with(f"get({_integers(group_of)}, spark_partition_id()) as {group}")
        trees = [tree for tree in cuts if isinstance(tree, BoxTree)]
        if not trees:
            return rows._by_starts([starts for starts in cuts if not isinstance(starts, BoxTree)], group)
        ranks = [f"{self.prefix}_place_rank_{column}_0" for column in range(trees[0].lower.shape[1])]
        if any((tree.column == SHARE).any() for tree in trees):
            rows = rows._with_share()
            ranks.append(rows.names[-1])
        return rows._with(*box_columns(trees, group, ranks, self.block))

    @property
    def block(self) -> str:
        """The column that :meth:`with_blocks` adds."""
        return f"{self.prefix}_block"

    def read_by(self, blocks: Sequence[int]) -> KeyedRows:
        """Keep the rows of block ``blocks[i]`` in Spark partition i."""
        # Spark moves no filter below a nondeterministic column. Below the steps of a search, it would inline each step
        # into the next up to four times: 4**height expressions.
        own = f"{self.prefix}_own"
        rows = self._with(f"get({_integers(blocks)}, spark_partition_id()) as {own}")
        return replace(self, frame=rows.frame.where(f"{self.block} = {own}"))

    def shuffled(self, blocks: int) -> KeyedRows:
        """Make each of ``blocks`` blocks a Spark partition."""
        salt = f"{self.prefix}_salt"
        rows = self._with(f"get({_integers(partition_salts(blocks))}, {self.block}) as {salt}")
        return replace(rows, frame=rows.frame.repartition(blocks, salt))

    def to_write(self) -> DataFrame:
        """Return the rows sorted within each partition, with the table's columns only."""
        from pyspark.sql import functions as F

        return self.frame.sortWithinPartitions(*map(F.expr, self.names)).selectExpr(*self.columns)

    def _by_starts(self, starts: Sequence[Sequence[BlockStart]], group: str) -> KeyedRows:
        """Find each row's block by a binary search for the last start that is not above its key."""
        cuts = [start for of_group in starts for start in of_group]
        rows, values = self, [cut.key for cut in cuts]
        if any(cut.share for cut in cuts):
            rows = self._with_share()
            values = [[*cut.key, pa.scalar(round(cut.share * SHARES), pa.int32())] for cut in cuts]
        deciding = deciding_columns(values)
        names = rows.names[:deciding]
        first_cuts = list(accumulate(map(len, starts), initial=0))
        keys, block, end = f"{self.prefix}_cuts", f"{self.block}_start", f"{self.prefix}_end"
        steps = [
            f"{keys_sql(values, _types(rows.frame, names))} as {keys}",
            f"get({_integers(first_cuts[:-1])}, {group}) as {block}",
            f"get({_integers(first_cuts[1:])}, {group}) as {end}",
        ]
        for bit in reversed(range(max(map(len, starts)).bit_length())):
            candidate = f"{block} + {(1 << bit) - 1}"
            # A comparison with a NULL key is NULL.
            reached = f"{candidate} < {end} and coalesce({key_sql(names)} >= get({keys}, {candidate}), false)"
            steps.append(f"if({reached}, {block} + {1 << bit}, {block}) as {self.block}_{bit}")
            block = f"{self.block}_{bit}"
        # Every group before this one has one block more than it has cuts.
        return rows._with(*steps, f"{block} + {group} as {self.block}")

    def _with_share(self) -> KeyedRows:
        """Add a last key column by which the rows of one value are split.

        They differ only in where they are read. Multiples of the golden ratio spread every run of consecutive rows
        evenly.
        """
        spread = f"((monotonically_increasing_id() & {_ROW_MASK}L) * {_GOLDEN}L) & {_WORD_MASK}L"
        share = f"{self.prefix}_share"
        rows = self._with(f"cast(shiftright({spread}, 12) as int) as {share}")
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
        spark.conf.set(f"spark.sql.catalog.{_FUNCTIONS}", _FUNCTION_CATALOG)
        try:
            yield items
        finally:
            spark.conf.unset(f"spark.sql.catalog.{_FUNCTIONS}")


def partition_salts(partitions: int) -> npt.NDArray[np.int64]:
    """Return, for each partition, an integer that Spark's hash partitioning sends there: int64 (partitions,)."""
    salts = np.full(partitions, -1, dtype=np.int64)
    start, size = 0, 64 * partitions
    while (salts < 0).any():
        numbers = np.arange(start, start + size, dtype=np.uint32)
        target = _murmur3(numbers).astype(np.int32).astype(np.int64) % partitions
        reached, first = np.unique(target, return_index=True)
        new = salts[reached] < 0
        salts[reached[new]] = numbers[first[new]]
        start += size
    return salts


def _integers(values: Sequence[int] | npt.NDArray[np.int64]) -> str:
    return f"array({', '.join(str(int(value)) for value in values)})"


def _murmur3(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Hash 32-bit integers like Spark's hash()."""
    k = _rotate(numbers * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    h = _rotate(np.uint32(_SPARK_SEED) ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(4)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def _rotate(numbers: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))
