"""The curve of a table: its boundaries, recorded in a property for each column, and how they are drawn.

Boundaries are drawn from those so far and a sample of the loads that no merge has written yet. They stand for the rows
from which they were drawn, so only the keys of new loads are read. The bounds of blocks would not do: late rows stretch
them.

A boundary is recorded as text (see `ColumnType.as_texts`). The start of a text is enough, as any value between two
parts separates them.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg.iceberg_table import IcebergTable, decoded_text
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, partition_scan
from dbt_recluster.iceberg.recorded_levels import levels_and_runs
from dbt_recluster.iceberg.rewrite.file_groups import file_group
from dbt_recluster.iceberg.rewrite.sample import LONGEST_TEXT, curve_values, sample_keys, sample_rows
from dbt_recluster.iceberg.table_properties import CURVE_PREFIX, curve_property
from dbt_recluster.key.box_tree import Points
from dbt_recluster.key.cluster_key import ClusterKey, KeyField, parse_cluster_key
from dbt_recluster.key.curve import BITS, Curve
from dbt_recluster.key.transforms import Truncate
from dbt_recluster.key.types import TYPES, BoolArray, value_type
from dbt_recluster.planner.curves import CurveBlocks, curve_of_bounds

# Limit in bytes of an unpacked property, in case it was tampered with.
_MOST_UNPACKED = 1 << 22
_COUNT = (1 << BITS) - 1
# The most characters kept of the last boundary.
_LAST = 64

# Rows of a sample: of each block, of each load at least, and of all loads.
_ROWS_OF_BLOCK, _LEAST_ROWS, _MOST_ROWS = 250, 1_000, 100_000
# With more blocks, the whole table is sampled, as at its first clustering.
_MOST_SAMPLED_BLOCKS = 1_000
# Loads that came sorted along the curve move its boundaries once they have this share of the rows.
_LEAST_SHARE = 0.05
# A column ascends if more than this share of a load lies beyond the boundaries so far.
BEYOND = 0.25


@dataclass(frozen=True)
class SampledLoad:
    """Sampled rows of a load: values of each column on a curve, and how many rows each row stands for."""

    columns: list[pa.Array]
    weight: float


class TableCurve:
    """The curve of a table's key.

    Attributes:
        drawn: The curve that was drawn last, or None if the recorded one holds.
        unrecorded: The properties that record it.
        sampled: Sampled rows of loads, by the snapshot that added them.
    """

    def __init__(self, iceberg: IcebergTable, key: ClusterKey, drawn: Curve | None = None) -> None:
        self._iceberg, self._key = iceberg, key
        self.drawn = drawn
        self.unrecorded: dict[str, str] = {}
        self.sampled: dict[int, SampledLoad] = {}

    @property
    def current(self) -> Curve | None:
        """The drawn curve, else the recorded one, or None."""
        iceberg, key = self._iceberg, self._key
        if self.drawn is not None or not key.curve:
            return self.drawn
        return iceberg.kept(f"curve of {key}", lambda: recorded_curve(iceberg.properties, key, iceberg.field_ids))

    def blocks(self, blocks: BlockMetadata) -> CurveBlocks:
        """Return blocks along the curve, which is drawn from their bounds if there is none of their types."""
        items, curve = slice(len(self._key.leading), None), self._of_types(blocks)
        if curve is None:
            curve = curve_of_bounds(blocks.lower[items], blocks.upper[items], blocks.unbounded[items], blocks.rows)
        return CurveBlocks(curve, blocks.lower, blocks.upper, blocks.unbounded, blocks.rows, blocks.partition)

    def _of_types(self, blocks: BlockMetadata) -> Curve | None:
        """Return the curve if its boundaries are of the types that the blocks' bounds have, or None."""
        curve, types = self.current, [column.type for column in blocks.lower[len(self._key.leading) :]]
        return curve if curve and [ends.type for ends in curve.boundaries] == types else None

    def samples(self, curve: Curve) -> dict[int, Points]:
        """Return the sampled rows as points of a curve."""
        loads = self.sampled.items()
        return {load: Points.from_columns(curve, sample.columns, sample.weight) for load, sample in loads}

    def draw(self, blocks: BlockMetadata, *, before_merge: bool = False) -> dict[str, str]:
        """Draw the boundaries if there are none, or new loads; return the properties that record them.

        The samples of the loads stay here. Small sorted loads are not sampled, except ``before_merge`` if loads
        ascend: merged loads are never sampled again, and the last boundary tells late rows from new ones.

        Raises:
            ClusterKeyError: Values of a column begin alike for so long that no boundary tells them apart.
        """
        key = self._key
        if not key.curve or not blocks.rows.sum():
            return {}
        curve = self._of_types(blocks)
        unmerged = self._unmerged_blocks(blocks, curve, before_merge)
        # Boundaries cover all loads up to `newest`. A number above every block's belongs to another table; main's
        # does not apply to a branch.
        newest, last = 0 if curve is None else curve.newest, int(blocks.sequence.max())
        is_own = self._iceberg.branch is None and newest <= last
        new: BoolArray = unmerged & ((blocks.sequence <= 0) | (blocks.sequence > (newest if is_own else 0)))
        # The planner uses samples of all loads, where these are few; boundaries need those of new loads only.
        sampled = unmerged if np.count_nonzero(unmerged) <= _MOST_SAMPLED_BLOCKS else new
        if is_few := np.count_nonzero(sampled) <= _MOST_SAMPLED_BLOCKS:
            has_sample = np.isin(blocks.added_by, list(self.sampled))
            self.sampled |= self._samples(blocks.take(sampled & ~has_sample))
        if curve is not None and not new.any():
            return {}
        if is_few and new.any():
            samples = [self.sampled[load] for load in np.unique(blocks.added_by[new]).tolist()]
            ascending = () if curve is None else self._ascending(curve, samples)
        else:
            ascending = () if curve is None else curve.ascending
            samples, new = [self._sample_of_table(int(blocks.rows.sum()))], np.ones(len(blocks), np.bool_)
        columns = [list(parts) for parts in zip(*(sample.columns for sample in samples), strict=True)]
        weights = [np.full(len(sample.columns[0]), sample.weight) for sample in samples]
        if curve is not None and (others := int(blocks.rows[~new].sum())):
            columns = [[*parts, ends] for parts, ends in zip(columns, curve.boundaries, strict=True)]
            weights.append(np.full(curve.parts - 1, others / (curve.parts - 1)))
        weight = np.concatenate(weights)
        drawn = Curve.from_columns([pa.concat_arrays(parts) for parts in columns], weight)
        drawn = replace(drawn, ascending=ascending, newest=newest if self._iceberg.branch else last)
        ids = self._iceberg.field_ids
        self.unrecorded = properties = as_properties(key, drawn, ids)
        self.drawn = recorded_curve(properties, key, ids) or drawn
        return properties

    def _ascending(self, curve: Curve, loads: Sequence[SampledLoad]) -> tuple[bool, ...]:
        """Return the columns in which a new load lies beyond the boundaries so far."""
        columns = [load.columns for load in loads if len(load.columns[0])]
        beyond = [[float(above.mean()) for above in curve.beyond(of_load)] for of_load in columns]
        share = np.max(beyond, axis=0) if beyond else np.zeros(len(curve.boundaries))
        # An attempt before may have drawn the same load.
        drawn = self.drawn.ascending if self.drawn is not None else ()
        return tuple(
            # A load cannot tell what lies beyond a truncated value.
            not isinstance(field.transform, Truncate) and (above > BEYOND or any(drawn[number : number + 1]))
            for number, (field, above) in enumerate(zip(self._key.on_curve, share.tolist(), strict=True))
        )

    def _unmerged_blocks(self, blocks: BlockMetadata, curve: Curve | None, before_merge: bool) -> BoolArray:
        """Return the blocks of loads to sample: those that no merge wrote, unless few and well sorted: bool (n,)."""
        if curve is None:
            return np.ones(len(blocks), np.bool_)
        level, run = levels_and_runs(self._iceberg, blocks, self._key)
        new: BoolArray = (run <= 0) & (level == 0)
        if (before_merge and any(curve.ascending)) or blocks.rows[new].sum() >= _LEAST_SHARE * blocks.rows.sum():
            return new
        layout = self.blocks(blocks).layout(run, blocks.added_by, level)
        return new if layout.load.any() else np.zeros(len(blocks), np.bool_)

    def _samples(self, blocks: BlockMetadata) -> dict[int, SampledLoad]:
        """Sample the rows of the loads that these blocks are."""
        if not len(blocks):
            return {}
        tasks = partition_scan(self._iceberg, blocks).tasks(blocks.path.to_pylist())
        least = max(1, int(blocks.rows.sum()) // _MOST_ROWS)
        groups, loads, rows, strides = [], [], {}, []
        # Files of one group have one partition spec.
        for number, spec in sorted(set(zip(blocks.added_by.tolist(), blocks.spec_id.tolist(), strict=True))):
            load = blocks.take(blocks.added_by == number)
            rows[number] = int(load.rows.sum())
            strides.append(max(least, rows[number] // max(_LEAST_ROWS, _ROWS_OF_BLOCK * len(load))))
            loads.append(number)
            paths = load.take(load.spec_id == spec).path.to_pylist()
            groups.append(file_group(tasks, paths, spec, level=0, run=0))
        sampled = sample_keys(self._iceberg, groups, self._key, strides)
        result: dict[int, SampledLoad] = {}
        for number, values in zip(loads, sampled, strict=True):
            columns = list(map(_as_boundaries, curve_values(values, self._key)))
            if number in result:
                columns = [pa.concat_arrays(both) for both in zip(result[number].columns, columns, strict=True)]
            result[number] = SampledLoad(columns, rows[number] / max(1, len(columns[0])))
        return result

    def _sample_of_table(self, rows: int) -> SampledLoad:
        """Sample the rows of the whole table."""
        fields = self._key.on_curve
        sample = sample_rows(self._iceberg, [field.column for field in fields], rows, _MOST_ROWS)
        values = [sample.column(f"column_{number}").combine_chunks() for number in range(len(fields))]
        columns = [field.transform.values(column) for field, column in zip(fields, values, strict=True)]
        return SampledLoad([_as_boundaries(column) for column in columns], rows / max(1, len(sample)))


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
        records = (CURVE_PREFIX.load(text, read) for text in texts)
        columns += [record for record in records if record is not None][:1]
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


def _decoded(field: KeyField, field_id: int | None, recorded: Mapping[str, Any]) -> tuple[pa.Array, bool, int] | None:
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
    types = {str(kind): kind for column in TYPES for kind in column.bounds.values()}
    if text in types:
        return types[text]
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


def _as_boundaries(values: pa.Array) -> pa.Array:
    """Return values for boundaries: text is cut off, and UTF-8."""
    kind = value_type(values.type)
    return kind.truncated(decoded_text(values), LONGEST_TEXT + 1) if kind.width_of else values
