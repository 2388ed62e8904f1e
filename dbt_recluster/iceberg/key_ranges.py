"""The ranges of a cluster key that hold the rows of boxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.iceberg.read_boxes import Box
from dbt_recluster.iceberg.value_types import ValueType


def key_ranges(
    kinds: Mapping[str, ValueType], key: ClusterKey, boxes: Iterable[Box]
) -> list[tuple[list[Any], list[Any]]]:
    """Return the range of the key for each box that restricts the key's first item.

    Args:
        kinds: The types of the table's columns.
        key: Its key.
        boxes: The boxes, see `read_boxes`.

    Returns:
        The values of the key's items at the lower and at the upper end, as `bounds.key_bounds` has them; None where an
        end is open.
    """
    ranges = (_range(key, box, kinds) for box in boxes)
    return [(lower, upper) for lower, upper in ranges if lower[0] is not None or upper[0] is not None]


def _range(key: ClusterKey, box: Box, kinds: Mapping[str, ValueType]) -> tuple[list[Any], list[Any]]:
    """Return the ends of the least range of the key that holds a box.

    An item bounds the keys only as long as all items before it have a single value.
    """
    lower: list[Any] = [None] * len(key.fields)
    upper: list[Any] = [None] * len(key.fields)
    for place, field in enumerate(key.fields):
        if field.column not in box:
            break
        lower[place], upper[place] = (_item(field, value, kinds[field.column]) for value in box[field.column])
        if lower[place] is None or lower[place] != upper[place]:
            break
    return lower, upper


def _item(field: KeyField, value: Any, of: ValueType) -> Any:
    """Return a key item of a column's value, as the bounds of blocks have it."""
    return None if value is None else field.transform.values(pa.array([value], of.arrow))[0].as_py()
