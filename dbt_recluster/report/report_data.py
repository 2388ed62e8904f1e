"""The data of a table's report: its depth along the key, now and around the last recluster, costs and history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dbt_recluster.advice.cost_model import Balance, CostModel, PriceList, ReclusterEstimate
from dbt_recluster.advice.overview import Overview, table_overview
from dbt_recluster.clustering.history import HistoryEntry, is_of_round, table_history
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.table import ClusteredTable, SnapshotBlocks
from dbt_recluster.iceberg.iceberg_table import Snapshot
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.types import BoolArray, FloatArray, IntArray, value_type
from dbt_recluster.planner import Blocks

# Labels that fit the axis of a figure on a phone, their least distance, and the length from which two fit.
_LABELS, _LEAST_DISTANCE, _LONG = 4, 0.3, 10


@dataclass(frozen=True, eq=False)
class DrawnBlocks:
    """Blocks along the cluster key, or one column of it, at one moment."""

    lower: Any  # positions of the lower bounds on the axis, 0 to 1, float64 (n,)
    upper: Any  # positions of the upper bounds
    level: IntArray  # levels of the blocks, int64 (n,)
    at: Any  # positions where the depth changes, ascending, float64 (p,)
    depth: IntArray  # blocks over each of them, int64 (p,)
    ends: Any = None  # weight of the reads that end there or up to the next one, float64 (p,), or None
    labels: Sequence[tuple[float, str]] = ()  # positions and values; none with several partitions


@dataclass(frozen=True, eq=False)
class ReportData:
    """The data of one table's report."""

    overview: Overview
    information: Mapping[str, Any]  # :func:`dbt_recluster.clustering.information.table_information`
    estimate: ReclusterEstimate
    history: Sequence[HistoryEntry]
    now: DrawnBlocks
    before: DrawnBlocks | None  # before the last recluster; None without one, or if its snapshots expired
    after: DrawnBlocks | None  # after it, likewise
    changed: bool  # whether the table has changed since then
    on_curve: Mapping[str, DrawnBlocks]  # along each column of its curve, by name; empty without one
    threshold: float | None  # the greatest average depth allowed; None if partitions have different ones
    balance: Balance | None  # of the past week's reclustering (:meth:`CostModel.balance`)
    prices: PriceList | None  # by which the overview's money was counted
    partitions: int  # with several, `before`, `after` and `now` do not share one axis


def report_data(
    table: ClusteredTable,
    options: ReclusterOptions,
    prices: PriceList | None = None,
    overview: Overview | None = None,
) -> ReportData:
    """Collect the data of a table's report, with its line of the overview unless that is given."""
    overview = overview or table_overview(table, options, prices=prices)
    costs = CostModel.from_options(table, options)
    ids = _last_recluster(table.iceberg.snapshots())
    moments = [table.blocks(snapshot_id=snapshot_id) for snapshot_id in (None, *ids)]
    now, *around = _drawn_blocks(table, moments)
    before, after = around or (None, None)
    curve_items = enumerate(table.key.on_curve, len(table.key.leading))
    partitions = np.bincount(moments[0].blocks.partition)
    thresholds = set(costs.policy.thresholds(partitions).tolist())
    return ReportData(
        overview=overview,
        information=table_information(table, block_rows=options.block_rows),
        estimate=costs.recluster(table.predicate(options.where)),
        history=table_history(table),
        now=now,
        before=before,
        after=after,
        changed=bool(ids) and ids[-1] != moments[0].metadata.snapshot_id,
        on_curve={str(field): _along_column(table, item, moments[0]) for item, field in curve_items},
        threshold=thresholds.pop() if len(thresholds) == 1 else None,
        balance=costs.balance(),
        prices=prices,
        partitions=len(partitions),
    )


def _last_recluster(snapshots: Sequence[Snapshot]) -> Sequence[int]:
    """Return the snapshots before and after the last recluster, of rounds in a row, if there is one."""
    lasts = [(is_ours, list(group)[-1].id) for is_ours, group in groupby(snapshots, is_of_round)]
    edges = [(before, after) for (_, before), (is_ours, after) in pairwise(lasts) if is_ours]
    return edges[-1] if edges else ()


