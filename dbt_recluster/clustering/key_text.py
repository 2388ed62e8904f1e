"""Cluster keys as people read them: bounds as Spark prints the values of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dbt_recluster.iceberg.block_metadata import BlockMetadata, IntArray
from dbt_recluster.iceberg.rewrite.literals import printed

if TYPE_CHECKING:
    from dbt_recluster.clustering.table import ClusteredTable

_LONGEST = 24
_UNKNOWN = "?"


def lower_texts(table: ClusteredTable, blocks: BlockMetadata, positions: IntArray) -> list[str]:
    """Return the least key of each block at ``positions``."""
    known = [np.zeros(len(blocks), dtype=bool)] * len(blocks.lower)
    return _key_texts(table, blocks.lower, known, positions)


def upper_texts(table: ClusteredTable, blocks: BlockMetadata, positions: IntArray) -> list[str]:
    """Return the greatest key of each block at ``positions``; an unknown bound is ``?``."""
    return _key_texts(table, blocks.upper, blocks.unbounded, positions)


def item_texts(table: ClusteredTable, item: int, values: Sequence[pa.Scalar]) -> list[str]:
    """Return values of one key item (see :func:`dbt_recluster.iceberg.block_metadata.key_bounds`)."""
    field = table.key.fields[item]
    spark_type = table.columns.types[field.column]
    texts = [field.transform.printed(value, spark_type) if value.is_valid else "NULL" for value in values]
    known = [text for text in texts if text is not None]
    if len(known) < len(texts):
        known = printed(table.iceberg.spark, values, spark_type)
    # The end of a long text tells it from its neighbours, which begin in the same way.
    return [text if len(text) <= _LONGEST else f"{text[:8]}...{text[-13:]}" for text in known]


def _key_texts(
    table: ClusteredTable,
    columns: Sequence[pa.Array],
    unbounded: Sequence[np.ndarray[tuple[int], np.dtype[np.bool_]]],
    positions: IntArray,
) -> list[str]:
    items = []
    for item, (column, mask) in enumerate(zip(columns, unbounded, strict=True)):
        texts = item_texts(table, item, [column[int(position)] for position in positions])
        known = zip(texts, mask[positions], strict=True)
        items.append([_UNKNOWN if is_unknown else text for text, is_unknown in known])
    return [", ".join(key) for key in zip(*items, strict=True)]
