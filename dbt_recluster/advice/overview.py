"""The overview: one line for each of many tables, and totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from dbt_recluster.advice.auto_key import auto_key
from dbt_recluster.advice.cost_model import CostModel, PriceList, with_depth
from dbt_recluster.clustering.checkpoint import Checkpoint
from dbt_recluster.clustering.conditions import table_standing
from dbt_recluster.clustering.history import RoundSummary, history_entries
from dbt_recluster.clustering.options import ReclusterOptions, parse_iso_time
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.clustering.result import Result
from dbt_recluster.clustering.rounds import table_facts
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_state import Failure
from dbt_recluster.clustering.verdict import VERDICTS, Facts, Stop, Verdict
from dbt_recluster.exceptions import ClusterKeyError, KeyTypeError, UnsupportedTableError
from dbt_recluster.iceberg.sort_order import TableChange, check_bounds_are_recorded
from dbt_recluster.iceberg.table_properties import AUTO_KEY
from dbt_recluster.planner import Plan, Reason

# Measures that a round's summary has too, with "_after".
_MEASURES = ("average_depth", "read_depth", "fragmentation")


@dataclass(frozen=True)
class Overview(Result):
    """A table in the overview. Figures that are not known are None.

    Attributes:
        table, cluster_key: The table, and its key.
        verdict: One of the [verdicts](#clustering_overview-verdicts).
        reason: Why.
        cause: The reason without the depth comparison.
        depth: The depth that is compared with the threshold, as in ``recluster``.
        average_depth, read_depth: Its average depth, touching ones included, and its read depth where reads are known.
        fragmentation: Blocks for each full one.
        threshold: The greatest depth allowed; of a share of the blocks, that of the worst partition.
        blocks, bytes: Its blocks, and their bytes.
        loaded_bytes_day, loaded_bytes_week: Bytes of new rows in the past 24 hours and seven days, as far back as
            snapshots are kept.
        rewritten_bytes_day, rewritten_bytes_week: Bytes that reclustering has read in that time.
        last_recluster: When the last round was committed, ISO 8601 in UTC.
        conflicts: How often rounds of the past seven days started again because another writer was faster.
        recluster_seconds: Seconds that rounds of the past seven days took.
        recluster_bytes: Bytes that reclustering it to the end would read.
        gain_per_gigabyte: Blocks fewer that a query for one key opens then, for each GB of them: the order in which a
            budget is spent.
        suspended, suspended_until: Since when it is suspended, and when that ends by itself; each may be None.
        spent_week, saved_week: Money for the rounds of the past seven days, and for what known reads did not open
            because of them; None without prices too.
        labels: ``tag``, ``group`` and ``owner`` of its model, each a list.
    """

    table: str
    verdict: Verdict
    reason: str = ""
    cause: str = ""
    cluster_key: str | None = None
    depth: float | None = None
    average_depth: float | None = None
    read_depth: float | None = None
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
    recluster_seconds: float | None = None
    recluster_bytes: int | None = None
    gain_per_gigabyte: float | None = None
    suspended: str | None = None
    suspended_until: str | None = None
    spent_week: float | None = None
    saved_week: float | None = None
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts tables: the worst verdict first, then the most gain for a byte, then the deepest by its threshold."""
        depth = (self.depth or 0.0) / (self.threshold or 1.0)
        return list(VERDICTS).index(self.verdict), -(self.gain_per_gigabyte or 0.0), -depth, self.table


def totals(tables: Sequence[Overview]) -> dict[str, Any]:
    """Return the number of tables, of those with each verdict, and the sums of their known figures."""
    summed = [f.name for f in fields(Overview) if f.type == "int | None"]
    sums: dict[str, Any] = {name: sum(getattr(table, name) or 0 for table in tables) for name in summed}
    for name in ("spent_week", "saved_week"):
        amounts = [amount for table in tables if (amount := getattr(table, name)) is not None]
        sums[name] = round(sum(amounts), 6) if amounts else None
    counts = Counter(table.verdict for table in tables)
    verdicts = {verdict: counts[verdict] for verdict in VERDICTS if verdict in counts}
    return {"tables": len(tables), "verdicts": verdicts, **sums}


def totals_by(tables: Sequence[Overview], label: str) -> dict[str, dict[str, Any]]:
    """Return the totals for each tag, group or owner; a table may have several, or none."""
    parts: dict[str, list[Overview]] = {}
    for table in tables:
        for name in table.labels.get(label) or [""]:
            parts.setdefault(name, []).append(table)
    return {name: totals(part) for name, part in sorted(parts.items())}


def table_overview(
    table: ClusteredTable,
    options: ReclusterOptions,
    now: datetime | None = None,
    prices: PriceList | None = None,
    *,
    exact: bool = False,
    failure: Failure | None = None,
) -> Overview:
    """Return the line of a table that is reclustered with some options.

    If ``exact``, plan again whatever the last round recorded, and measure depth and threshold only. The caller passes
    the ``failure`` of the last recluster that the table could not record.
    """
    figures = _from_snapshots(table, now or datetime.now(timezone.utc), prices)
    failure = table.failure or failure
    last = figures["last_recluster"]
    if failure is not None and last is not None and parse_iso_time(last) > parse_iso_time(failure.at):
        failure = None
    facts = Facts(suspension=str(table.suspension or ""), failure=failure.error if failure else "")
    try:
        key = table.key
        check_bounds_are_recorded(TableChange(key).pending(table.iceberg), key)
    except (KeyTypeError, UnsupportedTableError) as e:
        facts = replace(facts, refusal=str(e))
    except ClusterKeyError:
        if table.cluster_by is None and AUTO_KEY in table.iceberg.properties:
            facts = replace(facts, keyless=auto_key(table, options, tries=False).text())
        elif table.cluster_by is None and table.own_key is None:
            facts = replace(facts, keyless="it has no cluster key")
        else:
            raise
    else:
        planned, measured = _from_blocks(table, options, prices, exact=exact)
        facts = replace(planned, suspension=facts.suspension, failure=facts.failure)
        depth, threshold = planned.plan.depth, planned.plan.threshold
        figures |= {"cluster_key": str(key), "depth": depth, "threshold": threshold, **measured}
    standing = table_standing(table, options, facts)
    if standing.verdict == "deep" and (options.max_bytes is not None or options.max_seconds is not None):
        short = CostModel(table, with_depth(table, options).policy).shortfall(facts.plan.depth, facts.plan.threshold)
        standing = replace(standing, reasons=(*standing.reasons, *short))
    return Overview(table.name, standing.verdict, standing.text, standing.cause, **figures)


def _from_snapshots(table: ClusteredTable, now: datetime, prices: PriceList | None) -> dict[str, Any]:
    snapshots = table.snapshots()
    entries = history_entries(snapshots)
    rounds = [entry for entry in entries if entry.is_recluster]
    figures: dict[str, Any] = {
        "blocks": snapshots[-1].count("total-data-files") if snapshots else 0,
        "bytes": snapshots[-1].count("total-files-size") if snapshots else 0,
        "last_recluster": rounds[-1].at.isoformat() if rounds else None,
        "suspended": table.suspended,
        "suspended_until": table.suspension and table.suspension.until,
    }
    for period, days in (("day", 1), ("week", 7)):
        recent = [entry for entry in entries if now - entry.at <= timedelta(days=days)]
        figures[f"loaded_bytes_{period}"] = sum(entry.bytes_loaded for entry in recent if entry.is_change)
        figures[f"rewritten_bytes_{period}"] = sum(entry.bytes_in for entry in recent if entry.is_recluster)
    # Of the week, which comes last.
    figures["conflicts"] = sum(entry.conflicts or 0 for entry in recent)
    figures["recluster_seconds"] = round(sum(entry.seconds or 0.0 for entry in recent), 3)
    if prices is not None:
        figures["spent_week"] = prices.of_seconds(*(e.seconds for e in recent if e.is_recluster))
    return figures


def _from_blocks(
    table: ClusteredTable, options: ReclusterOptions, prices: PriceList | None, *, exact: bool
) -> tuple[Facts, dict[str, Any]]:
    """Return a plan of the whole table, empty if the last round left nothing to do, and figures of the table then."""
    if options.reads is not None:  # a caller may have set what the table follows
        table.reads.follow(options.reads)
    options = with_depth(table, options)
    checkpoint = Checkpoint(table, table.policy(options.policy), options.where)
    policy, figures = checkpoint.policy, dict[str, Any](recluster_bytes=0, gain_per_gigabyte=0.0)
    if prices is not None and prices.terabyte_scanned is not None:
        balance = CostModel(table, options.policy).balance()
        figures["saved_week"] = None if balance is None else prices.of_bytes(balance.saved * balance.days)
    last, where = table.snapshots()[-1:], table.predicate(options.where)
    recorded = RoundSummary.from_snapshot(last[0]) if last and not exact else RoundSummary()
    depth, threshold = recorded.depth_after or 0.0, policy.threshold or 0.0
    # The fragmentation is recorded if the round left nothing to do. By level, that may be stuck or not.
    is_clear = depth <= threshold or not policy.by_level
    is_known = bool(depth and threshold) and is_clear and recorded.fragmentation_after is not None
    if is_known and checkpoint.is_of(last[0].id):
        facts = Facts(plan=Plan(reasons=(Reason(Stop.STILL_CLUSTERED),), depth=depth, threshold=threshold))
        figures |= {name: getattr(recorded, f"{name}_after") for name in _MEASURES}
    else:
        planned = Recluster(table, replace(options, max_bytes=None, max_seconds=None)).plan()
        facts = table_facts(table, options, planned)
        if exact:
            return facts, {}
        measured = table.measure(planned.blocks.planned, policy.block_rows)
        figures |= {name: getattr(measured, name) for name in _MEASURES}
    admitted = facts.admitted or facts.plan
    if admitted.block_sets or admitted.limited:
        estimate = CostModel(table, options.policy).recluster(where)
        figures["recluster_bytes"] = estimate.bytes
        figures["gain_per_gigabyte"] = round(estimate.gain_per_byte * 2**30, 4)
    return facts, figures
