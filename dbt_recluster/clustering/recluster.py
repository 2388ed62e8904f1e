"""Recluster a table: rounds of plan, merge and commit, until there is a reason to stop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dbt_recluster.clustering import history
from dbt_recluster.clustering.checkpoint import Checkpoint, nothing_to_do, record_warning
from dbt_recluster.clustering.conditions import Condition, met_condition, record_changes
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.outcome import Outcome
from dbt_recluster.clustering.result import ReclusterResult, Round, RoundProgress
from dbt_recluster.clustering.rounds import PlannedRound, group_figures, merge_round, plan_round, table_facts
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_curve import recorded_curve
from dbt_recluster.clustering.verdict import Facts
from dbt_recluster.exceptions import ClusterKeyError, ConcurrentChangeError, ReclusterError
from dbt_recluster.iceberg import sort_order
from dbt_recluster.iceberg.commit import MAX_ATTEMPTS, RoundCommit, back_off
from dbt_recluster.iceberg.iceberg_table import PropertyChanges
from dbt_recluster.iceberg.rewrite.file_groups import check_location
from dbt_recluster.iceberg.session.jobs import job_description, stop_if_interrupted
from dbt_recluster.iceberg.table_properties import FAILURE, LEVELS
from dbt_recluster.planner import Plan

_ROW_IDS_LOST = "Iceberg keeps no row ids in ORC files: every rewrite, its own included, gives the rows new ids"
# A table that waits for a condition is measured only if that is quick.
_MOST_MEASURED = 10_000


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
        self.outcome = Outcome(table, options, self._where)
        # Later rounds plan blocks of these snapshots: those before the first committed round, and those of rounds.
        # Otherwise `final` would not end beside a fast writer.
        self._added_by: set[int] = set()
        self._first_planned = 0  # the snapshot that the first of them planned

    def run(self) -> ReclusterResult:
        """Repeat rounds until there is a reason to stop; errors as of :func:`dbt_recluster.api.recluster`."""
        started, outcome, result, iceberg = time.monotonic(), self.outcome, self.outcome.result, self._table.iceberg
        rewrites, planned = self._check(), None
        unmet = self._unmet_condition()
        if outcome.is_after_build and self._options.after is not None and not self._options.dry_run:
            record_changes(self._table)
        is_kept = self._options.dry_run or result.suspended is not None or iceberg.branch is not None
        outcome.is_attempt = not (unmet or is_kept)
        if unmet is not None:
            planned = self._report_unmet(unmet)
        elif (nothing := self._nothing_to_do()) is not None:
            outcome.report(nothing, Facts(plan=nothing))
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
        outcome, conflicts = self.outcome, 0
        try:
            while True:
                stop_if_interrupted()
                planned = self.plan()
                outcome.measure(planned, self._change().pending(self._table.iceberg))
                if outcome.is_over(planned):
                    break
                conflicts = self._try_round(planned, conflicts)
                self._table.refresh()
            outcome.report_end(planned)
        except ReclusterError as e:
            if outcome.result.rounds and not e.bytes_rewritten:  # it is not of a round
                outcome.add_to(e)
            raise
        return planned

    def plan(self) -> PlannedRound:
        """Plan the next round."""
        checkpoint = Checkpoint(self._table, self._table.policy(self._options.policy), self._options.where)
        left, curve = self.outcome.bytes_left, self._table.key_curve
        added_by = self._added_by if self.outcome.result.rounds else None
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
        if self.outcome.is_attempt:
            properties[FAILURE] = None
        # Boundaries without a merge would change at each call.
        if is_merge or recorded_curve(table.iceberg.properties, table.key, table.iceberg.field_ids) is None:
            properties |= table.key_curve.unrecorded
        replaces = (-1, "") if self.outcome.result.rounds else self._replaces  # none: the id of no sort order
        return sort_order.TableChange(table.key, properties, replaces, planned.field_ids if planned else None)

    def _check(self) -> list[history.ForeignRewrite]:
        """Check options and table, and return what others rewrote. The first merge commits pending changes."""
        result, iceberg, key = self.outcome.result, self._table.iceberg, self._table.key
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

    def _unmet_condition(self) -> Condition | None:
        """Return what a recluster after a build waits for, or None to proceed. One by hand waits for nothing."""
        if not self.outcome.is_after_build or (condition := met_condition(self._table, self._options)) is None:
            return None
        if condition.is_met:
            self.outcome.result.condition_met = condition.text
        return None if condition.is_met else condition

    def _report_unmet(self, condition: Condition) -> PlannedRound | None:
        """Report a condition that is not met, and if it is known what would meet it, the depth of the table."""
        outcome, facts, planned = self.outcome, Facts(), None
        outcome.result.waits_for = condition.waits_for or None
        if condition.waits_for and not self._table.key.curve and 0 < outcome.result.blocks_before <= _MOST_MEASURED:
            planned = self.plan()
            outcome.measure(planned, self._change().pending(self._table.iceberg))
            facts = replace(table_facts(self._table, self._options, planned), waits=condition.reasons)
        of_part = planned.plan if planned else Plan()
        outcome.report(replace(of_part, limited=False, reasons=condition.reasons[:1]), facts)
        return planned

    def _nothing_to_do(self) -> Plan | None:
        """Return an empty plan if nothing is to be done after a build, or None to proceed.

        A recluster by hand always reports how deep the whole table is.
        """
        options = self._options
        if not self.outcome.is_after_build or options.where is not None or options.dry_run:
            return None
        return nothing_to_do(self._table, self._table.policy(options.policy))

    def _try_round(self, planned: PlannedRound, conflicts: int) -> int:
        """Run one round after so many conflicts in a row, and return how many there are now.

        After a commit conflict, back off and return; the caller plans again.
        """
        result, progress = self.outcome.result, self.outcome.progress(planned.plan)
        if not result.rounds:
            result.depth_before = table_facts(self._table, self._options, planned).plan.depth or None
            self._first_planned = planned.snapshot_id
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
                self.outcome.add_to(e)
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
        figures: Mapping[str, Any] = {"trigger": options.trigger, "cluster_by": str(table.key), "where": options.where}
        number, change = len(self.outcome.result.rounds) + 1, self._change(planned)
        with job_description(table.iceberg.spark, f"recluster {table.name}: round {number}"):
            figures = {**figures, "conflicts": conflicts, "planned": self._first_planned}
            merged = merge_round(table, planned, change, figures, progress.merging)
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
