"""The overview: how well each of many tables is clustered, in one line for each. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from dbt_recluster.clustering.checkpoint import Checkpoint
from dbt_recluster.clustering.costs.cost_model import CostModel, recorded_depth, with_depth
from dbt_recluster.clustering.history import PREFIX, history_entries
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.planned_round import PlannedRound
from dbt_recluster.clustering.result import Figures
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import AUTO, parse_number
from dbt_recluster.exceptions import KeyTypeError, UnsupportedTableError
from dbt_recluster.iceberg.sort_order import TableChange, check_bounds_are_recorded, table_cluster_key

# The worst first.
FAILING, DEEP, NOT_CLUSTERABLE, SUSPENDED, UNCLUSTERED, WELL_CLUSTERED = VERDICTS = (
    "failing",
    "deep",
    "not clusterable",
    "suspended",
    "unclustered",
    "well clustered",
)
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)


@dataclass(frozen=True)
class TableOverview(Figures):
    """A table in the overview. Figures that are not known are None.

    Attributes:
        table: The table.
        verdict: ``well clustered``; ``deep``: a recluster would merge blocks that overlap; ``suspended``;
            ``unclustered``: it has no cluster key; ``not clusterable``: its key's type has no order, or its files
            record no bounds of it; ``failing``: it cannot be read, or its model's options or its key are refused.
        reason: Why.
        cluster_key: Its key.
        average_depth: Its average depth.
        read_depth: Its read depth, where reads are known.
        is_expected: Whether the depths and fragmentation are those that the last round expected to leave. Nothing
            has changed since, and no manifest was read.
        threshold: The greatest average depth allowed; of a share of the blocks, that of the worst partition.
        blocks: Its blocks.
        bytes: Their bytes.
        fragmentation: Blocks for each full one.
        loaded_bytes_day: Bytes of new rows in the past 24 hours, as far back as snapshots are kept.
        loaded_bytes_week: Those of the past seven days.
        rewritten_bytes_day: Bytes that reclustering has read in the past 24 hours.
        rewritten_bytes_week: Those of the past seven days.
        last_recluster: When the last round was committed, ISO 8601 in UTC.
        conflicts: How often rounds of the past seven days started again because another writer was faster.
        recluster_bytes: Bytes that reclustering it to the end would read.
        gain_per_gigabyte: Blocks fewer that a query for one key opens then, for each GB of them. A budget for several
            tables is spent in this order.
        suspended: Since when it is suspended, or None.
    """

    table: str
    verdict: str
    reason: str = ""
    cluster_key: str | None = None
    average_depth: float | None = None
    read_depth: float | None = None
    is_expected: bool = False
    threshold: float | None = None
    blocks: int | None = None
    bytes: int | None = None
    fragmentation: float | None = None
    loaded_bytes_day: int | None = None
    loaded_bytes_week: int | None = None
    rewritten_bytes_day: int | None = None
    rewritten_bytes_week: int | None = None
    last_recluster: str | None = None
    conflicts: int | None = None
    recluster_bytes: int | None = None
    gain_per_gigabyte: float | None = None
    suspended: str | None = None

    @property
    def depth(self) -> float | None:
        """The depth that decides: the read depth where reads are known, otherwise the average depth."""
        return self.average_depth if self.read_depth is None else self.read_depth

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts tables: the worst verdict first, then the most gain for a byte, then the deepest by its threshold."""
        depth = (self.depth or 0.0) / (self.threshold or 1.0)
        return VERDICTS.index(self.verdict), -(self.gain_per_gigabyte or 0.0), -depth, self.table


def totals(tables: Sequence[TableOverview]) -> dict[str, Any]:
    """Return the number of tables, of those with each verdict, and the sums of their figures."""
    summed = [f.name for f in fields(TableOverview) if f.type == "int | None"]
    verdicts = [table.verdict for table in tables]
    return {
        "tables": len(tables),
        "verdicts": {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts},
        **{name: sum(asdict(table)[name] or 0 for table in tables) for name in summed},
    }


