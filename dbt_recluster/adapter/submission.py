"""The profile's ``recluster_submit``: a command that reclusters a table elsewhere, such as ``spark-submit``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from dbt.adapters.events.logging import AdapterLogger

from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.exceptions import OptionError, SubmitError
from dbt_recluster.redaction import redact

# The file that spark-submit takes. `dbt-recluster job` prints the same path.
JOB = Path(__file__).resolve().parents[1] / "job" / "recluster_job.py"

# When to submit: after the build of each table, or once at the end of the run, for all of them.
SUBMIT_WHEN = ("build", "end")
# Seconds in which the last lines of a command that has ended are read.
_LAST_LINES = 5.0
# A year, in seconds.
_LONGEST = 31_536_000

logger = AdapterLogger("Recluster")


class Submission:
    """One run of the command, for one table or several. No shell is involved.

    Args:
        command: ``recluster_submit`` of the profile.
        tables: The tables, as the job's Spark names them.
        timeout: Seconds after which the command is ended, or None.
    """

    def __init__(self, command: Sequence[str], tables: Sequence[str], timeout: float | None) -> None:
        self._command = [*command, str(JOB), "recluster", *tables, "--json"]
        self._tables = tables
        self._timeout = timeout
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> dict[str, ReclusterResult | SubmitError]:
        """Run the command until it ends.

        Returns:
            The result or the error of each table; none if the command ended well and told no result at all.

        Raises:
            SubmitError: It does not exist, fails before it has a table's result, or does not end in time.
        """
        self._process = process = self._start()
        output, errors = _Lines(process.stdout), _Lines(process.stderr)
        try:
            code = process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            self.cancel()
            raise SubmitError(
                f"recluster_submit: {self._command[0]} did not end within recluster_submit_timeout, "
                f"{self._timeout:g} s, and was stopped. What it submitted may go on elsewhere"
            ) from None
        except BaseException:
            self.cancel()
            raise
        finally:
            # Something that the command left behind may hold them open for as long as it likes.
            output.join(_LAST_LINES)
            errors.join(_LAST_LINES)
        figures, error = _figures(output.last)
        if code and not figures and error is None:
            error = errors.last or output.last or "it printed nothing"
        return self._answers(figures, error, code)

    def _start(self) -> subprocess.Popen[str]:
        try:
            # In a group of its own, so that what it starts can be ended with it.
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except (OSError, ValueError) as e:  # ValueError: a word with a NUL in it
            raise SubmitError(
                f"recluster_submit: {self._command[0]} cannot be started: {getattr(e, 'strerror', None) or e}. Its "
                "first item is a program on the PATH or the path of one"
            ) from e

    def _answers(
        self, figures: Mapping[str, Mapping[str, Any]], error: str | None, code: int
    ) -> dict[str, ReclusterResult | SubmitError]:
        """Return what is known of every table, given the figures by table and the error of the command."""
        if error and not figures:
            raise self._failed(code, error)
        if len(self._tables) == len(figures) == 1:  # the job may know the table by another name
            figures = dict(zip(self._tables, figures.values(), strict=True))
        answers: dict[str, ReclusterResult | SubmitError] = {}
        for table in self._tables:
            if of_table := figures.get(table):
                answers[table] = self._answer(of_table, code)
            elif figures:
                answers[table] = self._failed(code, error or "it said nothing of this table")
            else:
                logger.info(
                    f"{table}: {self._command[0]} ended well without a result in the last line of its output"
                )
        return answers

    def _failed(self, code: int, reason: str) -> SubmitError:
        return SubmitError(f"recluster_submit: {self._command[0]} ended with code {code}: {redact(reason)}")

    def _answer(self, figures: Mapping[str, Any], code: int) -> ReclusterResult | SubmitError:
        if error := figures.get("error"):
            return self._failed(code, str(error))
        try:
            return ReclusterResult.from_dict(figures)
        except ValueError as e:
            return SubmitError(
                f"recluster_submit: {self._command[0]} ended with code {code}, and the last line of its output is not "
                f"a result: {redact(str(e))}"
            )

    def cancel(self) -> None:
        """End the command and what it has started."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """There is nothing to close; it ends with :meth:`run`."""


class _Lines(threading.Thread):
    """Reads a stream to its end, so that it never fills up, and passes its lines to dbt's log."""

    def __init__(self, stream: IO[str] | None) -> None:
        super().__init__(name="recluster-submit", daemon=True)
        assert stream is not None
        self._stream = stream
        self.last = ""
        self.start()

    def run(self) -> None:
        with self._stream:
            for line in self._stream:
                if text := line.rstrip():
                    logger.debug(f"recluster_submit: {redact(text)}")
                    self.last = text


def _figures(line: str) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Return the figures by table, and the error of the job, from its last line, if that is a JSON object."""
    try:
        outcome = json.loads(line)
    except (ValueError, RecursionError):
        return {}, None
    if not isinstance(outcome, dict):
        return {}, None
    error = str(outcome["error"]) if outcome.get("error") else None
    tables = outcome.get("tables")
    if not isinstance(tables, list):
        tables, error = ([outcome], None) if "depth_after" in outcome else ([], error)
    return {str(figures.get("table")): figures for figures in tables if isinstance(figures, dict)}, error


def parse_submit(command: Any, timeout: Any, when: Any = None) -> tuple[tuple[str, ...], float | None]:
    """Check ``recluster_submit``, ``recluster_submit_timeout`` and ``recluster_submit_when`` of a profile.

    Raises:
        OptionError: The command is no list of words, the timeout no number of seconds above 0, or there is no such
            time to submit.
    """
    if (
        not isinstance(command, list)
        or not command
        or not all(isinstance(word, (str, int)) for word in command)
    ):
        raise OptionError(
            "recluster_submit must be a list of words, such as [spark-submit, --master, yarn]; no shell reads it"
        )
    if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST):
        raise OptionError(
            f"recluster_submit_timeout must be a number of seconds above 0, and at most {_LONGEST}"
        )
    if when not in (None, *SUBMIT_WHEN):
        raise OptionError(f"recluster_submit_when must be one of {', '.join(SUBMIT_WHEN)}, not {when!r}")
    return tuple(map(str, command)), timeout
