"""Reclustering from dbt: after a build, and by ``dbt run-operation recluster``."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dbt.adapters.events.logging import AdapterLogger

from dbt_recluster.adapter.arguments import CHOICE_ARGUMENTS, RECLUSTER_ARGUMENTS, parse_arguments
from dbt_recluster.adapter.config import ClusteringConfig, run_budget
from dbt_recluster.adapter.dbt_errors import failure
from dbt_recluster.adapter.operation_runner import OperationRunner
from dbt_recluster.adapter.targets import Choice, Node, Target
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.values import Depth
from dbt_recluster.exceptions import BudgetSpentError, ClusterKeyError, OptionError, ReclusterError
from dbt_recluster.report import reads_text
from dbt_recluster.report.progress_lines import ProgressLines
from dbt_recluster.report.text import not_reclustered, plan_table, recluster_line

if TYPE_CHECKING:
    from dbt_recluster.clustering.result import ReclusterResult
    from dbt_recluster.clustering.table import ClusteredTable

logger = AdapterLogger("Recluster")


class RunBudget:
    """The bytes that one dbt invocation may rewrite over all its tables: var ``recluster_max_bytes``.

    Under a budget, tables are reclustered one after the other: two at the same time could each spend all that is left.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent = 0

    @contextmanager
    def limit(self, total: int | None, own: int | None) -> Iterator[int | None]:
        """Reserve the budget for one table and yield the most bytes that it may rewrite; None is no limit.

        Args:
            total: The budget of the whole run, or None.
            own: The limit of this table, or None.

        Raises:
            BudgetSpentError: Nothing is left.
        """
        if total is None:
            yield own
            return
        with self._lock:
            left = total - self._spent
            if left <= 0:
                raise BudgetSpentError(f"the {total} bytes of var recluster_max_bytes are spent in this run")
            yield left if own is None else min(left, own)

    def spend(self, count: int) -> None:
        """Count bytes that were rewritten; call it while the budget is reserved."""
        self._spent += count


@dataclass
class TableOutcome:
    """What became of one table.

    Attributes:
        result: The result of the recluster, or None if it failed or was passed over.
        error: Why it failed.
        warnings: What the user should know although it did not fail.
        text: One line to print.
        plan: The plan of a dry run, to print below the line.
        orphans: If it failed, all files that it left behind.
    """

    result: ReclusterResult | None = None
    error: str | None = None
    warnings: list[str] = field(default_factory=list)
    text: str = ""
    plan: str = ""
    orphans: list[str] = field(default_factory=list)

    @classmethod
    def of_build(cls, relation: str, result: ReclusterResult | None) -> TableOutcome:
        """Return what the user should know of a recluster after a build; None if nothing is known of it."""
        if result is None:
            return cls()
        warnings = [f"{relation}: {warning}" for warning in result.warnings]
        if result.limited and not result.rounds:
            warnings.append(f"{relation} was built but {not_reclustered(result)}")
        if result.fired is not None:
            logger.info(f"{relation}: recluster is due, {result.fired}")
        # Unused files cost money until somebody removes them; everything else is on the model's line.
        (logger.warning if result.orphans else logger.debug)(recluster_line(result))
        return cls(result, warnings=warnings)

    @classmethod
    def of_failure(cls, relation: str, error: Exception) -> TableOutcome:
        """Return what the user should know of a recluster that failed after a build: the data is in place."""
        return cls(error=f"{relation} was built but not reclustered: {failure(error)}")


@dataclass(frozen=True)
class OperationArguments:
    """The arguments of ``run-operation recluster``; None if not given."""

    choice: Choice = field(default_factory=Choice)
    cluster_by: Any = None
    final: bool | None = None
    where: str | None = None
    max_bytes: int | None = None
    depth: Depth | None = None
    strategy: str | None = None
    dry_run: bool = False
    format: str = "text"

    def options(self, config: ClusteringConfig) -> ReclusterOptions:
        """Return the options for a table whose model has this configuration."""
        names = ("final", "where", "max_bytes", "depth", "strategy")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return config.options(**given, dry_run=self.dry_run)