def table_overview(
    table: ClusteredTable, options: ReclusterOptions, now: datetime | None = None
) -> TableOverview:
    """Return the line of a table that is reclustered with some options."""
    overview = _from_snapshots(table, now or datetime.now(timezone.utc))
    if table.cluster_by is None and table_cluster_key(table.iceberg) is None:
        return replace(overview, reason="it has no cluster key")
    try:
        key = table.key
        check_bounds_are_recorded(TableChange(key).pending(table.iceberg), key)
    except (KeyTypeError, UnsupportedTableError) as e:
        return replace(overview, verdict=NOT_CLUSTERABLE, reason=str(e))
    overview = _from_blocks(table, options, replace(overview, cluster_key=str(key)))
    if overview.suspended is not None:
        overview = replace(overview, verdict=SUSPENDED, reason=f"since {table.suspension}")
    return overview


def _from_snapshots(table: ClusteredTable, now: datetime) -> TableOverview:
    """Return the figures that the snapshots of a table record."""
    snapshots = table.snapshots()
    entries = history_entries(snapshots)
    rounds = [entry for entry in entries if entry.is_recluster]

    def loaded(period: timedelta) -> int:
        return sum(entry.bytes_loaded for entry in entries if entry.is_change and now - entry.at <= period)

    def rewritten(period: timedelta) -> int:
        return sum(entry.bytes_in for entry in rounds if now - entry.at <= period)

    return TableOverview(
        table.name,
        UNCLUSTERED,
        blocks=snapshots[-1].count("total-data-files") if snapshots else 0,
        bytes=snapshots[-1].count("total-files-size") if snapshots else 0,
        loaded_bytes_day=loaded(_DAY),
        loaded_bytes_week=loaded(_WEEK),
        rewritten_bytes_day=rewritten(_DAY),
        rewritten_bytes_week=rewritten(_WEEK),
        last_recluster=rounds[-1].at.isoformat() if rounds else None,
        conflicts=sum(entry.conflicts or 0 for entry in rounds if now - entry.at <= _WEEK),
        suspended=table.suspended,
    )


def _from_blocks(table: ClusteredTable, options: ReclusterOptions, overview: TableOverview) -> TableOverview:
    """Add what the blocks of a table tell, by a plan of all that is to do."""
    if options.where is not None:
        table.predicate(options.where)
    table.reads.follow(options.reads)
    recorded = recorded_depth(table) if options.depth == AUTO else None
    options = replace(options, depth=recorded.depth) if recorded else with_depth(table, options)[0]
    policy = replace(table.policy(options.policy), max_bytes=None)
    checkpoint = Checkpoint(table, policy, options.where)
    threshold = policy.depth * policy.tolerance if policy.depth >= 1 else None
    if left := _left_by_last_round(table, checkpoint):
        return replace(overview, verdict=WELL_CLUSTERED, threshold=threshold, **left)
    blocks = table.current_blocks(options.where)
    planned = PlannedRound(table, checkpoint, blocks, None).plan
    measured = table.measure(blocks.blocks, policy.block_rows)
    overview = replace(
        overview,
        verdict=DEEP if planned.is_deep else WELL_CLUSTERED,
        reason=planned.reason,
        average_depth=measured.average_depth,
        read_depth=measured.read_depth,
        threshold=threshold or planned.threshold,
        blocks=len(blocks.metadata),
        bytes=int(blocks.metadata.bytes.sum()),
        fragmentation=measured.fragmentation,
        recluster_bytes=0,
        gain_per_gigabyte=0.0,
    )
    if not planned.block_sets:
        return overview
    estimate = CostModel(table, options.policy).recluster(options.where)
    gain = round(estimate.gain_per_byte * 2**30, 4)
    return replace(overview, recluster_bytes=estimate.bytes, gain_per_gigabyte=gain)


def _left_by_last_round(table: ClusteredTable, checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Return the figures that the current snapshot records, if it is of a round that left nothing to do; else None."""
    last = table.snapshots()[-1:]
    if (
        not last
        or f"{PREFIX}fragmentation_expected" not in last[0].summary
        or not checkpoint.is_of(last[0].id)
    ):
        return None
    depth, read_depth, fragmentation = (
        parse_number(last[0].summary.get(f"{PREFIX}{name}_expected"))
        for name in ("depth", "read_depth", "fragmentation")
    )
    return {
        "reason": "nothing has changed since the last recluster",
        "is_expected": True,
        "average_depth": depth,
        "read_depth": read_depth,
        "fragmentation": fragmentation,
        "recluster_bytes": 0,
        "gain_per_gigabyte": 0.0,
    }
