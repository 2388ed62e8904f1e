"""What a recluster reports: figures of the table before and after, the reason that it ended, and the verdict."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from dbt_recluster.clustering import history
from dbt_recluster.clustering.conditions import block_count, table_standing, waits
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.result import MAX_ROUNDS, Progress, ReclusterResult, RoundProgress
from dbt_recluster.clustering.rounds import PlannedRound, describe_round, plan_round, table_facts
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.verdict import Facts, Stop, cause_text, reason_text
from dbt_recluster.exceptions import ReclusterError, orphan_note
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.predicates import Predicate
from dbt_recluster.iceberg.sort_order import cut_off_bounds
from dbt_recluster.planner import Plan, Reason, Why
from dbt_recluster.text import count_noun

# Bytes a second, until a round has been measured.
_SPEED = 10 * 2**20
_LISTED_AGAIN = (
    "{count} listed more than once in the table's metadata, such as {path}. Iceberg removes files by path, so a merge "
    "would lose rows: they are left as they are. While nobody else writes, INSERT OVERWRITE {table} SELECT * FROM "
    "{table} writes all rows anew: SELECT * keeps duplicates, SELECT DISTINCT * drops them"
)


class Outcome:
    """Collects the result of one call of recluster on one table."""

    def __init__(self, table: ClusteredTable, options: ReclusterOptions, where: Predicate | None) -> None:
        self._table, self._options, self._where = table, options, where
        self.result = ReclusterResult(
            table.name, str(table.key), suspended=table.suspended, branch=table.iceberg.branch
        )
        self.result.blocks_before = self.result.blocks_after = block_count(table)
        self.is_attempt = False  # whether the call reclusters the table if that needs it

    @property
    def is_after_build(self) -> bool:
        """Whether a build called it, for a table that nobody has suspended."""
        result = self.result
        return self._options.trigger == "run" and result.suspended is None and result.branch is None

    @property
    def bytes_left(self) -> int | None:
        """The bytes that the budgets of bytes and of time leave, or None without one."""
        left, options = list[float](), self._options
        if options.max_bytes is not None:
            left.append(options.max_bytes - self.result.bytes_in)
        if options.max_seconds is not None:
            seconds = options.max_seconds - sum(done.seconds for done in self.result.rounds)
            left.append(seconds * self._speed)
        return max(0, int(min(left))) if left else None

    @property
    def _speed(self) -> float:
        return history.rewrite_speed(self._table) or _SPEED

    def measure(self, planned: PlannedRound, pending: IcebergTable) -> None:
        """Record the figures of the table as it was planned, and what is wrong with its blocks.

        ``pending`` is the table as the next merge will write it.
        """
        result, table, blocks = self.result, self._table, planned.blocks
        whole = table.blocks(self._where, blocks.metadata.snapshot_id) if blocks.late else blocks
        measured, by_reads = table.measure(whole.blocks), planned.plan.by_reads
        result.average_depth_after, result.key_read_bytes = measured.average_depth, measured.key_read_bytes
        result.read_depth_after = measured.read_depth if by_reads else None
        result.blocks_after = len(blocks.metadata)
        if not result.rounds:
            result.average_depth_before, result.blocks_before = measured.average_depth, result.blocks_after
        if not result.rounds or not by_reads:
            result.read_depth_before = result.read_depth_after
        result.suspended = table.suspended
        warnings = cut_off_bounds(pending, table.key, blocks.metadata.lower)
        if blocks.metadata.repeated is not None:
            paths = blocks.metadata.take(blocks.metadata.repeated).path.unique()
            count = "1 file is" if len(paths) == 1 else f"{len(paths):,} files are"
            warnings.insert(0, _LISTED_AGAIN.format(count=count, path=paths[0].as_py(), table=table.name))
        result.warnings += [text for text in warnings if text not in result.warnings]

    def is_over(self, planned: PlannedRound) -> bool:
        """Return whether to stop without merging a plan."""
        result, options = self.result, self._options
        if options.dry_run or result.suspended is not None or not planned.plan.block_sets:
            return True
        return len(result.rounds) == MAX_ROUNDS or (bool(result.rounds) and not options.final)

    def _last_plan(self, planned: PlannedRound) -> Plan:
        """Return the plan that is not merged, with the reasons to stop there."""
        table, result, options, blocks = self._table, self.result, self._options, planned.blocks
        plan = replace(planned.plan, reasons=tuple(map(self._in_seconds, planned.plan.reasons)))
        if result.suspended is not None and not options.dry_run:
            return replace(plan, reasons=(Reason(Stop.SUSPENDED, (table.suspension or result.suspended,)),))
        if len(result.rounds) == MAX_ROUNDS and plan.block_sets:
            return replace(plan, reasons=(Reason(Stop.MOST_ROUNDS, (MAX_ROUNDS,)),))
        if options.where is not None and not len(blocks.blocks):
            return replace(plan, reasons=(Reason(Stop.NO_BLOCK_ADMITTED),))
        if blocks.late:
            plan = plan_round(table, planned.checkpoint, table.blocks(self._where, planned.snapshot_id)).plan
            return replace(plan, reasons=(*plan.reasons, Reason(Stop.ARRIVED_LATE, (blocks.late,))))
        if result.rounds and (plan.limited or plan.block_sets):
            budget = self.bytes_left
            everything = plan if budget is None else plan_round(table, planned.checkpoint, blocks).plan
            left = sum(len(block_set.blocks) for block_set in everything.block_sets) or plan.left
            is_spent = budget is not None and everything.bytes > budget
            end = Reason(Stop.BUDGET_USED if is_spent else Stop.ROUND_DONE, (left,))
            return replace(plan, reasons=(*plan.reasons, end))
        return plan

    def _in_seconds(self, reason: Reason) -> Reason:
        """Return a reason in seconds, if it is about the limit of time rather than that of bytes."""
        options = self._options
        if reason.kind is not Why.NO_SET_FITS or options.max_seconds is None:
            return reason
        budget, needed = reason.figures
        if options.max_bytes is not None and options.max_bytes - self.result.bytes_in <= budget:
            return reason
        return Reason(Stop.NO_SET_IN_TIME, (f"{options.max_seconds:.4g}", f"{needed / self._speed:.2g}"))

    def report_end(self, planned: PlannedRound) -> None:
        """Report the plan that is not merged, and remember one that is empty."""
        last, snapshot_id = self._last_plan(planned), planned.blocks.metadata.snapshot_id
        facts = table_facts(self._table, self._options, replace(planned, plan=last))
        notes = (note for note in facts.notes if note not in last.reasons)
        self.report(replace(last, reasons=(*last.reasons, *notes)), facts)
        if not planned.plan.block_sets and not planned.plan.limited and not planned.blocks.late:
            planned.checkpoint.remember(snapshot_id, planned.plan)
        if self._options.dry_run:
            self.result.plan = describe_round(self._table, planned)
            suspension = self._table.suspension
            held = [Reason(Stop.SUSPENDED, (suspension,))] if suspension else waits(self._table, self._options)
            self.result.held = reason_text(held) or None

    def report(self, plan: Plan, facts: Facts) -> None:
        """Record the reason of a plan, and depth, threshold and verdict of the whole table."""
        result, table, whole = self.result, self._table, facts.plan
        result.limited = plan.limited
        result.reason = reason_text(plan.reasons)
        is_told = not self.is_after_build  # not at each build
        result.cause = cause_text([each for each in plan.reasons if is_told or each.kind is not Why.SMALL_TABLE])
        is_lowered = (result.depth_before or 0.0) > (whole.depth or 0.0)
        purposes = dict[Enum, Reason]()  # of the rounds, the first of each kind
        for done in result.rounds:
            purposes = {**{reason.kind: reason for reason in done.reasons}, **purposes}
        result.purpose = reason_text([r for kind, r in purposes.items() if kind is not Why.DEPTH or not is_lowered])
        if not result.rounds:
            result.depth_before = whole.depth or None
        if whole.depth:
            result.depth_after, result.threshold = whole.depth, whole.threshold
            failed = "" if self.is_attempt or table.failure is None else table.failure.error
            facts = replace(facts, suspension=str(table.suspension or ""), failure=failed)
            result.verdict = table_standing(table, self._options, facts).verdict

    def progress(self, plan: Plan) -> RoundProgress:
        """Return the reporter of the next round, which merges a plan."""
        speed = None if self._options.progress is None else history.rewrite_speed(self._table)
        start = Progress(
            table=self._table.name,
            round=len(self.result.rounds) + 1,
            sets=len(plan.block_sets),
            blocks=sum(len(block_set.blocks) for block_set in plan.block_sets),
            bytes=plan.bytes,
            seconds=None if speed is None else plan.bytes / speed,
            bytes_before=self.result.bytes_in,
            max_bytes=self._options.max_bytes,
        )
        return RoundProgress(start, self._options.progress)

    def add_to(self, error: ReclusterError) -> None:
        """Add the committed rounds and the orphans to an error, which replaces the result."""
        result, notes = self.result, [str(error).removesuffix(".")]
        if count := len(result.rounds):
            notes.append(f"{count_noun(count, 'round')} before it {'were' if count > 1 else 'was'} committed")
        if result.orphans:
            notes.append(orphan_note(result.table, result.orphans))
        error.args = (". ".join(notes) + ".",)
        error.orphans = tuple(dict.fromkeys((*result.orphans, *error.orphans)))
        error.bytes_rewritten = result.bytes_in
