"""The command ``dbt-recluster``: an operation on one table after the other; a failure does not stop it."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.exceptions import (
    CatalogNotFoundError,
    ClusterKeyError,
    KeyTypeError,
    ManifestError,
    NotAnIcebergTableError,
    OptionError,
    OtherFormatError,
    ReclusterError,
    UnsupportedTableError,
)
from dbt_recluster.iceberg.catalog_tables import has_catalog, tables_of_catalog, tables_of_namespace
from dbt_recluster.iceberg.session.environment import check_environment, refuse_spark_connect
from dbt_recluster.iceberg.session.jobs import Interruptible, job_group
from dbt_recluster.iceberg.session.local_spark import DEFAULTS, iceberg_settings
from dbt_recluster.iceberg.session.redaction import redact, short_message, without_known_secrets
from dbt_recluster.iceberg.session.starter import GATEWAY, is_running, outside_settings, start_spark
from dbt_recluster.iceberg.sort_order import TableChange, table_cluster_key
from dbt_recluster.job.manifest import STANDARD_INPUT, Manifest
from dbt_recluster.job.request import PROGRAM, Exit, Request, answer_of, parse, standard_error
from dbt_recluster.names import NameResolution
from dbt_recluster.operations.declaration import (
    Answer,
    Call,
    Context,
    Ending,
    Operation,
    failure_line,
    run_operation,
)
from dbt_recluster.operations.inspection import metrics_path, record_metrics
from dbt_recluster.operations.tables import (
    EVERY_TABLE,
    MODEL_OPTIONS,
    Node,
    Target,
    choose,
    has_table,
    recorded_key,
)
from dbt_recluster.report.recluster_text import RESUME_WITHOUT_DBT, ProgressLines
from dbt_recluster.text import count_noun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Errors of the command line or of its files, raised before anything is done to a table.
_WRONG_USAGE = (CatalogNotFoundError, ManifestError, OptionError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; wrong usage raises SystemExit(2)."""
    request = parse(arguments)
    if request.operation is None:
        print(Path(__file__).with_name("recluster_job.py"))
        return Exit.DONE
    job = _Job(request, request.operation)
    with standard_error():
        try:
            job.read_manifest()
            with (
                Interruptible(signals=(signal.SIGINT, signal.SIGTERM)),
                spark_session(request.settings, request.properties_file) as spark,
                job_group(spark, PROGRAM),
            ):
                return job.run(spark)
        except KeyboardInterrupt as e:
            return job.stop(str(e) or "interrupted", Exit.INTERRUPTED)
        except Exception as e:  # whatever fails is one line and an exit code
            job.explain(e)
            code = Exit.WRONG_USAGE if isinstance(e, _WRONG_USAGE) else Exit.FAILED
            return job.stop(short_message(e), code)


