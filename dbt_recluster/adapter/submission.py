"""The profile's ``recluster_submit``: a command, such as ``spark-submit``, that reclusters what a run has built."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import click
from dbt.adapters.events.types import AdapterEventWarning
from dbt_common.events.functions import warn_or_error
from dbt_common.exceptions import DbtBaseException
from dbt_common.invocation import get_invocation_id

from dbt_recluster.adapter.connections import ReclusterCredentials
from dbt_recluster.adapter.dbt_errors import failure, logger, message
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.exceptions import CommitMismatchError, CommitStateUnknownError, SubmitError
from dbt_recluster.iceberg.session.environment import SPARK_CONNECT
from dbt_recluster.iceberg.session.redaction import redact
from dbt_recluster.report.recluster_text import not_reclustered, recluster_line
from dbt_recluster.text import count_noun

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
        """Submit when dbt's command ends: it closes its connections before it writes its files."""
        tables, self.tables = list(dict.fromkeys(self.tables)), []
        context = click.get_current_context(silent=True)
        if tables and context is not None:
            context.call_on_close(lambda: self._submit(tables))
        elif tables:
            self._submit(tables)

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
        error = None
        for warning in warnings:
            try:  # as macros warn: --warn-error makes it an error
                warn_or_error(AdapterEventWarning(name="Recluster", base_msg=warning, args=[]))
            except DbtBaseException as e:
                logger.error(message(e))
                error = e
        if error is not None and sys.exc_info()[1] is None:  # a failed run has its own exit code
            from dbt.cli.exceptions import ExceptionExit

            raise ExceptionExit(error)

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
    try:
        answer = json.loads(last_line)
    except (ValueError, RecursionError):
        answer = None
    answer = answer if isinstance(answer, dict) else {}
    tables: Any = answer.get("tables")
    tables = tables if isinstance(tables, list) else []
    answers = [_answer_of(figures, ended) for figures in tables if isinstance(figures, dict)]
    error = answer.get("error")
    if code and not answers and not error:
        error = last_error or last_line or "it printed nothing"
    own = [SubmitError(f"{ended}: {redact(str(error))}")] if error else []
    if own and not answers:
        raise own[0]
    if not answers:
        logger.info(f"{command[0]} ended well without a result in the last line of its output")
    return [*answers, *own]


def _run(words: Sequence[str], output: IO[str], errors: IO[str], timeout: float | None) -> int:
    """Run a command and return its exit code; an exception ends it and its child processes."""
    # dbt may have built over Spark Connect; the job needs a Spark with a JVM.
    environment = {name: value for name, value in os.environ.items() if name not in SPARK_CONNECT}
    null = subprocess.DEVNULL
    process = subprocess.Popen(
        words, stdin=null, stdout=output, stderr=errors, env=environment, start_new_session=True
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
    # Orphan files cost money until somebody removes them; everything else is on the model's line.
    (logger.warning if result.orphans else logger.debug)(recluster_line(result))
    return warnings


def failure_of_build(table: str, error: Exception) -> str:
    """Return the warning about a recluster that failed after a build: the data is in place."""
    may_be_committed = isinstance(error, (CommitMismatchError, CommitStateUnknownError))
    what = "was built, and its recluster failed" if may_be_committed else "was built but not reclustered"
    return f"{table} {what}: {failure(error)}"
