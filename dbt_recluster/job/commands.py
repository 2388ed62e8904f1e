"""The commands of ``dbt-recluster``: each works on one table after the other, and a failure does not stop it."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_settings import KEY_PROPERTY, TableSettings
from dbt_recluster.exceptions import CatalogNotFoundError, ClusterKeyError
from dbt_recluster.iceberg.catalog_files import CatalogFiles
from dbt_recluster.iceberg.catalog_tables import tables_of_catalog, tables_of_namespace
from dbt_recluster.iceberg.java_errors import short_message
from dbt_recluster.iceberg.jobs import job_group
from dbt_recluster.iceberg.session.interruption import Interruptible, stop_if_interrupted
from dbt_recluster.iceberg.sort_order import table_cluster_key
from dbt_recluster.job.command_line import DONE, FAILED, INTERRUPTED, PROGRAM, WRONG_USAGE, Request
from dbt_recluster.job.start import spark_session, standard_error
from dbt_recluster.redaction import redact, without_known_secrets
from dbt_recluster.report import housekeeping_text, operation_text
from dbt_recluster.report.progress_lines import ProgressLines
from dbt_recluster.report.text import RESUME_WITHOUT_DBT, count_noun, plan_table, recluster_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Answer:
    """What a command found or did in one table.

    Attributes:
        values: For JSON.
        text: For people.
        warnings: What the user should know although it did not fail.
    """

    values: dict[str, Any]
    text: str
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Target:
    """A table to work on, under the key to use, and what the command knows of the other tables of its catalog."""

    table: ClusteredTable
    settings: TableSettings
    catalog: CatalogFiles


def run(request: Request) -> int:
    """Run a command in a Spark session and return its exit code."""
    job = _Job(request)
    with standard_error():
        try:
            with (
                Interruptible(signals=_SIGNALS),
                spark_session(request.settings) as spark,
                job_group(spark, PROGRAM),
            ):
                return job.run(spark)
        except KeyboardInterrupt as e:
            return job.stop(str(e) or "interrupted", INTERRUPTED)
        except Exception as e:
            job.debug(e)
            return job.stop(short_message(e), WRONG_USAGE if isinstance(e, CatalogNotFoundError) else FAILED)


class _Job:
    """One command on its tables.

    Args:
        request: The command line.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._answers: list[dict[str, Any]] = []
        self._failed = 0
        self._left_out = 0
        self._catalog = CatalogFiles()
        self._code: int | None = None

    def run(self, spark: SparkSession) -> int:
        """Work on every table until an interruption; print what came of each."""
        for name in self._names(spark):
            try:
                self._work(spark, name)
            except Exception as e:
                stop_if_interrupted(e)
                self._fail(name, e)
            stop_if_interrupted()
        place = self._request.namespace or self._request.catalog
        if self._left_out:
            tables = count_noun(self._left_out, "table")
            self._note(f"{tables} of {place} left out, by automatic_clustering: false")
        elif not self._answers:
            self._note(f"no table of {place} has a cluster key")
        if len(self._answers) > 1 and self._failed:
            self._note(f"{self._failed} of {len(self._answers)} tables failed")
        return self._end(FAILED if self._failed else DONE)

    def stop(self, error: str, code: int) -> int:
        """End before all tables had their turn, unless they had: a signal may come later."""
        if self._code is not None:
            return self._code
        error = without_known_secrets(error)
        self._note(f"{PROGRAM}: {error}")
        return self._end(code, error)

    def _names(self, spark: SparkSession) -> list[str]:
        if self._request.catalog is not None:
            return tables_of_catalog(spark, self._request.catalog)
        if self._request.namespace is not None:
            return tables_of_namespace(spark, self._request.namespace)
        return list(self._request.tables)

    def _work(self, spark: SparkSession, name: str) -> None:
        target = self._target(spark, name)
        if target is None:
            return
        answer = _COMMANDS[self._request.command](target, self._request)
        self._answers.append(answer.values)
        for warning in [*_unknown_options(target), *answer.warnings]:
            self._note(f"{name}: {warning}")
        print(answer.text, file=sys.stderr if self._request.as_json else sys.stdout, flush=True)

    def _target(self, spark: SparkSession, name: str) -> _Target | None:
        """Open a table under the key to use; None if it is passed over because nobody named it."""
        table = ClusteredTable(spark, name)
        settings = TableSettings(table.iceberg.properties)
        if not self._request.tables and not self._is_included(table, settings):
            return None
        needs_key = self._request.command in _NEED_KEY
        key = self._request.cluster_by or (settings.cluster_by if needs_key else None)
        if key is None and needs_key and table_cluster_key(table.iceberg) is None:
            raise ClusterKeyError(
                f"{name} has no cluster key: neither the property {KEY_PROPERTY} nor a sort order; name one with "
                "--cluster-by"
            )
        return _Target(table if key is None else table.under(key), settings, self._catalog)

    def _is_included(self, table: ClusteredTable, settings: TableSettings) -> bool:
        """Whether a table that nobody named is worked on."""
        if not _has_key(table, settings):
            return False
        is_left_out = self._request.command == "recluster" and not settings.automatic_clustering
        self._left_out += is_left_out
        return not is_left_out

    def debug(self, error: Exception) -> None:
        """Print the traceback of an error if that was asked for."""
        if self._request.debug:
            self._note(redact("".join(traceback.format_exception(error))))

    def _fail(self, name: str, error: Exception) -> None:
        text, orphans = without_known_secrets(short_message(error)), list(getattr(error, "orphans", ()))
        self._failed += 1
        self._answers.append({"table": name, "error": text, "orphans": orphans})
        self.debug(error)
        self._note(text if text.startswith(name) else f"{name}: {text}")

    def _end(self, code: int, error: str | None = None) -> int:
        self._code = code
        if self._request.as_json:
            outcome = {
                "command": self._request.command,
                "exit_code": code,
                "error": error,
                "tables": self._answers,
            }
            is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            print(json.dumps(outcome, ensure_ascii=not is_utf8), flush=True)
        return code

    def _note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _has_key(table: ClusteredTable, settings: TableSettings) -> bool:
    if settings.cluster_by is not None:
        return True
    try:
        return table_cluster_key(table.iceberg) is not None
    except ClusterKeyError:
        return False  # sorted by something that is no cluster key


