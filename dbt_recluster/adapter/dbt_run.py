"""One invocation of dbt: its vars and budget, the steps after a table's build, and the job submitted at its end.

The profile's ``recluster_submit`` is a command, such as ``spark-submit``, that reclusters the tables a run has built.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import click
from dbt.adapters.events.types import AdapterEventWarning
from dbt.adapters.spark.impl import SparkAdapter
from dbt_common.events.functions import warn_or_error
from dbt_common.exceptions import DbtBaseException
from dbt_common.invocation import get_invocation_id

from dbt_recluster.adapter.connections.credentials import ReclusterCredentials
from dbt_recluster.adapter.dbt_errors import as_dbt_errors, failure, logger, message
from dbt_recluster.adapter.existing_tables import ExistingTables
from dbt_recluster.adapter.operations import DbtContext, respond
from dbt_recluster.api import OPERATIONS, ReclusterResult
from dbt_recluster.clustering.options import AUTO
from dbt_recluster.clustering.table_state import FailureFile
from dbt_recluster.exceptions import BudgetSpentError, CommitMismatchError, CommitStateUnknownError, SubmitError
from dbt_recluster.iceberg.session.environment import SPARK_CONNECT
from dbt_recluster.iceberg.session.redaction import redact
from dbt_recluster.operations.arguments import AUTOMATIC_CLUSTERING, BUDGET, FORMAT, METRICS, PRICES, TABLE
from dbt_recluster.operations.declaration import Answer, Call, RunBudget, Spending, record_metrics
from dbt_recluster.operations.model_options import MODEL_OPTIONS, ModelOptions, is_similar
from dbt_recluster.operations.targets import CLUSTERED, Target, target_of
from dbt_recluster.report.result_text import model_line, not_reclustered, recluster_line
from dbt_recluster.text import count_noun, did_you_mean, printable

AUTOMATIC_CLUSTERING_ENV = "DBT_RECLUSTER_AUTOMATIC_CLUSTERING"
# A hook without a statement that the adapter adds to a microbatch model: dbt leaves it to the last batch.
LAST_BATCH = "{# the last batch, for dbt-recluster #}"
_LONGEST_NOTE = 150
_NAMES = (AUTOMATIC_CLUSTERING_ENV, *(each.var for each in (AUTOMATIC_CLUSTERING, BUDGET, METRICS, PRICES)))


@dataclass(frozen=True)
class RunVars:
    """The settings of a whole run."""

    off_by: str = ""  # what keeps tables from being reclustered after their builds: ``var`` or ``environment``
    budget: int | None = None  # the bytes that reclustering may rewrite over all tables
    metrics: Path | None = None  # the file for the tables' metrics at the end of the run
    prices: Any = None  # for their costs

    @classmethod
    def from_vars(cls, var: Callable[..., Any]) -> RunVars:
        """Read the project's vars and the environment; raise OptionError if one is wrong."""
        off_by = "" if AUTOMATIC_CLUSTERING.of_var(var) else "var"
        if text := os.environ.get(AUTOMATIC_CLUSTERING_ENV):
            is_on = AUTOMATIC_CLUSTERING.read(text, f"environment variable {AUTOMATIC_CLUSTERING_ENV}")
            off_by = off_by or ("" if is_on else "environment")
        return cls(off_by, BUDGET.of_var(var), METRICS.of_var(var), PRICES.of_var(var))


