"""The data of a table's report: its depth along the key, before and after the last recluster, and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from dbt_recluster.clustering.costs.cost_model import Balance, CostModel, ReclusterEstimate
from dbt_recluster.clustering.curve_boundaries import curve_blocks
from dbt_recluster.clustering.history import HistoryEntry, is_of_round, table_history
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.table import ClusteredTable, SnapshotBlocks
from dbt_recluster.iceberg.iceberg_table import Snapshot
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata, IntArray
from dbt_recluster.planner import Blocks, Reads
from dbt_recluster.planner.arrays import Intervals

# The labels that fit the axis of a figure on a phone; if they are long, two.
_LABELS = 4
_LEAST_DISTANCE = 0.3
_LONG = 12


@dataclass(frozen=True, eq=False)
class Layout:
    """Blocks along the cluster key at one moment.

    Attributes:
        lower, upper: Positions of each block's bounds on the axis, 0 to 1, float64 (n,).
        level: Their levels, int64 (n,).
        at: Positions where the depth changes, ascending, float64 (p,).
        depth: How many blocks cover each of them, int64 (p,).
        ends: How often a read ends at each of them or up to the next, float64 (p,), or None if none are known.
    """

    lower: Any
    upper: Any
    level: IntArray
    at: Any
    depth: IntArray
    ends: Any = None


@dataclass(frozen=True, eq=False)
class ReportData:
    """The data of one table's report.

    Attributes:
        information: Its metrics now (:func:`dbt_recluster.clustering.information.table_information`).
        estimate: What reclustering it to the end would cost and gain.
        history: Its rounds and other commits, oldest first.
        suspended: Since when it is suspended, or None.
        now: Its blocks.
        before, after: Its blocks before and after the last recluster; None if there was none, or its snapshots have
            expired.
        balance: Cost and benefit of the past week's reclustering, or None (:meth:`CostModel.balance`).
        labels: Positions on the axis and the keys there; empty with several partitions, which follow one another.
        partitions: Number of partitions. With several, ``before``, ``after`` and ``now`` do not share one axis.
    """

    information: Mapping[str, Any]
    estimate: ReclusterEstimate
    history: Sequence[HistoryEntry]
    suspended: str | None
    now: Layout
    before: Layout | None
    after: Layout | None
    balance: Balance | None
    labels: Sequence[tuple[float, str]]
    partitions: int

    @property
    def table(self) -> str:
        """The table's identifier."""
        return str(self.information["table"])


def report_data(table: ClusteredTable, options: ReclusterOptions) -> ReportData:
    """Collect the data of a table's report, which shows the cost and gain of a recluster. Nothing is changed."""
    costs = CostModel.of(table, options)
    moments = [table.blocks()]
    edges = _last_recluster(table.snapshots())
    if edges is not None:
        moments += [table.blocks(snapshot_id=snapshot) for snapshot in edges]
    layouts = _layouts(table, moments)
    partitions = len(np.unique(moments[0].blocks.partition))
    has_labels = partitions == 1 and bool(table.key.leading)
    return ReportData(
        information=table_information(table, block_rows=options.block_rows),
        estimate=costs.recluster(options.where),
        history=table_history(table),
        suspended=table.suspended,
        now=layouts[0],
        before=layouts[1] if edges else None,
        after=layouts[2] if edges else None,
        balance=costs.balance(),
        labels=_labels(table, moments[0].metadata, layouts[0]) if has_labels else [],
        partitions=partitions,
    )


def _last_recluster(snapshots: Sequence[Snapshot]) -> tuple[int, int] | None:
    """Return the snapshots before and after the last recluster, whose rounds follow each other directly."""
    edges, before = None, None
    for is_ours, group in groupby(snapshots, is_of_round):
        *_, last = group
        if is_ours:
            edges = (before.id, last.id) if before else None
        before = last
    return edges


def _along_axis(table: ClusteredTable, moment: SnapshotBlocks) -> BlockMetadata:
    """Return all blocks with their bounds on the axis of the figures: of the key, or of the places on its curve."""
    metadata = moment.metadata
    if not table.key.curve:
        return metadata
    blocks = curve_blocks(table.key, table.curve, metadata)
    lower, upper, unbounded, _ = blocks.along_curve(moment.blocks.run, metadata.added_by)
    return replace(metadata, lower=lower, upper=upper, unbounded=unbounded)