class TableReclusterer:
    """Reclusters tables for dbt.

    Args:
        runner: Opens tables.
        budget: The budget of this invocation.
    """

    def __init__(self, runner: OperationRunner, budget: RunBudget) -> None:
        self._runner = runner
        self._budget = budget

    def after_build(
        self, relation: str, config: ClusteringConfig, variables: Mapping[str, Any], unique_id: str
    ) -> TableOutcome:
        """Recluster after a build; what the run's budget does not allow is left for the next run."""
        target = Target(relation, config, required=True, unique_id=unique_id)
        try:
            result = self._recluster(target, config.options(trigger="run"), run_budget(variables))
        except BudgetSpentError as e:
            logger.info(f"{relation} was built but not reclustered: {e}")
            return TableOutcome()
        return TableOutcome.of_build(relation, result)

    def by_hand(
        self, target: Target, arguments: OperationArguments, variables: Mapping[str, Any]
    ) -> TableOutcome:
        """Recluster one table of an operation. A failure is reported, so that the next table has its turn."""
        try:
            if self._runner.is_passed_over(target):
                return TableOutcome(text=f"{target.relation}: not built yet")
            if target.error:
                raise OptionError(target.error)
            target = _with_key(target, arguments)
            result = self._recluster(target, arguments.options(target.config), run_budget(variables))
        except BudgetSpentError as e:
            return TableOutcome(text=f"{target.relation}: not reclustered, {e}")
        except Exception as e:
            orphans = list(getattr(e, "orphans", ()))
            error = failure(e)
            return TableOutcome(error=error, text=f"{target.relation}: failed: {error}", orphans=orphans)
        return TableOutcome(
            result, warnings=result.warnings, text=recluster_line(result), plan=plan_table(result)
        )

    def parse(self, given: Mapping[str, Any]) -> OperationArguments:
        """Check the arguments of the operation.

        Raises:
            OptionError, ClusterKeyError: One is wrong.
        """
        arguments = parse_arguments("recluster", RECLUSTER_ARGUMENTS, given)
        return OperationArguments(
            choice=self._runner.choice(*map(arguments.pop, CHOICE_ARGUMENTS)), **arguments
        )

    def targets(
        self, nodes: Iterable[Node], arguments: OperationArguments, variables: Mapping[str, Any]
    ) -> list[Target]:
        """Return the tables to work on; under a budget, those that gain most for each byte come first."""
        selected = self._runner.targets(arguments.choice, nodes)
        if arguments.cluster_by is not None and (arguments.choice.table is None or len(selected) != 1):
            raise OptionError("cluster_by is for a single table: name it with table")
        if run_budget(variables) is None or len(selected) < 2:
            return selected
        return sorted(selected, key=lambda target: -self._gain_per_byte(target, arguments))

    def as_json(
        self, arguments: OperationArguments, selected: list[Target], outcomes: list[TableOutcome]
    ) -> str:
        """Return the outcomes as JSON: one object for a single named table, otherwise a list."""
        answers = [
            outcome.result.as_dict()
            if outcome.result
            else {
                "table": target.relation,
                "error": outcome.error,
                "reason": outcome.text,
                "orphans": outcome.orphans,
            }
            for target, outcome in zip(selected, outcomes, strict=True)
        ]
        single = arguments.choice.is_single
        return json.dumps(answers[0] if single else answers, indent=2, ensure_ascii=False)

    def _recluster(self, target: Target, options: ReclusterOptions, budget: int | None) -> ReclusterResult:
        is_run = options.trigger == "run"
        # During a run, dbt's own lines come from several threads and would mix with a line that is overwritten.
        terminal = None if is_run else sys.stderr
        progress = ProgressLines(logger.debug if is_run else logger.info, terminal)
        with self._budget.limit(budget, options.max_bytes) as max_bytes:
            options = replace(options, max_bytes=max_bytes, progress=progress)
            try:
                table = self._runner.open(target.relation, target.config.cluster_by)
                warnings = []
                if is_run and target.config.reads_of_project and target.unique_id is not None:
                    warnings = _learn(table, self._runner.queries(target.unique_id))
                result = table.recluster(options)
                result.warnings += warnings
            except ReclusterError as e:
                self._budget.spend(e.bytes_rewritten)  # by rounds before the one that failed
                raise
            self._budget.spend(result.plan.bytes if result.plan else result.bytes_in)
        return result

    def _gain_per_byte(self, target: Target, arguments: OperationArguments) -> float:
        try:
            table = self._runner.open(target.relation, target.config.cluster_by)
            return table.estimate(arguments.options(target.config)).gain_per_byte
        except ReclusterError:
            return 0.0  # its turn will tell what is wrong


def _learn(table: ClusteredTable, queries: Mapping[str, str]) -> list[str]:
    """Record the project's reads of a table, unless they are recorded; return warnings."""
    if queries and not table.is_project_known(queries):
        try:
            logger.debug(reads_text.learned(table.learn_from_project(queries).as_dict()))
        except Exception as e:  # the recluster follows the reads that were recorded before
            return [f"the project's reads were not learned: {failure(e)}"]
    return []


def _with_key(target: Target, arguments: OperationArguments) -> Target:
    """Return the target under the key that the operation names.

    Raises:
        ClusterKeyError: Its model has another key.
    """
    if arguments.cluster_by is None:
        return target
    own = target.config.cluster_by
    if own is not None and str(own).lower() != str(arguments.cluster_by).lower():
        raise ClusterKeyError(
            f"the model of {target.relation} has cluster_by {own}; change it there instead of naming "
            f"{arguments.cluster_by} here"
        )
    return replace(target, config=replace(target.config, cluster_by=arguments.cluster_by))