class DbtRun:
    """The state that the builds of an invocation share: a budget, tables to submit, and warnings given once."""

    def __init__(self, adapter: SparkAdapter, tables: ExistingTables) -> None:
        self._adapter = adapter
        self.tables = tables
        self._spent = Spending()
        self._warned: set[str] = set()
        self.failed: set[str] = set()  # ids of the nodes whose recluster failed
        self._metrics: Path | None = None
        self._measured: dict[str, Answer] = {}  # at the end, by name
        self._project: Collection[str] = ()  # tables of the project that are clustered
        self.submission: RunSubmission | None = None
        if (credentials := tables.session.credentials).recluster_submit is not None:
            self.submission = RunSubmission(credentials, Path(adapter.config.project_target_path))

    def warn_once(self, subject: str) -> bool:
        """Return whether to warn of ``subject``: once in an invocation."""
        is_first = subject not in self._warned
        self._warned.add(subject)
        return is_first

    def settings(self, macros: Mapping[str, Any]) -> RunVars:
        """Read the run's vars; warn once about those, and variables of the environment, that resemble one."""
        config = self._adapter.config
        dbt_vars = {**config.vars.to_dict(), **config.cli_vars}
        scopes = [dbt_vars, os.environ, *(value for value in dbt_vars.values() if isinstance(value, Mapping))]
        for name in sorted({str(name) for scope in scopes for name in scope}.difference(_NAMES)):
            if is_similar(name, _NAMES) and self.warn_once(f"var {name}"):
                warn = macros["exceptions"]["warn"]
                warn(f"there is no var or environment variable {name}; {did_you_mean(name, _NAMES)}")
        return RunVars.from_vars(macros["var"])

    def context(self, settings: RunVars, trigger: str = "manual") -> DbtContext:
        """Return where operations run, under the budget of the settings."""
        budget = RunBudget(settings.budget, self._spent)
        failures = FailureFile(Path(self._adapter.config.project_target_path) / "recluster_failures.json")
        return DbtContext(self._adapter, self.tables, budget, trigger, settings.off_by, failures)

    def measure(self, macros: Mapping[str, Any], settings: RunVars) -> None:
        """Measure a node's table at the end of the run for the metrics, whatever becomes of the node."""
        if settings.metrics is None or self.submission is not None or self.tables.session.missing_reason:
            return
        nodes = macros["graph"]["nodes"]
        self._project = self._project or {target.relation for target in CLUSTERED.targets(nodes.values())}
        target = target_of(nodes[macros["model"]["unique_id"]])
        if target.relation in self._project:
            call = Call(target, {}, self.context(settings))  # packages may have vars of their own
            self._metrics, self._measured[target.relation] = settings.metrics, Answer(target.relation, call=call)

    def measure_unbuilt(self, node: Any) -> None:
        """Measure the table of a node that is refused before dbt gives it macros."""
        from dbt.context.providers import generate_runtime_model_context

        config: Any = self._adapter.config
        manifest: Any = self._adapter.get_macro_resolver()
        macros = generate_runtime_model_context(node, config, manifest)
        with as_dbt_errors(node):
            self.measure(macros, RunVars.from_vars(macros["var"]))

    def end(self) -> None:
        """End dbt's run, whether it went well or not: write the metrics, and submit the tables that it built."""
        if warnings := record_metrics(list(self._measured.values()), self._metrics, self._project):
            _at_close(lambda: _warn(warnings))
        self._measured, self._project = {}, ()
        if self.submission is not None:
            self.submission.submit_at_end()


@cache
def _count_failed_reclusters() -> None:
    """Give the results of nodes whose recluster failed the status warn: dbt itself knows only success and error."""
    from dbt.artifacts.schemas.results import NodeStatus
    from dbt.task.run import MicrobatchBatchRunner, ModelRunner

    after_execute = ModelRunner.after_execute

    def after(runner: Any, result: Any) -> None:
        run = getattr(runner.adapter, "run", None)
        # dbt goes on only after a first batch with success.
        if not isinstance(runner, MicrobatchBatchRunner) and runner.node.unique_id in getattr(run, "failed", ()):
            result.status = NodeStatus.Warn if result.status == NodeStatus.Success else result.status
        after_execute(runner, result)

    ModelRunner.after_execute = after  # type: ignore[assignment, method-assign]