def _layouts(table: ClusteredTable, moments: Sequence[SnapshotBlocks]) -> list[Layout]:
    """Return the layout of each moment, on one axis unless there are partitions, whose order moments do not share."""
    bounds = [_along_axis(table, moment) for moment in moments]
    one_axis = all(len(np.unique(moment.blocks.partition)) <= 1 for moment in moments)
    read_ends = [moment.blocks.reads for moment in moments]
    if one_axis and len(moments) > 1:
        joined = _joined(bounds, table.key_reads)
        read_ends = [joined.reads] * len(moments)
        ends = np.cumsum([len(moment.metadata) for moment in moments])[:-1]
        lower, upper = np.split(joined.lower, ends), np.split(joined.upper, ends)
        ranks = [(*both, joined.points) for both in zip(lower, upper, strict=True)]
    else:
        ranks = [(moment.blocks.lower, moment.blocks.upper, moment.blocks.points) for moment in moments]
    points = max(count for _, _, count in ranks)
    scale = _positions(bounds, ranks, points) if one_axis else None
    layouts = []
    for moment, (low, high, count), reads in zip(moments, ranks, read_ends, strict=True):
        axis = np.arange(count) / max(1, count - 1) if scale is None else scale
        depth = Intervals(low, high + 1, count).depth()
        ending = None if reads is None else reads.in_cells.reshape(-1, 2).sum(axis=1)
        layouts.append(Layout(axis[low], axis[high], moment.blocks.level, axis, depth, ending))
    return layouts


def _positions(
    bounds: Sequence[BlockMetadata], ranks: Sequence[tuple[IntArray, IntArray, int]], points: int
) -> Any:
    """Return the position of each rank, 0 to 1 and true to scale, or None if only the ranks can be drawn.

    Only a single number or time has a scale, and a scale that puts nearly all blocks into a corner would hide them.
    """
    if len(bounds[0].lower) != 1 or points < 2:
        return None
    values = np.full(points, np.nan)
    for moment, (lower, upper, _) in zip(bounds, ranks, strict=True):
        for bound_ranks, column, known in (
            (lower, moment.lower[0], np.ones(len(lower), bool)),
            (upper, moment.upper[0], ~moment.unbounded[0]),
        ):
            numbers = _numbers(column)
            if numbers is None:
                return None
            use = known & np.isfinite(numbers)
            values[bound_ranks[use]] = numbers[use]
    finite = np.flatnonzero(np.isfinite(values))
    if len(finite) < 2 or values[finite[0]] == values[finite[-1]]:
        return None
    values = np.interp(np.arange(points), finite, values[finite])
    positions = (values - values[0]) / (values[-1] - values[0])
    low, high = np.quantile(positions, [0.05, 0.95])
    return positions if high - low > 0.25 else None


def _numbers(column: pa.Array) -> Any:
    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return None
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def _joined(moments: Sequence[BlockMetadata], reads: Reads | None) -> Blocks:
    """Put the blocks of several moments on one axis."""
    items = range(len(moments[0].lower))

    def together(name: str) -> list[Any]:
        columns = [[getattr(moment, name)[item] for moment in moments] for item in items]
        return [pa.concat_arrays([part for part in parts if len(part)]) for parts in columns]

    return Blocks.build(
        lower=together("lower"),
        upper=together("upper"),
        unbounded=[np.concatenate([moment.unbounded[item] for moment in moments]) for item in items],
        reads=reads,
    )


def _labels(table: ClusteredTable, blocks: BlockMetadata, layout: Layout) -> list[tuple[float, str]]:
    """Return a few positions along the axis with the first item of the key there."""
    count = len(blocks)
    if not count:
        return []
    known = np.flatnonzero(~blocks.unbounded[0]) + count
    bounds = np.concatenate([np.arange(count), known])
    positions = np.concatenate([layout.lower, layout.upper])[bounds]
    order = np.argsort(positions, kind="stable")
    nearest = [
        order[min(int(np.searchsorted(positions[order], wanted - 1e-9)), len(order) - 1)]
        for wanted in np.linspace(0, 1, _LABELS)
    ]
    columns = [blocks.lower[0] if bounds[place] < count else blocks.upper[0] for place in nearest]
    values = [column[int(bounds[place]) % count] for column, place in zip(columns, nearest, strict=True)]
    labels: list[tuple[float, str]] = []
    for place, text in zip(nearest, table.item_texts(0, values), strict=True):
        position = float(positions[place])
        if not labels or (text != labels[-1][1] and position - labels[-1][0] >= _LEAST_DISTANCE):
            labels.append((position, text))
    if max(len(text) for _, text in labels) > _LONG:
        return [labels[0], labels[-1]] if len(labels) > 1 else labels
    return labels
