"""Everything that a report says of one table, read once: its depth along the key, before and after, and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dbt_recluster.cluster_key import ClusterKey
from dbt_recluster.forecast import Forecast, forecast
from dbt_recluster.history import HistoryEntry, clustering_history
from dbt_recluster.iceberg.blocks import BlockMetadata, IntArray
from dbt_recluster.iceberg.snapshots import Snapshot, current_history
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.information import clustering_information
from dbt_recluster.key_values import value_text
from dbt_recluster.observation import Observation, observe, resolve_key
from dbt_recluster.planner import Blocks
from dbt_recluster.planner.depth import Sweep
from dbt_recluster.suspension import suspended_since

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# As many labels as fit the axis of a figure on a phone, and two where they are long.
_LABELS = 4
_APART = 0.3
_LONG = 12


@dataclass(frozen=True, eq=False)
class Layout:
    """Blocks along the cluster key at one moment.

    Attributes:
        lower, upper: Places of each block's bounds on the axis, float64 (n,), 0 to 1.
        level: Their levels, int64 (n,).
        at: Places where the depth changes, float64 (p,), ascending.
        depth: How many blocks cover each of these places, int64 (p,).
    """

    lower: Any
    upper: Any
    level: IntArray
    at: Any
    depth: IntArray


@dataclass(frozen=True, eq=False)
class Survey:
    """One table.

    Attributes:
        information: Its metrics now (:func:`dbt_recluster.information.clustering_information`).
        forecast: What reclustering it to the end would cost and gain.
        history: Its rounds and loads, oldest first.
        suspended: Since when it is suspended, None when it is not.
        now: Its blocks.
        before, after: Its blocks before and after the last recluster, None where the snapshots have expired or
            there was none.
        labels: Places on the axis and the keys there.
        partitions: Partitions; with several, they follow one another on the axis, and the axes of ``before``,
            ``after`` and ``now`` are alike but not the same.
    """

    information: Mapping[str, Any]
    forecast: Forecast
    history: Sequence[HistoryEntry]
    suspended: str | None
    now: Layout
    before: Layout | None
    after: Layout | None
    labels: Sequence[tuple[float, str]]
    partitions: int

    @property
    def table(self) -> str:
        """The table's identifier."""
        return str(self.information["table"])


def survey(
    spark: SparkSession,
    table: str,
    cluster_by: str | Sequence[str] | None = None,
    *,
    depth: float | None = None,
    strategy: str | None = None,
    block_rows: int = 1_000_000,
) -> Survey:
    """Look at a table. Nothing is changed.

    Args:
        spark: A session with Iceberg's extensions.
        table: ``schema.table`` or ``catalog.schema.table``.
        cluster_by: The key to look along; None takes the table's sort order.
        depth: For the forecast, as in :func:`dbt_recluster.maintenance.recluster`.
        strategy: Likewise.
        block_rows: Likewise.

    Raises:
        NotAnIcebergTableError, ClusterKeyError, OptionError: Bad input.
    """
    target = IcebergTable.load(spark, table)
    key = resolve_key(target, cluster_by)
    moments = [observe(target, key)]
    edges = _last_recluster(current_history(target))
    if edges is not None:
        moments += [observe(target, key, snapshot_id=each) for each in edges]
    layouts = _layouts(moments)
    return Survey(
        information=clustering_information(spark, table, cluster_by),
        forecast=forecast(spark, table, cluster_by, depth=depth, strategy=strategy, block_rows=block_rows),
        history=clustering_history(spark, table),
        suspended=suspended_since(target.properties),
        now=layouts[0],
        before=layouts[1] if edges else None,
        after=layouts[2] if edges else None,
        labels=_labels(moments[0].metadata, layouts[0], key, target.columns().types),
        partitions=len(np.unique(moments[0].blocks.partition)),
    )


def _last_recluster(snapshots: Sequence[Snapshot]) -> tuple[int, int] | None:
    """Return the snapshots before and after the last recluster; its rounds follow each other directly."""
    ours = ["recluster.sets" in snapshot.summary for snapshot in snapshots]
    if not any(ours):
        return None
    last = len(ours) - 1 - ours[::-1].index(True)
    first = last
    while first and ours[first - 1]:
        first -= 1
    return (snapshots[first - 1].id, snapshots[last].id) if first else None