@dataclass
class AfterBuild:
    """Reclusters and maintains a node's table after its build, and completes dbt's response.

    The data is in place, so failures are warnings; they respect ``--warn-error``.
    """

    run: DbtRun
    macros: Mapping[str, Any]  # the context of the node's macros
    settings: RunVars
    options: ModelOptions  # of the node
    former_key: str | None  # that the build replaced

    def __post_init__(self) -> None:
        self._session = self.run.tables.session
        self._name = self.macros["this"].render()
        self._warn = self.macros["exceptions"]["warn"]

    def finish(self, *, by_hook: bool) -> None:
        """Recluster the table if the node's options say so and no hook does, and maintain it."""
        options = self.options
        is_marked = any(hook["sql"] == LAST_BATCH for hook in self.macros["post_hooks"])
        is_last = (is_marked or not self.macros["model"].get("batch")) and not self.macros["flags"].EMPTY
        is_due = is_last and options.is_clustered and options.automatic_clustering and not by_hook
        self._respond(self._recluster({}) if is_due else Answer(self._name))
        if is_last and options.maintain and self._is_possible("maintained"):
            maintain, call = OPERATIONS["maintain"], Call(Target(self._name), {}, self.run.context(self.settings))
            try:
                with self._session.cancellable():
                    done = maintain.run(call)
                if done.done:
                    logger.info(maintain.text(done, call))
            except Exception as e:  # whatever Spark, Java and the catalog raise
                self._warn(f"{self._name} was built but not maintained: {failure(e)}")

    def recluster(self, arguments: Mapping[str, Any]) -> None:
        """Recluster the table or a branch, and complete dbt's response; its figures are those of the table."""
        answer, branch = self._recluster(arguments), arguments.get("branch")
        if branch is not None and answer.result is not None:
            answer = replace(answer, text=f"branch {branch}: {model_line(answer.result)}", result=None)
        self._respond(answer)

    def _respond(self, answer: Answer) -> None:
        """Complete dbt's response for the node, and log warnings."""
        result, note = answer.result, ""
        if answer.error is not None:
            self.run.failed.add(self.macros["model"]["unique_id"])
            _count_failed_reclusters()
            key = str(self.options.cluster_by or AUTO)
            result = ReclusterResult(self._name, key, verdict="failing", reason=answer.text)
            note = f"recluster FAILED: {printable(answer.text)[:_LONGEST_NOTE]}"
        elif result is not None:
            note = model_line(result)
        text = answer.text if answer.error is None else ""
        notes = list(filter(None, [text, note, self._key_note(answer.result)]))
        main = self.macros["load_result"]("main")
        if main is not None and (result is not None or notes):
            self.macros["store_result"]("main", response=respond(main.response, result, notes))
        for warning in filter(None, [answer.error, *answer.warnings]):
            self._warn(printable(warning, keep="\n"))

    def _recluster(self, arguments: Mapping[str, Any]) -> Answer:
        """Recluster the table unless that is off or impossible; a failure is the answer's error."""
        name, run, settings = self._name, self.run, self.settings
        if settings.off_by or (run.submission is None and not self._is_possible("reclustered")):
            return Answer(name)
        try:
            read = OPERATIONS["recluster"].read((TABLE, FORMAT), arguments)
            if run.submission is not None:
                return self._submit(run.submission, read)
            with self._session.cancellable():
                result = OPERATIONS["recluster"].run(self._call(read))
        except BudgetSpentError as e:
            logger.info(f"{name} was built but not reclustered: {e}")
            return Answer(name)
        except Exception as e:  # recluster_session or the command does not start, or the connection is lost
            return Answer(name, text=message(e), error=failure_of_build(name, e))
        return Answer(name, result=result, warnings=warnings_of(name, result))

    def _call(self, arguments: Mapping[str, Any]) -> Call:
        target = Target(self._name, self.options, unique_id=self.macros["model"]["unique_id"])
        return Call(target, {"prices": self.settings.prices, **arguments}, self.run.context(self.settings, "run"))

    def _submit(self, submission: RunSubmission, arguments: Mapping[str, Any]) -> Answer:
        name = self._name
        if options := [option for option in (*MODEL_OPTIONS, "branch") if arguments.get(option) is not None]:
            logger.warning(f"{name}: recluster_submit goes by the model's configs, not by its hook's {options}")
        if not self.options.automatic_clustering:
            self._warn(f"{name}: recluster_submit goes by automatic_clustering: false, so its hook reclusters nothing")
            return Answer(name)
        if self.settings.budget is not None and self.run.warn_once("the budget of recluster_submit"):
            self._warn(f"recluster_submit does not know the var {BUDGET.var}: set the config of the models")
        if int(self.run.tables.catalogs.ask(f"select count(*) from {name}.data_files")[0][0]) < 2:
            return Answer(name)
        submission.tables.append(name)
        return Answer(name, text="reclustered at the end of the run")

    def _is_possible(self, what: str) -> bool:
        """Return whether there is a session to recluster with; otherwise, warn once in a run."""
        reason = self._session.missing_reason
        if reason and self.run.warn_once(f"cannot be {what}"):
            self._warn(f"Tables are not {what} in this run: {reason}")
        return reason is None

    def _key_note(self, result: ReclusterResult | None) -> str:
        """Return the note on a model's line about a changed key, with the depth by the new one."""
        if self.former_key is None:
            return ""
        if self.options.cluster_by is None:
            return f"cluster_by removed, was {self.former_key}: no longer sorted or reclustered"
        note, depth = f"cluster_by was {self.former_key}", result.depth_after if result else None
        if result is not None and result.rounds:
            return note  # the recluster's own note has the depth
        if depth is None and not self._session.missing_reason:
            try:
                with self._session.cancellable():
                    depth = self._call({}).overview(exact=True).depth
            except Exception as e:  # as in finish(); the note does without
                logger.debug(f"no depth of {self._name}: {failure(e)}")
        return note if depth is None else f"{note}, depth now {depth:.1f}"


