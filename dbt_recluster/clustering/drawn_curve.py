"""Draw the boundaries of a curve, from those so far and a sample of the loads that no merge has written yet.

Boundaries stand for the rows from which they were drawn, so only the keys of new loads are read. The bounds of blocks
would not do: late rows stretch them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from dbt_recluster.clustering import curve_boundaries
from dbt_recluster.clustering.curve_boundaries import SampledLoad
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.iceberg.iceberg_table import decoded_text
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, BoolArray
from dbt_recluster.iceberg.metadata.manifest_entries import scan_tasks
from dbt_recluster.iceberg.recorded_levels import levels_and_runs
from dbt_recluster.iceberg.rewrite.file_groups import file_group
from dbt_recluster.iceberg.rewrite.sample import LONGEST_TEXT, curve_values, sample_keys
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.transforms import Truncate
from dbt_recluster.key.types import value_type

# Rows of a sample: of each block, of each load at least, and of all loads.
_ROWS_OF_BLOCK, _LEAST_ROWS, _MOST_ROWS = 250, 1_000, 100_000
# With more blocks, the whole table is sampled, as at its first clustering.
_MOST_BLOCKS = 1_000
# Loads that came sorted along the curve move its boundaries once they have this share of the rows.
_LEAST_SHARE = 0.05
# A column ascends if more than this share of a load lies beyond the boundaries so far.
BEYOND = 0.25


def draw_curve(table: ClusteredTable, blocks: BlockMetadata, *, before_merge: bool = False) -> dict[str, str]:
    """Draw the boundaries of a table's curve if it has none, or new loads; return the properties that record them.

    The samples of the loads stay with the table. Sorted loads of few rows are left alone. Where loads ascend, they are
    drawn ``before_merge``: no later call samples them, and the last boundary tells late rows from new ones.

    Raises:
        ClusterKeyError: Values of a column begin alike for so long that no boundary tells them apart.
    """
    key = table.key
    if not key.curve or not blocks.rows.sum():
        return {}
    curve = table.curve
    if curve is not None and not curve_boundaries.is_curve_of(curve, key, blocks):
        curve = None
    unmerged = _unmerged_blocks(table, blocks, curve, before_merge)
    new = unmerged & ~_are_known(table, blocks, curve)
    # The planner uses samples of all loads, where these are few; boundaries need those of new loads only.
    sampled = unmerged if np.count_nonzero(unmerged) <= _MOST_BLOCKS else new
    if is_few := np.count_nonzero(sampled) <= _MOST_BLOCKS:
        known = np.isin(blocks.added_by, list(table.sampled))
        table.sampled |= _samples(table, blocks.take(sampled & ~known))
    if curve is not None and not new.any():
        return {}
    if is_few and new.any():
        ascending = _ascending(table, curve, blocks, new)
        samples = [table.sampled[load] for load in np.unique(blocks.added_by[new]).tolist()]
    else:
        ascending = () if curve is None else curve.ascending
        samples, new = [_sample_of_table(table, int(blocks.rows.sum()))], np.ones(len(blocks), np.bool_)
    columns = [list(parts) for parts in zip(*(sample.columns for sample in samples), strict=True)]
    weights = [np.full(len(sample.columns[0]), sample.weight) for sample in samples]
    if curve is not None and (others := int(blocks.rows[~new].sum())):
        columns = [[*parts, ends] for parts, ends in zip(columns, curve.boundaries, strict=True)]
        weights.append(np.full(curve.parts - 1, others / (curve.parts - 1)))
    weight = np.concatenate(weights)
    drawn = Curve.of([pa.concat_arrays(parts) for parts in columns], weight)
    drawn = replace(drawn, ascending=ascending, newest=int(blocks.sequence.max()))
    ids = table.iceberg.field_ids
    properties = curve_boundaries.as_properties(key, drawn, ids)
    table.drawn_curve = curve_boundaries.recorded_curve(properties, key, ids) or drawn
    return properties


def _are_known(table: ClusteredTable, blocks: BlockMetadata, curve: Curve | None) -> BoolArray:
    """Return the blocks of loads that the boundaries know, merged or not: bool (n,)."""
    newest = 0 if curve is None or table.iceberg.branch is not None else curve.newest
    # A newer number than any block's comes from another table or branch.
    known: BoolArray = (blocks.sequence > 0) & (blocks.sequence <= newest) & (newest <= blocks.sequence.max())
    return known


def _ascending(
    table: ClusteredTable, curve: Curve | None, blocks: BlockMetadata, new: BoolArray
) -> tuple[bool, ...]:
    """Return the columns in which a new load lies beyond the boundaries so far."""
    if curve is None:
        return ()
    loads = [table.sampled[load].columns for load in np.unique(blocks.added_by[new]).tolist()]
    beyond = [[float(above.mean()) for above in curve.beyond(load)] for load in loads if len(load[0])]
    share = np.max(beyond, axis=0) if beyond else np.zeros(len(curve.boundaries))
    # An attempt before may have drawn the same load.
    drawn = table.drawn_curve.ascending if table.drawn_curve is not None else ()
    return tuple(
        # A load cannot tell what lies beyond a truncated value.
        not isinstance(field.transform, Truncate) and (above > BEYOND or any(drawn[number : number + 1]))
        for number, (field, above) in enumerate(zip(table.key.on_curve, share.tolist(), strict=True))
    )


def _unmerged_blocks(
    table: ClusteredTable, blocks: BlockMetadata, curve: Curve | None, before_merge: bool
) -> BoolArray:
    """Return the blocks of loads to sample: those that no merge wrote, unless few and well sorted: bool (n,)."""
    if curve is None:
        return np.ones(len(blocks), np.bool_)
    level, run = levels_and_runs(table.iceberg, blocks, table.key)
    new: BoolArray = (run <= 0) & (level == 0)
    if (before_merge and any(curve.ascending)) or blocks.rows[new].sum() >= _LEAST_SHARE * blocks.rows.sum():
        return new
    layout = curve_boundaries.curve_blocks(table.key, curve, blocks).layout(run, blocks.added_by, level)
    return new if layout.load.any() else np.zeros(len(blocks), np.bool_)


def _samples(table: ClusteredTable, blocks: BlockMetadata) -> dict[int, SampledLoad]:
    """Sample the rows of the loads that these blocks are."""
    if not len(blocks):
        return {}
    assert blocks.snapshot_id is not None
    tasks = scan_tasks(table.iceberg, blocks.snapshot_id, blocks.path.to_pylist())
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
    sampled = sample_keys(table.iceberg, groups, table.key, strides)
    result: dict[int, SampledLoad] = {}
    for number, values in zip(loads, sampled, strict=True):
        columns = list(map(_as_boundaries, curve_values(values, table.key)))
        if number in result:
            columns = [pa.concat_arrays(both) for both in zip(result[number].columns, columns, strict=True)]
        result[number] = SampledLoad(columns, rows[number] / max(1, len(columns[0])))
    return result


def _sample_of_table(table: ClusteredTable, rows: int) -> SampledLoad:
    """Sample the rows of the whole table."""
    fields = table.key.on_curve
    sample = table.iceberg.sample([field.column for field in fields], rows, _MOST_ROWS)
    values = [sample.column(f"column_{number}").combine_chunks() for number in range(len(fields))]
    columns = [field.transform.values(column) for field, column in zip(fields, values, strict=True)]
    return SampledLoad([_as_boundaries(column) for column in columns], rows / max(1, len(sample)))


def _as_boundaries(values: pa.Array) -> pa.Array:
    """Return values for boundaries: text is cut off, and UTF-8."""
    kind = value_type(values.type)
    return kind.truncated(decoded_text(values), LONGEST_TEXT + 1) if kind.width_of else values
