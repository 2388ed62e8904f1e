"""The curve of a table, whose boundaries are recorded in a property for each column.

A boundary is recorded as text (see `ColumnType.as_texts`). The start of a text is enough, as any value between two
parts separates them.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa

from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.iceberg.rewrite.sample import LONGEST_TEXT
from dbt_recluster.iceberg.table_properties import CURVE_PREFIX, curve_property
from dbt_recluster.key.cluster_key import ClusterKey, KeyField, parse_cluster_key
from dbt_recluster.key.curve import BITS, Curve
from dbt_recluster.key.types import TYPES, value_type
from dbt_recluster.planner.curves import CurveBlocks, curve_of_bounds

# Bytes of a property that was tampered with, unpacked.
_MOST_UNPACKED = 1 << 22
_COUNT = (1 << BITS) - 1
# The most characters kept of the last boundary.
_LAST = 64


@dataclass(frozen=True)
class SampledLoad:
    """Sampled rows of a load: values of each column on a curve, and how many rows each row stands for."""

    columns: list[pa.Array]
    weight: float


def curve_blocks(key: ClusterKey, curve: Curve | None, blocks: BlockMetadata) -> CurveBlocks:
    """Return blocks under a key with a curve, which is drawn from their bounds if it is None or of other types."""
    if curve is None or not is_curve_of(curve, key, blocks):
        own = slice(len(key.leading), None)
        curve = curve_of_bounds(blocks.lower[own], blocks.upper[own], blocks.unbounded[own], blocks.rows)
    return CurveBlocks(curve, blocks.lower, blocks.upper, blocks.unbounded, blocks.rows, blocks.partition)


def is_curve_of(curve: Curve, key: ClusterKey, blocks: BlockMetadata) -> bool:
    """Whether the boundaries of a curve are of the types that the blocks' bounds have."""
    types = [column.type for column in blocks.lower[len(key.leading) :]]
    return [ends.type for ends in curve.boundaries] == types


def curve_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that record curves."""
    return {name: text for name, text in properties.items() if name.startswith(CURVE_PREFIX)}


def as_properties(key: ClusterKey, curve: Curve, ids: Mapping[str, int]) -> dict[str, str]:
    """Return the properties that record a curve, given the field ids of its columns.

    Raises:
        ClusterKeyError: Values of a column begin alike for so long that boundaries do not tell them apart.
    """
    for field, ends in zip(key.on_curve, curve.boundaries, strict=True):
        if value_type(ends.type).width_of:
            values = ends.to_pylist()
            if any(len(end) > LONGEST_TEXT and end == following for end, following in pairwise(values)):
                raise ClusterKeyError(
                    f"cluster_by {key}: many values of {field.column} are longer than {LONGEST_TEXT:,} characters "
                    f"and begin alike, and no curve tells these apart. Use a shorter column, or the key {field.column} "
                    "alone"
                )
    return {
        curve_property(field.column): _encoded(curve, number, field, ids[field.column])
        for number, field in enumerate(key.on_curve)
    }


def recorded_curve(
    properties: Mapping[str, str], key: ClusterKey, ids: Mapping[str, int] | None = None
) -> Curve | None:
    """Return the curve that properties record, or None if part of it is missing.

    Boundaries are found by the field ids of the columns, or, without ``ids``, by their names.
    """
    columns = []
    for field in key.on_curve:
        by_name = [properties.get(curve_property(field.column))]
        texts = by_name if ids is None else curve_properties(properties).values()
        read = partial(_decoded, field, None if ids is None else ids.get(field.column))
        own = (CURVE_PREFIX.load(text, read) for text in texts)
        columns += [known for known in own if known is not None][:1]
    if not columns or len(columns) < key.curve:
        return None
    boundaries, ascending, newest = zip(*columns, strict=True)
    return Curve(boundaries, ascending=ascending, newest=min(newest))


def _encoded(curve: Curve, number: int, field: KeyField, field_id: int) -> str:
    """Return the text of a column of a curve, with boundaries as exact as they fit."""
    boundaries = curve.boundaries[number]
    facts = {"item": str(field), "id": field_id, "type": str(boundaries.type), "newest": curve.newest}
    facts["ascending"] = any(curve.ascending[number : number + 1])
    texts = value_type(boundaries.type).as_texts(boundaries)
    for bits in range(BITS, 0, -1):
        # Boundaries that repeat take no room; then parts are fewer.
        step = 1 << (BITS - bits)
        kept = [texts[max(place // step, 1) * step - 1] for place in range(1, len(texts) + 1)]
        for extra in (1, 0):
            packed = json.dumps(_shortened(kept, extra), ensure_ascii=False, separators=(",", ":"))
            data = base64.b64encode(zlib.compress(packed.encode(), 9)).decode()
            text = CURVE_PREFIX.dump({**facts, "shortened": data})
            if len(text) <= CURVE_PREFIX.longest:
                return text
    return CURVE_PREFIX.dump(facts)


def _decoded(
    field: KeyField, field_id: int | None, recorded: Mapping[str, Any]
) -> tuple[pa.Array, bool, int] | None:
    """Return what a column's property records, if it is of a key item and of this id, or else of this name."""
    (item,) = parse_cluster_key(recorded["item"]).fields
    is_own = item == field if field_id is None else recorded["id"] == field_id
    if not is_own or item.transform != field.transform:
        return None
    kind = value_type(_arrow_type(recorded["type"]))
    compressed = base64.b64decode(recorded["shortened"], validate=True)
    shared, added = json.loads(zlib.decompressobj().decompress(compressed, _MOST_UNPACKED))
    texts, last = [], ""
    for count, end in zip(shared, added, strict=True):
        last = last[:count] + end
        texts.append(last)
    if len(texts) != _COUNT:
        return None
    return kind.of_texts(texts), recorded.get("ascending") is True, int(recorded.get("newest", 0))


def _arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type that is printed as ``text``."""
    known = {str(kind): kind for column in TYPES for kind in column.bounds.values()}
    if text in known:
        return known[text]
    kind, _, numbers = text.removesuffix(")").partition("(")
    precision, scale = map(int, numbers.split(","))
    # Truncated decimals have more digits than others.
    return (pa.decimal256 if kind == "decimal256" else pa.decimal128)(precision, scale)


def _shortened(texts: Sequence[str], extra: int) -> tuple[list[int], list[str]]:
    """Return the start of each text, as the length that it shares with the start before, and the rest.

    A start is long enough to lie above the text before, and longer by ``extra`` characters. The last text
    keeps its start of `_LAST` characters, since rows beyond it count as new.
    """
    shared: list[int] = []
    added: list[str] = []
    last, before = "", next((text for text in texts if text != texts[0]), "")
    for text in texts:
        length = max(_shared(before, text) + 1 + extra, _LAST if text == texts[-1] else 0)
        end = last if text == before else text[:length]
        shared.append(_shared(last, end))
        added.append(end[shared[-1] :])
        before, last = text, end
    return shared, added


def _shared(left: str, right: str) -> int:
    """Return how many characters two texts have in common at their start."""
    differing = (n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    return next(differing, min(len(left), len(right)))
