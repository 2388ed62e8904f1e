"""Merge by a shuffle: read everything once and send each row to its new block.

The split points are known already, which saves the pass over all data in which Spark would look for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbt_recluster.iceberg.rewrite.key_columns import (
    KeyedRows,
    KeyValue,
    deciding_columns,
    key_array,
    key_value,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The resolution of the share at which the rows of one value are split.
_SHARES = 1 << 20
_ROW_MASK = (1 << 30) - 1  # the product with the next constant fits into a long
_WORD_MASK = (1 << 32) - 1
_GOLDEN = 0x9E3779B1
_SPARK_SEED = 42


@dataclass(frozen=True)
class BlockStarts:
    """Where the blocks of a file group begin, the first one excepted.

    Attributes:
        keys: The keys, ascending.
        shares: For each, the share of the rows with exactly this key that belongs to the block before.
    """

    keys: Sequence[KeyValue] = ()
    shares: Sequence[float] = ()

    def __len__(self) -> int:
        """Return the number of split points."""
        return len(self.keys)


def send_to_blocks(rows: KeyedRows, starts: Sequence[BlockStarts], group_of: Sequence[int]) -> KeyedRows:
    """Shuffle rows to their new blocks: Spark partition i becomes block i, counted through all groups.

    Args:
        rows: The rows of several file groups.
        starts: The split points of each group.
        group_of: For each Spark partition of ``rows``, the position of its group in ``starts``.
    """
    blocks = sum(len(group) + 1 for group in starts)
    if blocks == 1:
        return rows.with_frame(rows.frame.coalesce(1))
    frame, keys, types, cuts = _with_share(rows, starts)
    group, block, end = (rows.added.name(purpose) for purpose in ("group", "block", "end"))
    first_cuts = np.concatenate([[0], np.cumsum([len(group_starts) for group_starts in starts])])
    frame = _add(frame, group, f"get({_integers(group_of)}, spark_partition_id())")
    frame = _add(frame, block, f"get({_integers(first_cuts[:-1])}, {group})")
    frame = _add(frame, end, f"get({_integers(first_cuts[1:])}, {group})")
    if cuts:
        array = key_array(cuts, types)
        for step in _search_steps(max(map(len, starts))):
            # A binary search for the last cut that is not above the row's key.
            candidate = f"{block} + {step - 1}"
            reached = (
                f"{candidate} < {end} and coalesce({key_value(keys)} >= get({array}, {candidate}), false)"
            )
            frame = _add(frame, block, f"if({reached}, {block} + {step}, {block})")
    # Every group before this one has one block more than it has cuts.
    frame = _add(frame, block, f"get({_integers(partition_salts(blocks))}, {block} + {group})")
    frame = frame.drop(group, end, *keys[len(rows.names) :])
    return rows.with_frame(frame.repartition(blocks, block).drop(block))


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


def _with_share(
    rows: KeyedRows, starts: Sequence[BlockStarts]
) -> tuple[DataFrame, list[str], list[str], list[KeyValue]]:
    """Add a last key column that splits the rows of one value, if any value has to be split.

    Returns:
        The rows, the names and types of the key columns, and the keys of all cuts.
    """
    keys, types = list(rows.names), list(rows.types)
    cuts = [key for group in starts for key in group.keys]
    shares = [share for group in starts for share in group.shares]
    if not any(shares):
        deciding = deciding_columns(cuts)
        return rows.frame, keys[:deciding], types[:deciding], cuts
    # Rows of one value differ only in where they are read. Multiples of the golden ratio spread every run of
    # consecutive rows evenly.
    spread = f"((monotonically_increasing_id() & {_ROW_MASK}L) * {_GOLDEN}L) & {_WORD_MASK}L"
    keys.append(rows.added.name("share"))
    types.append("int")
    cuts = [
        [*key, pa.scalar(round(share * _SHARES), pa.int32())] for key, share in zip(cuts, shares, strict=True)
    ]
    return _add(rows.frame, keys[-1], f"cast(shiftright({spread}, 12) as int)"), keys, types, cuts


def _add(frame: DataFrame, name: str, expression: str) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.withColumn(name, F.expr(expression))


def _search_steps(most: int) -> Iterator[int]:
    """Yield the powers of two of a binary search among ``most`` cuts, the largest first."""
    return (1 << bit for bit in reversed(range(most.bit_length())))


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