def _at_close(call: Callable[[], object]) -> None:
    """Call when dbt's command ends: it closes its connections before it writes its files."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(call)
    else:
        call()


def _warn(warnings: Sequence[str]) -> None:
    """Warn at the end of a command; with ``--warn-error``, log errors and end with one, after dbt's own files."""
    error = None
    for warning in warnings:
        try:
            warn_or_error(AdapterEventWarning(name="Recluster", base_msg=warning, args=[]))
        except DbtBaseException as e:
            logger.error(warning)
            error = e
    if error is not None and sys.exc_info()[1] is None:  # a failed run has its own exit code
        from dbt.cli.exceptions import ExceptionExit

        raise ExceptionExit(error)


# The file for spark-submit; `dbt-recluster job` prints the same path.
JOB = Path(__file__).resolve().parents[1] / "job" / "recluster_job.py"


class RunSubmission:
    """Submits ``tables``, those that a run has built, after dbt has written its manifest and the run's results."""

    def __init__(self, credentials: ReclusterCredentials, target_path: Path) -> None:
        self._command = list(map(str, credentials.recluster_submit or ()))
        self._timeout = credentials.recluster_submit_timeout
        self._manifest, self._results = target_path / "manifest.json", target_path / "run_results.json"
        self.tables: list[str] = []

    def submit_at_end(self) -> None:
        """Submit when dbt's command ends."""
        tables, self.tables = list(dict.fromkeys(self.tables)), []
        if tables:
            _at_close(lambda: self._submit(tables))

    def _submit(self, tables: Sequence[str]) -> None:
        count = count_noun(len(tables), "table")
        logger.info(f"recluster_submit: {self._command[0]} reclusters {count} of this run")
        warnings: list[str] = []
        try:
            for answer in run_job(self._command, self._arguments(), self._timeout):
                if isinstance(answer, SubmitError):
                    warnings.append(str(answer))
                else:
                    logger.info(recluster_line(answer))
                    warnings += warnings_of(answer.table, answer)
        except SubmitError as e:
            warnings.append(failure_of_build(", ".join(tables), e))
        _warn(warnings)

    def _arguments(self) -> list[str]:
        """Return the job's arguments."""
        try:
            invocation = json.loads(self._results.read_text(encoding="utf-8"))["metadata"]["invocation_id"]
        except (OSError, ValueError, KeyError, TypeError):
            invocation = None
        if invocation != get_invocation_id():
            raise SubmitError(
                f"recluster_submit: dbt has not written {self._results} of this run, which tells the job what was "
                "built; run dbt without --no-write-json"
            )
        return ["recluster", "--manifest", str(self._manifest), "--run-results", str(self._results), "--json"]


