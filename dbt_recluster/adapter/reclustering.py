"""What the macros call to recluster: after a build, and by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available
from dbt.adapters.events.logging import AdapterLogger

from dbt_recluster.adapter.budget import Budget
from dbt_recluster.adapter.config import ClusteringConfig, clustering_turned_off, run_budget
from dbt_recluster.adapter.errors import as_dbt_errors, message
from dbt_recluster.adapter.mixin import TableMixin
from dbt_recluster.adapter.operations import Node, ReclusterOptions, Target, targets
from dbt_recluster.exceptions import BudgetSpentError, OptionError, ReclusterError
from dbt_recluster.iceberg.jobs import job_group
from dbt_recluster.report.progress import ProgressLines
from dbt_recluster.report.text import plan_table, recluster_line

if TYPE_CHECKING:
    from dbt.adapters.base.relation import BaseRelation

    from dbt_recluster.maintenance import ReclusterReport

logger = AdapterLogger("Recluster")


@dataclass
class Outcome:
    """What came of reclustering one relation.

    Attributes:
        report: What was done, None when it failed or was passed over.
        error: Why it failed.
        text: One line to print.
        table: The plan of a dry run, to print below it.
        orphans: Where it failed, the files that it left behind, all of them.
    """

    report: ReclusterReport | None = None
    error: str | None = None
    text: str = ""
    table: str = ""
    orphans: list[str] = field(default_factory=list)


class Reclustering(TableMixin):
    """The adapter's methods that rewrite blocks."""

    _budget: Budget
    connections: Any

    @available.parse_none
    def check_run_vars(self, variables: Mapping[str, Any]) -> None:
        """Check the vars that steer a whole run, before anything is built."""
        with as_dbt_errors():
            run_budget(variables)
            clustering_turned_off(variables)

    @available.parse_none
    def recluster_relation(
        self, relation: BaseRelation, clustering: ClusteringConfig, variables: Mapping[str, Any]
    ) -> Outcome:
        """Recluster after a build. The data is in place, so whatever goes wrong is reported and not raised."""
        try:
            report = self._recluster(relation.render(), clustering, run_budget(variables), trigger="run")
        except BudgetSpentError as e:
            logger.info(f"{relation} was built but not reclustered: {e}")
            return Outcome()
        except Exception as e:
            return Outcome(error=f"{relation} was built but not reclustered: {message(e)}")
        # Files that nobody uses cost money until somebody removes them; all else is in the model's own line.
        (logger.warning if report.orphans else logger.debug)(recluster_line(report))
        return Outcome(report=report)

    @available.parse_none
    def recluster_options(self, arguments: Mapping[str, Any]) -> ReclusterOptions:
        """Check the arguments of the operation."""
        with as_dbt_errors():
            return ReclusterOptions.parse(arguments)

    @available.parse_list
    def recluster_targets(
        self, table: Any, nodes: Iterable[Node], options: ReclusterOptions, variables: Mapping[str, Any]
    ) -> list[Target]:
        """Return the tables to work on; under a budget for the run, those that gain most for a byte first."""
        with as_dbt_errors():
            chosen = targets(table, nodes)
            if run_budget(variables) is None or len(chosen) < 2:
                return chosen
            return sorted(chosen, key=lambda target: -self._gain_per_byte(target, options))

    @available.parse_none
    def recluster_target(
        self, target: Target, options: ReclusterOptions, variables: Mapping[str, Any]
    ) -> Outcome:
        """Recluster one table; a failure is reported, so that the next table has its turn."""
        try:
            if self._passed_over(target):
                return Outcome(text=f"{target.relation}: not built yet")
            if target.error:
                raise OptionError(target.error)
            config = _configured(target, options)
            report = self._recluster(
                target.relation, config, run_budget(variables), dry_run=options.dry_run, trigger="manual"
            )
        except BudgetSpentError as e:
            return Outcome(text=f"{target.relation}: not reclustered, {e}")
        except Exception as e:
            orphans = list(getattr(e, "orphans", ()))
            return Outcome(error=message(e), text=f"{target.relation}: failed: {message(e)}", orphans=orphans)
        return Outcome(report, text=recluster_line(report), table=plan_table(report))

    @available.parse_none
    def recluster_json(self, table: Any, chosen: list[Target], outcomes: list[Outcome]) -> str:
        """Return what the operation did as JSON: one object for a table named alone, else a list."""
        answers = [
            outcome.report.as_dict()
            if outcome.report
            else {
                "table": target.relation,
                "error": outcome.error,
                "reason": outcome.text,
                "orphans": outcome.orphans,
            }
            for target, outcome in zip(chosen, outcomes, strict=True)
        ]
        return json.dumps(answers[0] if isinstance(table, str) else answers, indent=2, ensure_ascii=False)

    def _recluster(
        self,
        relation: str,
        clustering: ClusteringConfig,
        budget: int | None,
        *,
        trigger: str,
        dry_run: bool = False,
    ) -> ReclusterReport:
        from dbt_recluster.maintenance import recluster

        spark = self.spark
        # In a run dbt's own lines come from several threads, and a line that is written over would meet them.
        terminal = sys.stderr if trigger == "manual" else None
        # Under the connection's own group, dbt's cancel on Ctrl-C finds the jobs.
        group = self.connections.get_thread_connection().handle.job_group_id
        with self._budget.turn(budget, clustering.max_bytes) as max_bytes, job_group(spark, group):
            try:
                report = recluster(
                    spark,
                    relation,
                    cluster_by=clustering.key,
                    final=clustering.final,
                    where=clustering.where,
                    max_bytes=max_bytes,
                    depth=clustering.depth,
                    strategy=clustering.strategy,
                    block_rows=clustering.block_rows,
                    dry_run=dry_run,
                    trigger=trigger,
                    listener=ProgressLines(logger.debug if trigger == "run" else logger.info, terminal),
                )
            except ReclusterError as e:
                self._budget.spend(e.bytes_rewritten)  # by rounds before the one that failed
                raise
            self._budget.spend(report.plan.bytes if report.plan else report.bytes_in)
        return report

    def _gain_per_byte(self, target: Target, options: ReclusterOptions) -> float:
        from dbt_recluster.forecast import forecast

        config = _configured(target, options)
        try:
            found = forecast(
                self.spark,
                target.relation,
                config.key,
                where=config.where,
                depth=config.depth,
                strategy=config.strategy,
                block_rows=config.block_rows,
            )
        except ReclusterError:
            return 0.0  # its turn will tell what is wrong
        return found.gain_per_byte


def _configured(target: Target, options: ReclusterOptions) -> ClusteringConfig:
    own = ("final", "where", "max_bytes", "depth", "strategy")
    given = {name: value for name in own if (value := getattr(options, name)) is not None}
    return replace(target.config, **given)
