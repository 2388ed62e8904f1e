"""Recluster a table: rounds of plan, merge and commit, until there is a reason to stop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

from dbt_recluster.clustering import history
from dbt_recluster.clustering.checkpoint import Checkpoint, nothing_to_do, record_warning
from dbt_recluster.clustering.conditions import (
    Condition,
    block_count,
    met_condition,
    record_changes,
    table_standing,
    waits,
)
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.result import MAX_ROUNDS, Progress, ReclusterResult, Round, RoundProgress
from dbt_recluster.clustering.rounds import (
    PlannedRound,
    describe_round,
    group_figures,
    merge_round,
    plan_round,
    table_facts,
)
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_curve import recorded_curve
from dbt_recluster.clustering.verdict import Facts, Stop, cause_text, reason_text
from dbt_recluster.exceptions import ClusterKeyError, ConcurrentChangeError, ReclusterError, orphan_note
from dbt_recluster.iceberg import sort_order
from dbt_recluster.iceberg.commit import MAX_ATTEMPTS, RoundCommit, back_off
from dbt_recluster.iceberg.iceberg_table import PropertyChanges
from dbt_recluster.iceberg.rewrite.file_groups import check_location
from dbt_recluster.iceberg.session.jobs import job_description, stop_if_interrupted
from dbt_recluster.iceberg.table_properties import FAILURE, LEVELS
from dbt_recluster.planner import Plan, Reason, Why
from dbt_recluster.text import count_noun

_ROW_IDS_LOST = "Iceberg keeps no row ids in ORC files: every rewrite, its own included, gives the rows new ids"
# A table that waits for a condition is measured only if that is quick.
_MOST_MEASURED = 10_000
# Bytes a second, until a round has been measured.
_SPEED = 10 * 2**20
_LISTED_AGAIN = (
    "{count} listed more than once in the table's metadata, such as {path}. Iceberg removes files by path, so a merge "
    "would lose rows: they are left as they are. While nobody else writes, INSERT OVERWRITE {table} SELECT * FROM "
    "{table} writes all rows anew: SELECT * keeps duplicates, SELECT DISTINCT * drops them"
)


class Recluster:
    """One call of recluster on one table, under the key to cluster by; ``changes`` are further properties to set."""

    def __init__(
        self, table: ClusteredTable, options: ReclusterOptions, changes: PropertyChanges | None = None
    ) -> None:
        iceberg = table.iceberg
        self._table, self._options = table, options
        self._where = table.predicate(options.where)
        # All branches share the properties, so a branch sets none but the boundaries of its curve.
        self._changes: PropertyChanges = changes or {} if iceberg.branch is None else {}
        self._replaces = sort_order.key_id(iceberg)
        self._result = ReclusterResult(table.name, str(table.key), suspended=table.suspended, branch=iceberg.branch)
        self.is_attempt = False  # whether it reclusters the table if that needs it
        # Later rounds plan blocks of these snapshots: those before the first committed round, and those of rounds.
        # Otherwise `final` would not end beside a fast writer.
        self._added_by: set[int] = set()

    def run(self) -> ReclusterResult:
        """Repeat rounds until there is a reason to stop; errors as of :func:`dbt_recluster.api.recluster`."""
        started, result, iceberg = time.monotonic(), self._result, self._table.iceberg
        rewrites = self._check()
        unmet = self._unmet_condition()
        if self._is_after_build and self._options.after is not None and not self._options.dry_run:
            record_changes(self._table)
        is_kept = self._options.dry_run or result.suspended is not None or iceberg.branch is not None
        self.is_attempt = not (unmet or is_kept)
        if unmet is not None:
            planned = self._report_unmet(unmet)
        elif (nothing := self._nothing_to_do()) is not None:
            planned = None
            self._report(nothing, Facts(plan=nothing))
            result.blocks_before = result.blocks_after = block_count(self._table)
        else:
            planned = self._repeat_rounds()
        if not (result.rounds or self._options.dry_run or result.suspended or iceberg.branch):
            self._change(planned, is_merge=False).commit(iceberg)
            if rewrites:
                record_warning(iceberg, rewrites[-1].snapshot.id)
        result.seconds = time.monotonic() - started
        return result

    def _repeat_rounds(self) -> PlannedRound:
        """Plan, merge and commit until there is a reason to stop; return the plan that was not merged."""
        conflicts = 0
        try:
            while True:
                stop_if_interrupted()
                planned = self.plan()
                self._measure(planned)
                if self._is_over(planned):
                    break
                conflicts = self._try_round(planned, conflicts)
                self._table.refresh()
            self._report_end(planned)
        except ReclusterError as e:
            if self._result.rounds and not e.bytes_rewritten:  # it is not of a round
                _add_earlier_rounds(e, self._result)
            raise
        return planned

    def plan(self) -> PlannedRound:
        """Plan the next round."""
        checkpoint = Checkpoint(self._table, self._table.policy(self._options.policy), self._options.where)
        left, curve, added_by = self._bytes_left, self._table.key_curve, self._added_by if self._result.rounds else None
        blocks = self._table.current_blocks(self._where, added_by)
        read_again = partial(self._table.blocks, self._where, blocks.metadata.snapshot_id, added_by)
        if curve.draw(blocks.planned_metadata):
            blocks = read_again()
        field_ids = sort_order.key_field_ids(self._table.iceberg, self._table.key)
        planned = plan_round(self._table, checkpoint, blocks, left)
        if planned.plan.block_sets and curve.draw(blocks.planned_metadata, before_merge=True):
            planned = plan_round(self._table, checkpoint, read_again(), left)
        return replace(planned, field_ids=field_ids)

    def _change(self, planned: PlannedRound | None = None, *, is_merge: bool = True) -> sort_order.TableChange:
        """Return what the next commit changes besides the blocks."""
        table, properties = self._table, {**self._changes}
        if self.is_attempt:
            properties[FAILURE] = None
        # Boundaries without a merge would change at each call.
        if is_merge or recorded_curve(table.iceberg.properties, table.key, table.iceberg.field_ids) is None:
            properties |= table.key_curve.unrecorded
        replaces = (-1, "") if self._result.rounds else self._replaces  # none: the id of no sort order
        return sort_order.TableChange(table.key, properties, replaces, planned.field_ids if planned else None)

    def _check(self) -> list[history.ForeignRewrite]:
        """Check options and table, and return what others rewrote. The first merge commits pending changes."""
        result, iceberg, key = self._result, self._table.iceberg, self._table.key
        result.warnings += self._table.reads.follow(self._options.reads)
        sort_order.check_bounds_are_recorded(self._change().pending(iceberg), key)
        if self._options.dry_run or result.suspended is not None:
            return []
        # All branches share the sort order and the properties.
        if iceberg.branch is not None and not sort_order.is_cluster_key(iceberg, key):
            raise ClusterKeyError(
                f"{self._table.name} has another sort order than {key}, and all its branches share it: set it with "
                f"alter table {self._table.name} write ordered by, or recluster the main branch by {key} first"
            )
        iceberg.check_writes_reach_main()
        check_location(iceberg)
        if sort_order.loses_row_ids(iceberg) and LEVELS not in iceberg.properties:
            result.warnings.append(_ROW_IDS_LOST)
        rewrites = [] if iceberg.branch else history.foreign_rewrites(self._table, only_new=True)
        result.warnings += history.rewrite_warnings(rewrites)
        return rewrites

    @property
    def _is_after_build(self) -> bool:
        result = self._result
        return self._options.trigger == "run" and result.suspended is None and result.branch is None

    def _unmet_condition(self) -> Condition | None:
        """Return what a recluster after a build waits for, or None to proceed. One by hand waits for nothing."""
        if not self._is_after_build or (condition := met_condition(self._table, self._options)) is None:
            return None
        if condition.is_met:
            self._result.condition_met = condition.text
        return None if condition.is_met else condition

    def _report_unmet(self, condition: Condition) -> PlannedRound | None:
        """Report a condition that is not met, and if it is known what would meet it, the depth of the table."""
        result, blocks, facts, planned = self._result, block_count(self._table), Facts(), None
        result.waits_for = condition.waits_for or None
        if result.waits_for and not self._table.key.curve and 0 < blocks <= _MOST_MEASURED:
            planned = self.plan()
            self._measure(planned)
            facts = replace(table_facts(self._table, self._options, planned), waits=condition.reasons)
        of_part = planned.plan if planned else Plan()
        self._report(replace(of_part, limited=False, reasons=condition.reasons[:1]), facts)
        result.blocks_before = result.blocks_after = blocks
        return planned

    def _nothing_to_do(self) -> Plan | None:
        """Return an empty plan if nothing is to be done after a build, or None to proceed.

        A recluster by hand always reports how deep the whole table is.
        """
        options = self._options
        if not self._is_after_build or options.where is not None or options.dry_run:
            return None
        return nothing_to_do(self._table, self._table.policy(options.policy))

    def _measure(self, planned: PlannedRound) -> None:
        """Record the figures of the table as it was planned, and what is wrong with its blocks."""
        result, table, blocks = self._result, self._table, planned.blocks
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
        warnings = sort_order.cut_off_bounds(self._change().pending(table.iceberg), table.key, blocks.metadata.lower)
        if blocks.metadata.repeated is not None:
            paths = blocks.metadata.take(blocks.metadata.repeated).path.unique()
            count = "1 file is" if len(paths) == 1 else f"{len(paths):,} files are"
            warnings.insert(0, _LISTED_AGAIN.format(count=count, path=paths[0].as_py(), table=table.name))
        result.warnings += [text for text in warnings if text not in result.warnings]

    def _is_over(self, planned: PlannedRound) -> bool:
        result, options = self._result, self._options
        if options.dry_run or result.suspended is not None or not planned.plan.block_sets:
            return True
        return len(result.rounds) == MAX_ROUNDS or (bool(result.rounds) and not options.final)

    def _last_plan(self, planned: PlannedRound) -> Plan:
        """Return the plan that is not merged, with the reasons to stop there."""
        table, result, options, blocks = self._table, self._result, self._options, planned.blocks
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
            everything, budget = plan_round(table, planned.checkpoint, blocks).plan, self._bytes_left
            left = sum(len(block_set.blocks) for block_set in everything.block_sets) or plan.left
            is_spent = budget is not None and everything.bytes > budget
            end = Reason(Stop.BUDGET_USED if is_spent else Stop.ROUND_DONE, (left,))
            return replace(plan, reasons=(*plan.reasons, end))
        return plan

    def _report_end(self, planned: PlannedRound) -> None:
        """Report the plan that is not merged, and remember one that is empty."""
        last, snapshot_id = self._last_plan(planned), planned.blocks.metadata.snapshot_id
        facts = table_facts(self._table, self._options, replace(planned, plan=last))
        notes = (note for note in facts.notes if note not in last.reasons)
        self._report(replace(last, reasons=(*last.reasons, *notes)), facts)
        if not planned.plan.block_sets and not planned.plan.limited and not planned.blocks.late:
            planned.checkpoint.remember(snapshot_id, planned.plan)
        if self._options.dry_run:
            self._result.plan = describe_round(self._table, planned)
            suspension = self._table.suspension
            held = [Reason(Stop.SUSPENDED, (suspension,))] if suspension else waits(self._table, self._options)
            self._result.held = reason_text(held) or None

    def _report(self, plan: Plan, facts: Facts) -> None:
        """Record the reason of a plan, and depth, threshold and verdict of the whole table."""
        result, table, whole = self._result, self._table, facts.plan
        result.limited = plan.limited
        result.reason = reason_text(plan.reasons)
        is_told = not self._is_after_build  # not at each build
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

    @property
    def _bytes_left(self) -> int | None:
        """The bytes that the budgets of bytes and of time leave, or None without one."""
        left, options = list[float](), self._options
        if options.max_bytes is not None:
            left.append(options.max_bytes - self._result.bytes_in)
        if options.max_seconds is not None:
            seconds = options.max_seconds - sum(done.seconds for done in self._result.rounds)
            left.append(seconds * self._speed)
        return max(0, int(min(left))) if left else None

    @property
    def _speed(self) -> float:
        return history.rewrite_speed(self._table) or _SPEED

    def _in_seconds(self, reason: Reason) -> Reason:
        """Return a reason in seconds, if it is about the limit of time rather than that of bytes."""
        options = self._options
        if reason.kind is not Why.NO_SET_FITS or options.max_seconds is None:
            return reason
        budget, needed = reason.figures
        if options.max_bytes is not None and options.max_bytes - self._result.bytes_in <= budget:
            return reason
        return Reason(Stop.NO_SET_IN_TIME, (f"{options.max_seconds:.4g}", f"{needed / self._speed:.2g}"))

    def _try_round(self, planned: PlannedRound, conflicts: int) -> int:
        """Run one round after so many conflicts in a row, and return how many there are now.

        After a commit conflict, back off and return; the caller plans again.
        """
        result, progress = self._result, self._progress(planned.plan)
        if not result.rounds:
            result.depth_before = table_facts(self._table, self._options, planned).plan.depth or None
        progress.report()
        try:
            done = self._round(planned, conflicts, progress)
        except BaseException as e:
            progress.report(failed=True)
            may_try_again = False
            if isinstance(e, ConcurrentChangeError):
                conflicts += 1
                result.conflicts += 1
                result.orphans += e.orphans
                may_try_again = conflicts < MAX_ATTEMPTS
            if isinstance(e, ReclusterError) and not may_try_again:
                _add_earlier_rounds(e, result)
            stop_if_interrupted(e)
            if not may_try_again:
                raise
            back_off(conflicts)
            return conflicts
        if not result.rounds:
            self._added_by.update(planned.blocks.metadata.added_by.tolist())
        self._added_by.update(done.snapshot_ids)
        result.rounds.append(done)
        result.conflicts += done.conflicts
        result.orphans += done.orphans
        # Excludes sets that conflicted.
        figures = {"sets": done.sets, "blocks": done.blocks_in, "bytes": done.bytes_in}
        progress.report(committed=True, seconds=done.seconds, **figures)
        return 0

    def _round(self, planned: PlannedRound, conflicts: int, progress: RoundProgress) -> Round:
        table, options, started = self._table, self._options, time.monotonic()
        given: Mapping[str, Any] = {"trigger": options.trigger, "cluster_by": str(table.key), "where": options.where}
        number, change = len(self._result.rounds) + 1, self._change(planned)
        with job_description(table.iceberg.spark, f"recluster {table.name}: round {number}"):
            merged = merge_round(table, planned, change, {**given, "conflicts": conflicts}, progress.merging)
            commit = RoundCommit(table.iceberg, planned.snapshot_id, merged.groups, merged.levels, merged, change)
            commit.run()
        return Round(
            **group_figures(commit.remaining),
            seconds=time.monotonic() - started,
            snapshot_ids=tuple(commit.sent),
            conflicts=commit.conflicts,
            orphans=tuple(commit.orphans),
            reasons=planned.plan.reasons,
        )

    def _progress(self, plan: Plan) -> RoundProgress:
        speed = None if self._options.progress is None else history.rewrite_speed(self._table)
        start = Progress(
            table=self._table.name,
            round=len(self._result.rounds) + 1,
            sets=len(plan.block_sets),
            blocks=sum(len(block_set.blocks) for block_set in plan.block_sets),
            bytes=plan.bytes,
            seconds=None if speed is None else plan.bytes / speed,
            bytes_before=self._result.bytes_in,
            max_bytes=self._options.max_bytes,
        )
        return RoundProgress(start, self._options.progress)


def _add_earlier_rounds(error: ReclusterError, result: ReclusterResult) -> None:
    """Add the committed rounds and the orphans of a result to the error that takes its place."""
    notes = [str(error).removesuffix(".")]
    if count := len(result.rounds):
        notes.append(f"{count_noun(count, 'round')} before it {'were' if count > 1 else 'was'} committed")
    if result.orphans:
        notes.append(orphan_note(result.table, result.orphans))
    error.args = (". ".join(notes) + ".",)
    error.orphans = tuple(dict.fromkeys((*result.orphans, *error.orphans)))
    error.bytes_rewritten = result.bytes_in