def run_job(
    command: Sequence[str], arguments: Sequence[str], timeout: float | None
) -> list[ReclusterResult | SubmitError]:
    """Run ``recluster_submit`` with the job and its arguments to its end, without a shell.

    Returns:
        The result or the error of each table, and the job's own error; nothing if the job ended well without a result.

    Raises:
        SubmitError: It does not exist, fails before it has a table's result, or does not end in time.
    """
    # Files, not pipes, which a process that outlives the command may hold open.
    with TemporaryFile("w+", errors="replace") as output, TemporaryFile("w+", errors="replace") as errors:
        try:
            code = _run([*command, str(JOB), *arguments], output, errors, timeout)
        except subprocess.TimeoutExpired:
            raise SubmitError(
                f"recluster_submit: {command[0]} did not end within recluster_submit_timeout, {timeout:g} s, and was "
                "stopped. What it submitted may go on elsewhere"
            ) from None
        except (OSError, ValueError) as e:  # ValueError: a NUL in a word
            raise SubmitError(
                f"recluster_submit: {command[0]} cannot be started: {getattr(e, 'strerror', None) or e}. Its first "
                "item is a program on the PATH or the path of one"
            ) from e
        finally:
            last_error, last_line = _log(errors), _log(output)
    ended = f"recluster_submit: {command[0]} ended with code {code}"
    answer: Any = None
    with suppress(ValueError, RecursionError):
        answer = json.loads(last_line)
    answer = answer if isinstance(answer, dict) else {}
    tables = answer["tables"] if isinstance(answer.get("tables"), list) else []
    answers = [_answer_of(figures, ended) for figures in tables if isinstance(figures, dict)]
    error = answer.get("error")
    if code and not answers and not error:
        error = last_error or last_line or "it printed nothing"
    submit_errors = [SubmitError(f"{ended}: {redact(str(error))}")] if error else []
    if submit_errors and not answers:
        raise submit_errors[0]
    if not answers:
        logger.info(f"{command[0]} ended well without a result in the last line of its output")
    return [*answers, *submit_errors]


def _run(words: Sequence[str], output: IO[str], errors: IO[str], timeout: float | None) -> int:
    """Run a command and return its exit code; an exception ends it and its child processes."""
    # dbt may have built over Spark Connect; the job needs a Spark with a JVM.
    environment = {name: value for name, value in os.environ.items() if name not in SPARK_CONNECT}
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
    )
    try:
        return process.wait(timeout)
    except BaseException:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        raise


def _log(stream: IO[str]) -> str:
    """Write the lines of a stream to dbt's log; return the last one."""
    stream.seek(0)
    last = ""
    for line in filter(None, map(str.rstrip, stream)):
        logger.debug(f"recluster_submit: {redact(line)}")
        last = line
    return last


def _answer_of(figures: Mapping[str, Any], ended: str) -> ReclusterResult | SubmitError:
    """Return the result or the error of one table."""
    if error := figures.get("error"):
        failed = SubmitError(f"{ended}: {redact(str(error))}")
        return SubmitError(failure_of_build(redact(str(figures.get("table"))), failed))
    try:
        return ReclusterResult.from_dict(figures)
    except ValueError as e:
        return SubmitError(f"{ended}, and the last line of its output is not a result: {redact(str(e))}")


def warnings_of(table: str, result: ReclusterResult) -> list[str]:
    """Return the warnings about a recluster after a build, and log the rest."""
    warnings = [f"{table}: {warning}" for warning in result.warnings]
    if result.limited and not result.rounds:
        warnings.append(f"{table} was built but {not_reclustered(result)}")
    if result.condition_met is not None:
        log = logger.info if result.rounds else logger.debug
        log(f"{table}: recluster condition met, {result.condition_met}")
    # Orphan files cost money until they are removed; all other figures are on the model's line.
    (logger.warning if result.orphans else logger.debug)(recluster_line(result))
    return warnings


def failure_of_build(table: str, error: Exception) -> str:
    """Return the warning about a recluster that failed after a build: the data is in place."""
    may_be_committed = isinstance(error, (CommitMismatchError, CommitStateUnknownError))
    what = "was built, and its recluster failed" if may_be_committed else "was built but not reclustered"
    return f"{table} {what}: {failure(error)}"