def _drawn_blocks(table: ClusteredTable, moments: Sequence[SnapshotBlocks]) -> list[DrawnBlocks]:
    """Return the blocks of each moment to draw, on one axis unless there are partitions."""
    on_axis, scale = [moment.blocks for moment in moments], None
    if is_one := all(len(np.unique(blocks.partition)) <= 1 for blocks in on_axis):
        on_axis, scale = _on_one_axis(table, moments)
    drawn = []
    for moment, blocks in zip(moments, on_axis, strict=True):
        axis = np.arange(blocks.points) / max(1, blocks.points - 1) if scale is None else scale
        ends = None if blocks.reads is None else blocks.reads.in_cells.reshape(-1, 2).sum(axis=1)
        lower, upper = axis[blocks.lower], axis[blocks.upper]
        labels = _labels(table, moment.metadata, lower, upper) if is_one and table.key.leading else []
        depth = blocks.intervals.depth()
        drawn.append(DrawnBlocks(lower, upper, moment.blocks.level, axis, depth, ends, labels))
    return drawn


def _along_column(table: ClusteredTable, item: int, moment: SnapshotBlocks) -> DrawnBlocks:
    column, metadata = table.under(ClusterKey((table.key.fields[item],))), moment.metadata.items([item])
    blocks = column.planner_blocks(metadata, moment.blocks.level, moment.blocks.run)
    return _drawn_blocks(column, [replace(moment, metadata=metadata, blocks=blocks)])[0]


def _on_one_axis(table: ClusteredTable, moments: Sequence[SnapshotBlocks]) -> tuple[list[Blocks], FloatArray | None]:
    """Return the blocks of each moment on one axis of the key or its curve, and the positions of ranks on its scale."""
    bounds = [(m.metadata.lower, m.metadata.upper, m.metadata.unbounded) for m in moments]
    if table.key.curve:
        curves = [(table.key_curve.blocks(m.metadata), m.blocks.run) for m in moments]
        bounds = [blocks.along_curve(np.maximum(run, 0)) for blocks, run in curves]
    # Of each item, the columns of all moments.
    lowest, highest, unknown = (list(zip(*of_moments, strict=True)) for of_moments in zip(*bounds, strict=True))
    lowers, uppers = (
        [pa.concat_arrays([part for part in parts if len(part)] or parts[:1]) for parts in columns]
        for columns in (lowest, highest)
    )
    masks = [np.concatenate(parts) for parts in unknown]
    joined = Blocks.build(lower=lowers, upper=uppers, unbounded=masks, reads=table.key_reads)
    ends = np.cumsum([len(moment.metadata) for moment in moments])[:-1]
    parts = [joined.take(part) for part in np.split(np.arange(len(joined)), ends)]
    return parts, _scale(joined, lowers[0], uppers[0], masks[0]) if len(lowers) == 1 else None


def _scale(blocks: Blocks, lower: pa.Array, upper: pa.Array, unbounded: BoolArray) -> FloatArray | None:
    """Return the position of each rank, 0 to 1, or None without numbers, or if nearly all blocks are in a corner."""
    ends = pa.concat_arrays([lower, upper.filter(pa.array(~unbounded))])
    if not (kind := value_type(ends.type)).is_number:
        return None
    numbers = kind.numbers(ends).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    use, values = np.isfinite(numbers), np.full(blocks.points, np.nan)
    values[np.concatenate([blocks.lower, blocks.upper[~unbounded]])[use]] = numbers[use]
    finite = np.flatnonzero(np.isfinite(values))
    if len(finite) < 2 or values[finite[0]] == values[finite[-1]]:
        return None
    scaled = values[finite] / np.abs(values[finite]).max()  # the difference of finite numbers may be infinite
    values = np.interp(np.arange(len(values)), finite, scaled)
    positions: FloatArray = (values - values[0]) / (values[-1] - values[0])
    low, high = np.quantile(positions, [0.05, 0.95])
    return positions if high - low > 0.25 else None


def _labels(
    table: ClusteredTable, blocks: BlockMetadata, lower: FloatArray, upper: FloatArray
) -> list[tuple[float, str]]:
    """Return a few positions of bounds with the value of the key's first item there."""
    if not len(blocks):
        return []
    bounded = ~blocks.unbounded[0]
    positions = np.concatenate([lower, upper[bounded]])
    values = pa.concat_arrays([blocks.lower[0], blocks.upper[0].filter(pa.array(bounded))])
    order = np.argsort(positions, kind="stable")
    nearest = np.searchsorted(positions[order], np.linspace(0, 1, _LABELS) - 1e-9)
    places = order[np.minimum(nearest, len(order) - 1)].tolist()
    labels: list[tuple[float, str]] = []
    for place, text in zip(places, table.item_texts(0, [values[place] for place in places]), strict=True):
        position = float(positions[place])
        if not labels or (text != labels[-1][1] and position - labels[-1][0] >= _LEAST_DISTANCE):
            labels.append((position, text))
    if max(len(text) for _, text in labels) > _LONG:
        return [labels[0], labels[-1]] if len(labels) > 1 else labels
    return labels
