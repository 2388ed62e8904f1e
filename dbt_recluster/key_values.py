"""Cluster keys as people read them: a block's bounds back from the numbers that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.columns import decimal_scale
from dbt_recluster.iceberg.blocks import BlockMetadata

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LONGEST = 24
UNKNOWN = "?"


def lower_text(blocks: BlockMetadata, position: int, key: ClusterKey, types: Mapping[str, str]) -> str:
    """Return the least key of the block at ``position``; ``types`` are Spark's types of the columns."""
    return _tuple([column[position].as_py() for column in blocks.lower], key, types)


def upper_text(blocks: BlockMetadata, position: int, key: ClusterKey, types: Mapping[str, str]) -> str:
    """Return the greatest key of the block at ``position``; a bound that is not recorded is ``?``."""
    values = [
        UNKNOWN if mask[position] else column[position].as_py()
        for column, mask in zip(blocks.upper, blocks.unbounded, strict=True)
    ]
    return _tuple(values, key, types)


def value_text(value: Any, field: KeyField, spark_type: str) -> str:
    """Return one value of a key item (see :func:`dbt_recluster.iceberg.bounds.key_bounds`) as text."""
    if value is None:
        return "NULL"
    if value is UNKNOWN:
        return UNKNOWN
    if field.transform == "year":
        return str(1970 + value)
    if field.transform == "month":
        return f"{1970 + value // 12}-{value % 12 + 1:02d}"
    if field.transform == "day":
        return (_EPOCH + timedelta(days=value)).date().isoformat()
    if field.transform == "hour":
        return f"{_EPOCH + timedelta(hours=value):%Y-%m-%d %H}h"
    if spark_type.startswith("timestamp") and isinstance(value, int):
        return f"{_EPOCH + timedelta(microseconds=value):%Y-%m-%d %H:%M:%S}"
    if field.transform == "truncate" and spark_type.startswith("decimal"):
        return str(Decimal(value).scaleb(-decimal_scale(spark_type)))
    if isinstance(value, bytes):
        value = value.hex()
    text = str(value)
    # The end of a long text tells it apart from its neighbours, with which it shares its beginning.
    return text if len(text) <= _LONGEST else f"{text[:8]}...{text[-13:]}"


def _tuple(values: Sequence[Any], key: ClusterKey, types: Mapping[str, str]) -> str:
    return ", ".join(
        value_text(value, field, types.get(field.column, ""))
        for value, field in zip(values, key.fields, strict=True)
    )
