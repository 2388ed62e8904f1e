"""Merge by a shuffle: read everything once and send each row to its new block.

Where to send it is known beforehand, so the pass over all data is saved in which Spark would find that out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbt_recluster.iceberg.key_columns import AddedColumns
from dbt_recluster.iceberg.ranges import KeyValue, key_array, key_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Shares of a value's rows are cut in this many steps.
_SHARES = 1 << 20
_ROW_MASK = (1 << 30) - 1  # times the next, no more than a long holds
_WORD_MASK = (1 << 32) - 1
_GOLDEN = 0x9E3779B1
_SPARK_SEED = 42


def send_to_blocks(
    frame: DataFrame,
    names: Sequence[str],
    types: Sequence[str],
    starts: Sequence[Sequence[KeyValue]],
    shares: Sequence[Sequence[float]],
    set_of: Sequence[int],
    added: AddedColumns,
) -> DataFrame:
    """Shuffle rows to their new blocks: partition i is block i, counted through all sets.

    Args:
        frame: The rows of some sets.
        names: SQL that names the columns of the key items.
        types: Their Spark types.
        starts: For each set, the keys at which its blocks behind the first begin, ascending.
        shares: For each of them, the share of the rows with that very key which stays in the block before.
        set_of: For each partition of ``frame``, the set it is of.
        added: Names of columns to add.
    """
    flat = [value for each in starts for value in each]
    blocks = len(flat) + len(starts)
    if blocks == 1:
        return frame.coalesce(1)
    first = np.concatenate([[0], np.cumsum([len(each) for each in starts])])
    keys, kinds = list(names), list(types)
    set_number, output, end = (added.name(purpose) for purpose in ("set", "output", "end"))
    if any(share for each in shares for share in each):
        # Rows of one value have nothing else to tell them apart than where they are read. Multiples of the golden
        # ratio spread any stretch of consecutive rows evenly.
        share = (
            f"shiftright(((monotonically_increasing_id() & {_ROW_MASK}L) * {_GOLDEN}L) & {_WORD_MASK}L, 12)"
        )
        keys, kinds = [*keys, added.name("share")], [*kinds, "int"]
        frame = frame.withColumns(_sql({keys[-1]: f"cast({share} as int)"}))
        steps = [round(share * _SHARES) for each in shares for share in each]
        flat = [[*value, pa.scalar(step, pa.int32())] for value, step in zip(flat, steps, strict=True)]
    number = f"get({_integers(set_of)}, spark_partition_id())"
    frame = frame.withColumns(_sql({set_number: number}))
    limits = {output: first[:-1], end: first[1:]}
    frame = frame.withColumns(
        _sql({name: f"get({_integers(values)}, {set_number})" for name, values in limits.items()})
    )
    most = max(len(each) for each in starts)
    if most:
        cuts = key_array(flat, kinds)
        for step in _powers_of_two(most):
            # One step of a binary search: go on where the last of so many cuts is not above the key.
            candidate = f"{output} + {step - 1}"
            reached = (
                f"{candidate} < {end} and coalesce({key_value(keys)} >= get({cuts}, {candidate}), false)"
            )
            frame = frame.withColumns(_sql({output: f"if({reached}, {output} + {step}, {output})"}))
    salts = _integers(partition_salts(blocks))
    frame = frame.withColumns(_sql({output: f"get({salts}, {output} + {set_number})"}))
    return frame.drop(set_number, end, *keys[len(names) :]).repartition(blocks, output).drop(output)


def partition_salts(partitions: int) -> npt.NDArray[np.int64]:
    """Return, for each partition, an integer that Spark's hash partitioning sends there, shape (partitions,)."""
    salts = np.full(partitions, -1, dtype=np.int64)
    start, size = 0, 64 * partitions
    while (salts < 0).any():
        numbers = np.arange(start, start + size, dtype=np.uint32)
        target = _murmur3(numbers).astype(np.int32).astype(np.int64) % partitions
        found, where = np.unique(target, return_index=True)
        new = salts[found] < 0
        salts[found[new]] = numbers[where[new]]
        start += size
    return salts


def _sql(columns: dict[str, str]) -> dict[str, Column]:
    from pyspark.sql import functions as F

    return {name: F.expr(expression) for name, expression in columns.items()}


def _powers_of_two(most: int) -> list[int]:
    """Return the steps of a search among ``most`` cuts, the largest first."""
    return [1 << bit for bit in reversed(range(most.bit_length()))]


def _integers(values: Sequence[int] | npt.NDArray[np.int64]) -> str:
    return f"array({', '.join(str(int(value)) for value in values)})"


def _murmur3(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Hash 32-bit integers as Spark's hash() does."""
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