def _unknown_options(target: _Target) -> Iterator[str]:
    for name in target.settings.unknown:
        yield f"table property {name} is not an option of dbt-recluster and is ignored"


def _recluster(target: _Target, request: Request) -> Answer:
    terminal = sys.stderr if sys.stderr.isatty() else None
    progress = None if terminal is None else ProgressLines(_print_progress, terminal)
    options = target.settings.options(**request.options, progress=progress)
    result = target.table.recluster(options)
    text = recluster_line(result, RESUME_WITHOUT_DBT)
    if plan := plan_table(result):
        text = f"{text}\n{plan}"
    return Answer(result.as_dict(), text, [*_key_warnings(target, request), *result.warnings])


def _key_warnings(target: _Target, request: Request) -> Iterator[str]:
    if request.cluster_by is None:
        return
    try:
        own = target.settings.cluster_by
    except ClusterKeyError as e:
        yield str(e)
        return
    if own is not None and str(own).lower() != str(target.table.key).lower():
        yield f"its model has cluster_by {own} and makes that its sort order again at its next run"


def _print_progress(message: str, *facts: str) -> None:
    print(message.format(*facts), file=sys.stderr, flush=True)


def _information(target: _Target, request: Request) -> Answer:
    values = target.table.information(request.where)
    return Answer(values, operation_text.information(values))


def _history(target: _Target, request: Request) -> Answer:
    entries = [entry.as_dict() for entry in target.table.history(request.since)]
    since = request.since.isoformat() if request.since else None
    values = {"table": target.table.name, "since": since, "entries": entries}
    return Answer(values, operation_text.history(values))


def _estimate(target: _Target, request: Request) -> Answer:
    values = target.table.estimate_cost(target.settings.options(**request.options)).as_dict()
    return Answer(values, operation_text.cost(values))


def _maintain(target: _Target, request: Request) -> Answer:
    dry_run = bool(request.options.get("dry_run"))
    housekeeping = target.table.housekeeping(target.catalog)
    values = housekeeping.maintain(orphans=request.orphans, dry_run=dry_run).as_dict()
    return Answer(values, housekeeping_text.maintained(values))


def _suspend(target: _Target, _: Request) -> Answer:
    values = {"table": target.table.name, "suspended": target.table.suspend()}
    return Answer(values, operation_text.suspended(values, RESUME_WITHOUT_DBT))


def _resume(target: _Target, _: Request) -> Answer:
    values = {"table": target.table.name, "suspended": None, "was_suspended": target.table.resume()}
    return Answer(values, operation_text.resumed(values))


_NEED_KEY = ("recluster", "information", "estimate")

_COMMANDS: dict[str, Callable[[_Target, Request], Answer]] = {
    "recluster": _recluster,
    "information": _information,
    "history": _history,
    "estimate": _estimate,
    "maintain": _maintain,
    "suspend": _suspend,
    "resume": _resume,
}