class _Job(Context):
    """A command on its tables, and the context of its operation."""

    resume = RESUME_WITHOUT_DBT
    records_options = True

    def __init__(self, request: Request, operation: Operation) -> None:
        self._request, self._operation = request, operation
        self._answers: list[Answer] = []
        self._ending = Ending("", {})
        self._left_out = 0  # tables with automatic_clustering: false
        self._code: int | None = None
        self._opened: tuple[str, ClusteredTable] | None = None
        self._manifest: Manifest | None = None
        self._nodes: list[Node] = []  # of the manifest: all, or those that are selected and built
        self.trigger = "manual" if request.run_results is None else "run"

    def read_manifest(self) -> None:
        """Read the manifest, the run results and the selection, if they are given."""
        request = self._request
        if request.manifest is None:
            return
        # Before the manifest: dbt ls, whose lines these are, may write it until it ends.
        lines = sys.stdin.readlines() if STANDARD_INPUT in (request.select or ()) else []
        self._manifest = manifest = Manifest.read(request.manifest, request.catalog, request.renamed)
        ids = set(manifest.nodes)
        if request.select is not None:
            ids &= manifest.selected(request.select, lines)
        if request.run_results is not None:
            ids &= manifest.built(request.run_results)
        self._nodes = [node for unique_id, node in manifest.nodes.items() if unique_id in ids]

    def run(self, spark: SparkSession) -> int:
        """Work on every table, print the answers, and return the exit code."""
        self._spark, operation, request = spark, self._operation, self._request
        for answer, _, _ in run_operation(operation, self._targets(), request.arguments, self):
            self._answers.append(answer)
            self._show(answer)
        for warning in record_metrics(self._answers, metrics_path(operation, request.arguments)):
            _note(warning)
        if operation.finish is not None:
            self._ending = operation.end(self._answers, request.arguments)
            if self._answers and self._ending.text:
                self._print(self._ending.text)
        if self._left_out or not self._answers:
            _note(self._left_out_line())
        failed = sum(answer.error is not None for answer in self._answers)
        if len(self._answers) > 1 and failed:
            _note(f"{failed} of {len(self._answers)} tables failed")
        if self._ending.error:
            _note(self._ending.error)
        return self._end(Exit.FAILED if failed or self._ending.error else Exit.DONE, self._ending.error)

    def stop(self, error: str, code: int) -> int:
        """End early, unless all tables had their turn: a signal may arrive after that."""
        if self._code is not None:
            return self._code
        error = without_known_secrets(error)
        _note(f"{PROGRAM}: {error}")
        return self._end(code, error)

    def open(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order."""
        if self._opened is None or self._opened[0] != relation:
            self._opened = relation, ClusteredTable(self._spark, relation)
        return self._opened[1]

    def exists(self, target: Target) -> bool:
        """Return whether a table that was not named has a key, and may be reclustered without being named."""
        options = target.options
        try:
            iceberg = self.open(target.relation).iceberg
        except NotAnIcebergTableError as e:
            is_meant = self._request.select is not None or self._request.run_results is not None
            if self._manifest is None or (is_meant and not isinstance(e, OtherFormatError)):
                raise
            _note(f"{target.relation} is passed over: {e}")
            return False
        if options is None and target.error is None and recorded_key(iceberg.properties) is None:
            try:
                if table_cluster_key(iceberg) is None:
                    return False
            except ClusterKeyError:
                return False  # sorted by something that is no cluster key
        if not self._operation.is_rewrite:
            return True
        given = None if options is None else options.automatic_clustering
        automatic = bool(MODEL_OPTIONS["automatic_clustering"].of_table(iceberg.properties, given))
        self._left_out += not automatic
        if not automatic and options is not None and not self._request.arguments.get("dry_run"):
            TableChange(properties=options.recorded(iceberg.properties)).commit(iceberg)
        return automatic

    def queries(self, unique_id: str) -> Mapping[str, str]:
        """Return the compiled SQL of the manifest that reads a node's table, by name."""
        return {} if self._manifest is None else self._manifest.queries(unique_id)

    def progress(self) -> ProgressCallback | None:
        """Return a callback that shows the progress of one recluster, on a terminal."""
        return ProgressLines(_note, sys.stderr) if sys.stderr.isatty() else None

    def explain(self, error: Exception) -> str:
        """Return an error in one line; print its traceback with ``--debug``."""
        if self._request.debug:
            _note(redact("".join(traceback.format_exception(error))))
        return without_known_secrets(short_message(error))

    def _targets(self) -> list[Target]:
        request = self._request
        if self._manifest is not None:
            return self._targets_of_manifest()
        if request.catalog is not None:
            names = tables_of_catalog(self._spark, request.catalog)
        elif request.namespace is not None:
            names = tables_of_namespace(self._spark, request.namespace)
        else:
            names = list(request.tables)
        return [Target(name, required=bool(request.tables)) for name in names]

    def _targets_of_manifest(self) -> list[Target]:
        """Return the chosen tables of the manifest, all of them checked."""
        request, nodes, eligible, of = self._request, self._nodes, self._operation.eligible, "this project"
        if request.select is not None:
            eligible, of = EVERY_TABLE if eligible.by_default else eligible, "the selection"
        is_any = any(has_table(node) and eligible.admits(node) for node in nodes)
        if request.run_results is not None and not is_any:
            return []
        names = NameResolution(
            lambda: str(self._spark.catalog.currentCatalog()),
            lambda name: has_catalog(self._spark, name),
            lambda one, other: self.open(one).iceberg.uuid == self.open(other).iceberg.uuid,
        )
        targets = choose(nodes, list(request.tables) or None, names, eligible, of)
        if request.select is not None and (others := sum(map(has_table, nodes)) - len(targets)):
            tables = count_noun(others, "table")
            _note(f"{tables} of the selection left out: only what {eligible.trait} is meant")
        wrong = [target.error for target in targets if target.error is not None]
        if wrong and self._operation.finish is None:  # one answer for all tables says it beside the others
            raise OptionError("\n".join(wrong))
        self._check_tables(targets)
        return targets

    def _check_tables(self, targets: list[Target]) -> None:
        """Check every key and predicate against its table before anything is done to any table."""
        wrong, missing = [], []
        for target in targets:
            call = Call(target, self._request.arguments, self)
            try:
                _ = call.table.key
                if self._operation.is_rewrite and (where := call.options().where) is not None:
                    call.table.predicate(where)
            except NotAnIcebergTableError as e:
                missing.append(e)  # reported with the table's answer, unless none is there
                continue
            except (KeyTypeError, UnsupportedTableError):
                continue  # not a mistake in the model: reported with the table's answer
            except ReclusterError as e:
                wrong.append(str(e) if target.relation in str(e) else f"{target.relation}: {e}")
            if not self._operation.is_rewrite:
                return  # one of the tables is there
        if wrong:
            raise OptionError("\n".join(wrong))
        if targets and len(missing) == len(targets):
            tables = count_noun(len(targets), "table")
            raise OptionError(
                f"Spark has none of the {tables} of {self._request.manifest} that are meant: {missing[0]}. --catalog "
                "or --map say which of its catalogs has them"
            )

    def _left_out_line(self) -> str:
        request = self._request
        place = request.manifest or request.namespace or request.catalog
        if self._left_out:
            return (
                f"{count_noun(self._left_out, 'table')} of {place} left out, by automatic_clustering: false"
            )
        if request.run_results is not None:
            run = f"the run of {request.run_results}"
            return f"nothing that {run} has built, other than with --empty, {self._operation.eligible.trait}"
        if self._manifest is not None:
            return f"no table of {place} is there"
        return f"no table of {place} has a cluster key"

    def _show(self, answer: Answer) -> None:
        for warning in answer.warnings:
            _note(f"{answer.table}: {warning}")
        if answer.error is not None:
            _note(failure_line(answer))
        elif answer.text:
            self._print("\n".join(filter(None, [answer.text, answer.detail])))

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr if self._request.as_json else sys.stdout, flush=True)

    def _end(self, code: int, error: str | None = None) -> int:
        self._code = code
        if self._request.as_json:
            tables = [] if self._operation.finish else [answer.values for answer in self._answers]
            printed = {**answer_of(self._request.command, code, error, tables), **self._ending.values}
            is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            print(json.dumps(printed, ensure_ascii=not is_utf8), flush=True)
        return code


def _note(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@contextmanager
def spark_session(settings: Mapping[str, str], properties_file: Path | None = None) -> Iterator[SparkSession]:
    """Yield a Spark session with Iceberg; stop it at the end if it was started here."""
    is_own = not is_running()
    refuse_spark_connect("run this through spark-submit", {**os.environ, **settings})
    if is_own and GATEWAY not in os.environ:
        given = {**DEFAULTS, **outside_settings(properties_file), **settings}
        settings = {**{name: given[name] for name in DEFAULTS}, **settings, **iceberg_settings(given)}
    spark = start_spark(settings, properties_file=properties_file, report=_note)
    try:
        check_environment(spark, any_catalog=True)
        yield spark
    finally:
        if is_own:
            spark.stop()
