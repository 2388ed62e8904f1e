"""The rows of a merge with their cluster key, and the new block that each of them goes to.

Rows go to blocks by ranges where every Spark partition has read the files of one block: it keeps the rows of its range,
and nothing is shuffled. Otherwise everything is read once and a shuffle sends each row to its block. The split points
are known by then, which saves the pass over all data in which Spark would look for them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbt_recluster.iceberg.rewrite.curve_sql import with_box, with_place
from dbt_recluster.iceberg.rewrite.file_groups import ScanPartition
from dbt_recluster.iceberg.rewrite.literals import KeyValue, deciding_columns, key_sql, keys_sql
from dbt_recluster.key.box_tree import SHARE, SHARES, BoxTree
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.columns import quote, quote_path
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.transforms import Transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Spark looks Iceberg's transforms up in a catalog, and the session catalog has no place for them. So a catalog with
# nothing else in it is registered under a name of our own.
_FUNCTIONS = "recluster_iceberg_functions"
_FUNCTION_CATALOG = "org.apache.iceberg.spark.SparkFunctionCatalog"
# Threads of dbt share a session.
_setting = threading.Lock()

_ROW_MASK = (1 << 30) - 1  # the product with the next constant fits into a long
_WORD_MASK = (1 << 32) - 1
_GOLDEN = 0x9E3779B1
_SPARK_SEED = 42


@dataclass(frozen=True)
class BlockStart:
    """Where a block of a file group begins; the first one needs none.

    Attributes:
        key: The key of its first row.
        share: The share of the rows with exactly this key that belongs to the block before.
    """

    key: KeyValue
    share: float = 0.0


@dataclass(frozen=True)
class KeyedRows:
    """Rows and their cluster key.

    Attributes:
        frame: The rows, with columns of ours beside those of the table.
        names: SQL that names the columns that sort the rows: one for each key item, and before those of a curve the
            place on it. An item that is a plain column is not copied.
        types: Spark's type of each.
        columns: The table's columns, quoted.
        prefix: The beginning of the names of our columns; no column of the table begins with it.
    """

    frame: DataFrame
    names: tuple[str, ...]
    types: tuple[str, ...]
    columns: tuple[str, ...]
    prefix: str

    @classmethod
    def of(
        cls, spark: SparkSession, frame: DataFrame, key: ClusterKey, curve: Curve | None = None
    ) -> KeyedRows:
        """Add a column for each key item that is not a plain column, and for the place on the curve of the key."""
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
            frame = with_place(frame, curve, key, f"{prefix}_place")
        types = [field.dataType.simpleString() for field in frame.selectExpr(*names).schema.fields]
        return cls(frame, tuple(names), tuple(types), tuple(map(quote, columns)), prefix)

    def with_frame(self, frame: DataFrame) -> KeyedRows:
        """Return other rows with the same columns."""
        return replace(self, frame=frame)

    def in_ranges(self, ranges: Sequence[ScanPartition]) -> KeyedRows:
        """Keep the rows of Spark partition i whose key is in range i.

        One condition serves all partitions: it looks up the bounds by the number of the partition.
        """
        lowers, uppers = ([getattr(r, end) for r in ranges] for end in ("lower", "upper"))
        if not any([*lowers, *uppers]):
            return self
        deciding = deciding_columns([*lowers, *uppers])
        value, types = key_sql(self.names[:deciding]), self.types[:deciding]
        # As a column of its own, it keeps Spark from moving the condition below the steps of a place, which it would
        # copy into it, each twice.
        partition = f"{self.prefix}_partition"
        rows = self.with_column(partition, "spark_partition_id()")
        # A NULL key precedes every other key, but comparisons with it are neither true nor false.
        for keys, compare, of_null in ((lowers, ">=", "false"), (uppers, "<", "true")):
            if any(keys):
                end = f"get({keys_sql(keys, types)}, {partition})"
                condition = f"{end} is null or coalesce({value} {compare} {end}, {of_null})"
                rows = rows.with_frame(rows.frame.where(condition))
        return rows

    def with_box(self, trees: Sequence[BoxTree], group_of: Sequence[int]) -> tuple[KeyedRows, str]:
        """Add the number of each row's box, counted through the boxes of all groups; return it with its name.

        Args:
            trees: The boxes of each file group.
            group_of: For each Spark partition of the rows, the position of its group in ``trees``.
        """
        rows, columns = self, range(trees[0].lower.shape[1])
        ranks = [f"{self.prefix}_place_rank_{column}_0" for column in columns]
        if any((tree.column == SHARE).any() for tree in trees):
            rows = self._with_share()
            ranks.append(rows.names[-1])
        group, box = f"get({_integers(group_of)}, spark_partition_id())", f"{self.prefix}_box"
        return self.with_frame(with_box(rows.frame, trees, group, ranks, box)), box

    def in_boxes(self, trees: Sequence[BoxTree], group_of: Sequence[int], boxes: Sequence[int]) -> KeyedRows:
        """Keep the rows of Spark partition i that lie in box i of ``boxes``; others as in :meth:`with_box`."""
        rows, box = self.with_box(trees, group_of)
        partition = f"{self.prefix}_partition"
        rows = rows.with_column(partition, "spark_partition_id()")
        return rows.with_frame(rows.frame.where(f"{box} = get({_integers(boxes)}, {partition})"))

    def shuffled_to_boxes(self, trees: Sequence[BoxTree], group_of: Sequence[int]) -> KeyedRows:
        """Shuffle rows to their boxes: Spark partition i becomes box i; arguments as in :meth:`with_box`."""
        rows, box = self.with_box(trees, group_of)
        count = sum(map(len, trees))
        rows = rows.with_column(box, f"get({_integers(partition_salts(count))}, {box})")
        return self.with_frame(rows.frame.repartition(count, box))

    def in_blocks(self, starts: Sequence[Sequence[BlockStart]], group_of: Sequence[int]) -> KeyedRows:
        """Shuffle rows to their new blocks: Spark partition i becomes block i, counted through all groups.

        Args:
            starts: Where the blocks of each file group begin, in ascending order.
            group_of: For each Spark partition of the rows, the position of its group in ``starts``.
        """
        cuts = [start for group in starts for start in group]
        blocks = len(cuts) + len(starts)
        rows, values = self, [cut.key for cut in cuts]
        if any(cut.share for cut in cuts):
            rows = self._with_share()
            values = [[*cut.key, pa.scalar(round(cut.share * SHARES), pa.int32())] for cut in cuts]
        deciding = deciding_columns(values)
        key, array = key_sql(rows.names[:deciding]), keys_sql(values, rows.types[:deciding])
        group, block, end = (f"{self.prefix}_{purpose}" for purpose in ("group", "block", "end"))
        first_cuts = list(accumulate(map(len, starts), initial=0))
        rows = rows.with_column(group, f"get({_integers(group_of)}, spark_partition_id())")
        rows = rows.with_column(block, f"get({_integers(first_cuts[:-1])}, {group})")
        rows = rows.with_column(end, f"get({_integers(first_cuts[1:])}, {group})")
        for bit in reversed(range(max(map(len, starts)).bit_length())):
            # A binary search for the last cut that is not above the row's key.
            candidate = f"{block} + {(1 << bit) - 1}"
            reached = f"{candidate} < {end} and coalesce({key} >= get({array}, {candidate}), false)"
            rows = rows.with_column(block, f"if({reached}, {block} + {1 << bit}, {block})")
        # Every group before this one has one block more than it has cuts.
        rows = rows.with_column(block, f"get({_integers(partition_salts(blocks))}, {block} + {group})")
        return self.with_frame(rows.frame.repartition(blocks, block))

    def _with_share(self) -> KeyedRows:
        """Add a last key column by which the rows of one value are split.

        They differ only in where they are read. Multiples of the golden ratio spread every run of consecutive rows
        evenly.
        """
        spread = f"((monotonically_increasing_id() & {_ROW_MASK}L) * {_GOLDEN}L) & {_WORD_MASK}L"
        share = f"{self.prefix}_share"
        rows = self.with_column(share, f"cast(shiftright({spread}, 12) as int)")
        return replace(rows, names=(*self.names, share), types=(*self.types, "int"))

    def with_column(self, name: str, expression: str) -> KeyedRows:
        """Return the rows with one more column, or another value of one."""
        from pyspark.sql import functions as F

        return self.with_frame(self.frame.withColumn(name, F.expr(expression)))

    def to_write(self) -> DataFrame:
        """Return the rows sorted within each partition, with the table's columns only."""
        from pyspark.sql import functions as F

        return self.frame.sortWithinPartitions(*map(F.expr, self.names)).select(*self.columns)


@contextmanager
def key_columns(spark: SparkSession, key: ClusterKey) -> Iterator[list[Column]]:
    """Yield one column expression for each key item, computed by Iceberg's own transforms.

    A frame takes them while the context lasts; afterwards the session has no setting of ours.
    """
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
    """Return an integer for each partition that Spark's hash partitioning sends there: int64 (partitions,)."""
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
    with np.errstate(over="ignore"):
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