def _layouts(moments: Sequence[Observation]) -> list[Layout]:
    """Return the layout of each moment: on one axis, unless there are partitions, whose order no moment shares."""
    together = all(len(np.unique(each.blocks.partition)) <= 1 for each in moments)
    if together and len(moments) > 1:
        joined = _joined([each.metadata for each in moments])
        ends = np.cumsum([len(each.metadata) for each in moments])
        parts = [slice(end - len(each.metadata), end) for each, end in zip(moments, ends, strict=True)]
        pairs = [(joined.lower[part], joined.upper[part], joined.points) for part in parts]
    else:
        pairs = [(each.blocks.lower, each.blocks.upper, each.blocks.points) for each in moments]
    points = max(points for _, _, points in pairs)
    places = _places([each.metadata for each in moments], pairs, points) if together else None
    layouts = []
    for each, (lower, upper, count) in zip(moments, pairs, strict=True):
        axis = np.arange(count) / max(1, count - 1) if places is None else places
        depth = Sweep.over(lower, upper, count).point_depth() if count else np.zeros(0, np.int64)
        layouts.append(Layout(axis[lower], axis[upper], each.blocks.level, axis, depth))
    return layouts


def _places(
    moments: Sequence[BlockMetadata], pairs: Sequence[tuple[IntArray, IntArray, int]], points: int
) -> Any:
    """Return the place of each rank, 0 to 1, true to scale, or None where only the ranks can be drawn.

    Only a single number or time has a scale, and one that has nearly all its blocks in a corner would hide them.
    """
    if len(moments[0].lower) != 1 or points < 2:
        return None
    values = np.full(points, np.nan)
    for each, (lower, upper, _) in zip(moments, pairs, strict=True):
        for ranks, column, known in (
            (lower, each.lower[0], np.ones(len(each), bool)),
            (upper, each.upper[0], ~each.unbounded[0]),
        ):
            numbers = _numbers(column)
            if numbers is None:
                return None
            use = known & np.isfinite(numbers)
            values[ranks[use]] = numbers[use]
    found = np.flatnonzero(np.isfinite(values))
    if len(found) < 2 or values[found[0]] == values[found[-1]]:
        return None
    values = np.interp(np.arange(points), found, values[found])
    places = (values - values[0]) / (values[-1] - values[0])
    low, high = np.quantile(places, [0.05, 0.95])
    return places if high - low > 0.25 else None


def _numbers(column: pa.Array) -> Any:
    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return None
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def _joined(moments: Sequence[BlockMetadata]) -> Blocks:
    """Put the blocks of several moments on one axis."""
    columns = range(len(moments[0].lower))

    def together(name: str) -> list[Any]:
        return [pa.concat_arrays([getattr(each, name)[i] for each in moments if len(each)]) for i in columns]

    return Blocks.build(
        lower=together("lower"),
        upper=together("upper"),
        unbounded=[np.concatenate([each.unbounded[i] for each in moments]) for i in columns],
    )


def _labels(
    blocks: BlockMetadata, layout: Layout, key: ClusterKey, types: Mapping[str, str]
) -> list[tuple[float, str]]:
    """Return a few places along the axis with the first item of the key there."""
    count = len(blocks)
    if not count:
        return []
    field = key.fields[0]
    known = np.flatnonzero(~blocks.unbounded[0]) + count
    bounds = np.concatenate([np.arange(count), known])
    places = np.concatenate([layout.lower, layout.upper])[bounds]
    order = np.argsort(places, kind="stable")
    labels: list[tuple[float, str]] = []
    for wanted in np.linspace(0, 1, _LABELS):
        nearest = order[min(int(np.searchsorted(places[order], wanted - 1e-9)), len(order) - 1)]
        bound, place = int(bounds[nearest]), float(places[nearest])
        column = blocks.lower[0] if bound < count else blocks.upper[0]
        text = value_text(column[bound % count].as_py(), field, types.get(field.column, ""))
        if not labels or (text != labels[-1][1] and place - labels[-1][0] >= _APART):
            labels.append((place, text))
    if max(len(text) for _, text in labels) > _LONG:
        return [labels[0], labels[-1]] if len(labels) > 1 else labels
    return labels
