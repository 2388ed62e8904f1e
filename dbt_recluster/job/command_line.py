"""The command ``dbt-recluster``: an operation on one table after the other; a failure does not stop it.

The options of its command line come from the declarations of the operations.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import click

from dbt_recluster.api import OPERATIONS, ClusteredTable, ProgressCallback
from dbt_recluster.exceptions import (
    CatalogNotFoundError,
    Interrupted,
    KeyTypeError,
    ManifestError,
    MissingTableError,
    NotAnIcebergTableError,
    OptionError,
    OtherFormatError,
    ReclusterError,
    UnsupportedTableError,
)
from dbt_recluster.iceberg.catalog_tables import has_catalog, tables_of_catalog, tables_of_namespace
from dbt_recluster.iceberg.session import embedded, environment, local_spark, redaction, starter
from dbt_recluster.iceberg.session.jobs import Interruptible, job_group
from dbt_recluster.iceberg.session.jvm import JavaStandardError, SparkSession
from dbt_recluster.iceberg.sort_order import TableChange, recorded_key, valid_cluster_key
from dbt_recluster.iceberg.table_properties import AUTO_KEY
from dbt_recluster.job.manifest import STANDARD_INPUT, Manifest
from dbt_recluster.job.service import ChangedTables, parse_interval
from dbt_recluster.job.unchanged import UnchangedTables
from dbt_recluster.names import NameResolution, name_parts
from dbt_recluster.operations.arguments import METRICS, TABLE, Argument
from dbt_recluster.operations.declaration import (
    Answer,
    Call,
    Context,
    Operation,
    Summary,
    record_metrics,
    run_operation,
)
from dbt_recluster.operations.model_options import MODEL_OPTIONS
from dbt_recluster.operations.targets import CLUSTERED, EVERY_TABLE, Node, Target, choose, has_table
from dbt_recluster.report.result_text import RESUME_WITHOUT_DBT, ProgressLines
from dbt_recluster.text import count_noun

PROGRAM = "dbt-recluster"

_EPILOG = """\
\b
examples:
  dbt-recluster recluster analytics.events --lake lakehouse
  dbt-recluster recluster lake.sales.orders --final --conf spark.master=local[4] --conf spark.sql.catalog.lake=...
  spark-submit --master yarn "$(dbt-recluster job)" recluster --catalog lake --max-bytes '50 GB'
  spark-submit --master yarn "$(dbt-recluster job)" information lake.sales.orders --json
  dbt-recluster recluster --namespace lake.sales --every 5m --properties-file lake.conf
  dbt build && dbt-recluster recluster --manifest target/manifest.json --run-results target/run_results.json ...

\b
exit codes:
  0    done, or nothing to do; with --every, ended by Ctrl-C or SIGTERM
  1    a table failed (the others were tried), or Spark or the catalog cannot be reached
  2    refused before anything was done: wrong usage, or no table that exists with valid options and key
  3    all done, and clustering-overview found a verdict of --fail-on, or failing
  130  interrupted; a round that was not committed changed nothing

Each command has its own help: dbt-recluster recluster --help
"""


class Exit(IntEnum):
    """How a command ends."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    BAD_VERDICT = 3
    INTERRUPTED = 130


def _value(text: str) -> str:
    if text.startswith("--"):  # click would take the next option for a missing value
        raise click.BadParameter(f"{text} is an option")
    return text


def _path(text: str) -> Path:
    return Path(_value(text))


def _pairs(_context: click.Context, _option: click.Parameter, texts: Iterable[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(name.strip() and separator for name, separator, _ in pairs):
        raise click.BadParameter("it must be NAME=VALUE")
    return {name.strip(): value for name, _, value in pairs}


def _option(metavar: str, text: str, **facts: Any) -> Any:
    """Declare a field of a request that the option of its name sets."""
    facts = {"type": _value, "metavar": metavar, **facts} if metavar else {"is_flag": True}
    return field(default=None, metadata={"help": text, **facts})


_PAIRS = {"multiple": True, "callback": _pairs}


@dataclass(frozen=True)
class Request:
    """A parsed command line: the options of all commands, and the arguments of its operation, checked."""

    command: str
    operation: Operation
    arguments: Mapping[str, Any]
    tables: tuple[str, ...]
    namespace: str | None = _option("NAME", "Every table of a namespace that has a cluster key: lake.sales")
    catalog: str | None = _option(
        "NAME", "Every table of a catalog that has a cluster key; with --manifest, Spark's catalog of its tables"
    )
    manifest: Path | None = _option(
        "FILE", "dbt's target/manifest.json: every table with cluster_by, or those that are named", type=_path
    )
    run_results: Path | None = _option(
        "FILE", "dbt's target/run_results.json: only what that run has built", type=_path
    )
    select: tuple[str, ...] = _option(
        "NAME...", "Only these nodes, by name or unique id; - reads the lines of dbt ls --output json", multiple=True
    )
    map: Mapping[str, str] = _option(
        "NAME=CATALOG", "Spark's name of a catalog of the manifest: awsdatacatalog=lake; may be repeated", **_PAIRS
    )
    lake: str | None = _option("PATH", "The `path` of a profile with `method: embedded`, whose Spark works there")
    conf: Mapping[str, str] = _option(
        "KEY=VALUE", "A setting of the Spark session, unless spark-submit starts it; may be repeated", **_PAIRS
    )
    properties_file: Path | None = _option(
        "FILE", "A file of such settings, as spark-submit takes it; those of --conf win", type=_path
    )
    every: float | None = _option(
        "INTERVAL",
        "Stay, and recluster the tables that have changed at each interval, such as 5m, those that gain most for a "
        "byte first; with --json, one line for each pass",
        type=lambda text: parse_interval("--every", text),
    )
    json: bool = _option("", "Print nothing but one line of JSON to standard output")
    debug: bool = _option("", "Print the traceback of an error to standard error")


@contextmanager
def standard_error() -> Iterator[None]:
    """Write to the standard error of spark-submit, if that started this process."""
    if starter.GATEWAY not in os.environ:
        yield
        return
    with redirect_stderr(JavaStandardError()):
        yield


def answer_of(command: str | None, code: int, error: str | None, tables: list[Any]) -> dict[str, Any]:
    """Return the JSON output of a command."""
    return {"command": command, "exit_code": code, "error": error, "tables": tables}


def parse(arguments: Sequence[str] | None = None) -> Request:
    """Parse a command line; None is that of the process.

    Raises:
        SystemExit: Its usage is wrong (code 2), or it is answered already, as ``--help`` and ``job`` are (code 0).
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    redaction.hide(redaction.secrets_in_command(words))
    try:
        request = _commands.main(words, PROGRAM, standalone_mode=False)
    except (click.UsageError, ReclusterError) as e:
        message = redaction.redact(e.format_message().rstrip(".") if isinstance(e, click.UsageError) else str(e))
        command = " ".join([PROGRAM, *(word for word in words[:1] if word in _commands.commands)])
        if "--json" in words:
            print(json.dumps(answer_of(None, Exit.REFUSED, message, [])), flush=True)
        with standard_error():
            _note(f"{command}: {message} (see {command} --help)")
        raise SystemExit(Exit.REFUSED) from None
    if isinstance(request, Request):
        return request
    raise SystemExit(request)


def _request(operation: Operation, tables: tuple[str, ...], **options: Any) -> Request:
    values = {argument.name: options.pop(argument.name) for argument in operation.arguments}
    values |= {name: list(value) or None for name, value in values.items() if isinstance(value, tuple)}
    if options["select"]:  # of `--select a b`, click leaves b among the tables
        options["select"], tables = (*options["select"], *tables), ()
    tables = tuple(dict.fromkeys(tables))
    for table in tables:
        name_parts(table)
    if options["namespace"] is not None:
        name_parts(options["namespace"], "namespace")
    arguments = operation.read((TABLE,), {**values, "table": list(tables) or None})
    request = Request(str(click.get_current_context().info_name), operation, arguments, tables, **options)
    if error := _wrong_choice(request):
        raise OptionError(error)
    return request


def _wrong_choice(request: Request) -> str | None:
    tables, namespace, catalog, file = request.tables, request.namespace, request.catalog, request.properties_file
    if file is not None and not file.is_file():
        return f"--properties-file: there is no file {file}"
    if request.lake is not None and (starter.GATEWAY in os.environ or file is not None):
        return "--lake starts a Spark of its own: leave out spark-submit and --properties-file"
    if request.lake is not None and request.every is not None:
        return "--lake is for one process at a time: with --every nobody else could load its tables"
    is_selected = bool(request.select) or request.run_results is not None
    if request.manifest is None:
        if is_selected or request.map:
            return "--select, --run-results and --map are for --manifest"
        if bool(tables) + (namespace is not None) + (catalog is not None) != 1:
            return f"{request.command} needs one or more tables, or --namespace, or --catalog, or --manifest"
        return None
    if namespace is not None:
        return "--namespace and --manifest are two ways to choose tables; give one of them"
    if request.map and catalog is not None:
        return "--catalog puts all tables of the manifest there, and leaves nothing to --map"
    if tables and is_selected:
        return "name tables, or choose them by --run-results, not both"
    if request.operation.needs_choice and not tables and not is_selected:
        return f"{request.command} needs tables, or --select, or --run-results beside --manifest"
    return None


def _add_command(operation: Operation) -> None:
    name, short, text = operation.name.replace("_", "-"), operation.short, operation.meaning
    summary = re.split("[.,:] ", text, maxsplit=1)[0].rstrip(".")
    common = {each.name: each.metadata for each in fields(Request) if each.metadata}
    if name != "recluster":
        del common["every"]
    command = click.Command(
        name,
        callback=partial(_request, operation),
        params=[
            click.Argument(["tables"], nargs=-1, metavar="[TABLE]..."),
            *map(_option_of, operation.arguments),
            *(click.Option([f"--{each.replace('_', '-')}"], **facts) for each, facts in common.items()),
        ],
        help=f"{text}\n\nTABLE is a table, as Spark names it: catalog.namespace.table.",
        short_help=f"{summary} ({short})" if short else summary,
    )
    _commands.add_command(command)
    _commands.add_command(command, short or name)


def _option_of(argument: Argument) -> click.Option:
    name, text = f"--{argument.name.replace('_', '-')}", argument.meaning.rstrip(".")
    if argument.metavar:
        text = f"{text} (default: {argument.otherwise})"
        return click.Option([name], type=_value, metavar=argument.metavar, multiple=argument.is_list, help=text)
    if argument.default is not False:  # what is false by default is only ever turned on
        name = f"{name}/--no-{name[2:]}"
    return click.Option([name], is_flag=True, default=None, help=text)


class _InOrder(click.Group):
    def list_commands(self, _: click.Context) -> list[str]:
        """Return the commands as they were added, each once."""
        return [name for name, command in self.commands.items() if name == command.name]


@click.group(
    cls=_InOrder,
    epilog=_EPILOG,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(environment.package_version(), message="%(prog)s %(version)s")
def _commands() -> None:
    """Keep Apache Iceberg tables well clustered, with Spark and without a dbt project.

    The cluster key and the options of a table come from the table itself: the key from its sort order, or a curve from
    recluster.cluster_by; the options from recluster.option.*, which dbt sets when it builds the table. Options given
    here win over those of the table.
    """


for _operation in OPERATIONS.values():
    _add_command(_operation)


@_commands.command("job", short_help="Print the path of the file to give to spark-submit")
def _print_job() -> int:
    """Print the path of the file to give to spark-submit: spark-submit ... "$(dbt-recluster job)" recluster TABLE."""
    print(Path(__file__).with_name("recluster_job.py"))
    return Exit.DONE


# Errors of the command line or of its files, raised before anything is done to a table.
_WRONG_USAGE = (CatalogNotFoundError, ManifestError, OptionError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; raise SystemExit as :func:`parse` does."""
    request = parse(arguments)
    job = _Job(request)
    with standard_error():
        try:
            job.read_manifest()
            if job.is_answered():
                return job.finish()
            with (
                Interruptible(signals=(signal.SIGINT, signal.SIGTERM)),
                spark_session(request.conf, request.properties_file, request.lake) as spark,
                job_group(spark, PROGRAM),
            ):
                return job.run(spark) if request.every is None else job.stay(spark, request.every)
        except Interrupted as e:
            return job.stop(str(e), Exit.INTERRUPTED if request.every is None else Exit.DONE)
        except KeyboardInterrupt as e:
            return job.stop(str(e) or "interrupted", Exit.INTERRUPTED)
        except Exception as e:  # whatever fails is one line and an exit code
            is_usage = isinstance(e, _WRONG_USAGE) and not job.passes
            return job.stop(job.explain(e), Exit.REFUSED if is_usage else Exit.FAILED)


class _Job(Context):
    """A command on its tables, and the context of its operation."""

    resume = RESUME_WITHOUT_DBT
    records_options = True

    def __init__(self, request: Request) -> None:
        self._request, self._operation = request, request.operation
        self._answers: list[Answer] = []
        self._summary = Summary("", {})
        self._left_out = 0  # tables with automatic_clustering: false
        self._missing: list[Answer] = []  # for tables of the manifest that do not exist
        self._code: int | None = None
        self._opened: tuple[str, ClusteredTable] | None = None
        self._unchanged: UnchangedTables | None = None
        self._metadata_files: dict[str, str] = {}  # as the tables were opened, by name
        self._manifest: Manifest | None = None
        self._nodes: list[Node] = []  # of the manifest: all, or those that are selected and built
        self._targets_of_project: list[Target] | None = None
        self._changed: ChangedTables | None = None  # with --every
        self.passes = 0
        self.trigger = "manual" if request.run_results is None else "run"
        self.gain_first = request.every is not None

    def read_manifest(self) -> None:
        """Read the manifest, the run results and the selection, if they are given."""
        request = self._request
        if request.manifest is None:
            return
        # Before the manifest: dbt ls, whose lines these are, may write it until it ends.
        lines = sys.stdin.readlines() if STANDARD_INPUT in request.select else []
        self._manifest = manifest = Manifest.read(request.manifest, request.catalog, request.map)
        ids = set(manifest.nodes)
        if request.select:
            ids &= manifest.selected(request.select, lines)
        if request.run_results is not None:
            ids &= manifest.built(request.run_results)
        self._nodes = [node for unique_id, node in manifest.nodes.items() if unique_id in ids]

    def is_answered(self) -> bool:
        """Answer for the named tables that have not changed since an earlier command; return whether these are all."""
        request, settings = self._request, self._request.conf
        values = {name: value for name, value in request.arguments.items() if value is not None and name != TABLE.name}
        # What these name may change without a commit, and a predicate may go by the clock.
        others = [request.manifest, request.lake, request.every]
        others += (values.get(name) for name in ("where", "reads", METRICS.name, "dry_run"))
        is_own = starter.GATEWAY not in os.environ and "pyspark" not in sys.modules and find_spec("pyspark") is not None
        if self._operation.name != "recluster" or not request.tables or any(others) or not is_own:
            return False
        self._unchanged = UnchangedTables({**starter.outside_settings(request.properties_file), **settings}, values)
        for answer in filter(None, map(self._unchanged.answer, request.tables)):
            self._answers.append(answer)
            self._show(answer)
        return len(self._answers) == len(request.tables)

    def run(self, spark: SparkSession) -> int:
        """Work on every table, print the answers, and return the exit code."""
        self._spark, operation, request = spark, self._operation, self._request
        chosen = targets = self._targets()
        if self._changed is not None:
            targets = self._changed.of(chosen)
        for answer, _, _ in run_operation(operation, targets, request.arguments, self):
            self._answers.append(answer)
            self._show(answer)
            result, metadata_file = answer.result, self._metadata_files.get(answer.table)
            if self._unchanged is None or metadata_file is None or result is None:
                continue  # of another operation, or failed
            if not (result.rounds or result.limited or result.suspended):
                self._unchanged.remember(answer, metadata_file)
        if self._changed is not None:
            self._changed.record(targets, self._answers)
        return self.finish(self._project(chosen))

    def stay(self, spark: SparkSession, interval: float) -> NoReturn:
        """Work on the tables that have changed, pass after pass, until a signal or an error ends it."""
        self._changed = ChangedTables(spark, interval)
        while True:
            self._changed.begin()
            self.run(spark)
            self.passes += 1
            self._answers, self._missing, self._left_out, self._code, self._opened = [], [], 0, None, None
            self._changed.wait()

    def finish(self, project: Collection[str] | None = None) -> int:
        """Print what comes after the last table, and return the exit code."""
        operation, request, answers = self._operation, self._request, [*self._answers, *self._missing]
        for warning in record_metrics(answers, operation.metrics_path(request.arguments), project):
            _note(warning)
        if operation.finish is not None:
            self._summary = operation.end(answers, request.arguments)
            if answers and self._summary.text:
                self._print(self._summary.text)
        if not self.passes and (self._left_out or not self._answers):
            _note(self._left_out_line())
        failed = sum(answer.error is not None for answer in self._answers)
        if len(self._answers) > 1 and failed:
            _note(f"{failed} of {len(self._answers)} tables failed")
        code = Exit.DONE
        if failed:
            code = Exit.REFUSED if all(answer.is_refused for answer in self._answers) else Exit.FAILED
        elif self._summary.error:
            code = Exit.BAD_VERDICT
        if self._summary.error:
            _note(self._summary.error)
        return self._end(code, self._summary.error)

    def stop(self, error: str, code: int) -> int:
        """End early, unless all tables had their turn: a signal may arrive after that."""
        if self._code is not None:
            return self._code
        error = redaction.without_known_secrets(error)
        _note(f"{PROGRAM}: {error}")
        return self._end(code, error if code else None)

    def open(self, relation: str) -> ClusteredTable:
        """Open a table under the key of its sort order."""
        if self._opened is None or self._opened[0] != relation:
            self._opened = relation, ClusteredTable(self._spark, relation)
            iceberg = self._opened[1].iceberg
            # A predicate may go by the clock.
            if self._unchanged is not None and MODEL_OPTIONS["where"].table_property not in iceberg.properties:
                self._metadata_files[relation] = iceberg.metadata_file
        return self._opened[1]

    def exists(self, target: Target) -> bool:
        """Return whether a table that was not named has a key, and may be reclustered without being named."""
        options = target.options
        try:
            iceberg = self.open(target.relation).iceberg
        except NotAnIcebergTableError as e:
            is_meant = self._request.select or self._request.run_results is not None
            if self._manifest is None or (is_meant and not isinstance(e, OtherFormatError)):
                raise
            is_missing = isinstance(e, MissingTableError)
            if is_missing:
                call = Call(target, self._request.arguments, self)
                self._missing.append(Answer(target.relation, is_missing=True, call=call))
            if not is_missing or self._operation.finish is None:  # which tells of missing tables itself
                _note(f"{target.relation} is skipped: {e}")
            return False
        is_of_no_model = options is None and target.error is None and recorded_key(iceberg.properties) is None
        if is_of_no_model and AUTO_KEY not in iceberg.properties and valid_cluster_key(iceberg) is None:
            return False
        if not self._operation.is_rewrite:
            return True
        recorded = MODEL_OPTIONS["automatic_clustering"]
        automatic = recorded.of_table(iceberg.properties) if options is None else options.automatic_clustering
        self._left_out += not automatic
        if not automatic and options is not None and not self._request.arguments.get("dry_run"):
            TableChange(properties=options.recorded(iceberg.properties)).commit(iceberg)
        return automatic

    def queries(self, unique_id: str) -> Mapping[str, str]:
        """Return the compiled SQL of the manifest that reads a node's table, by name."""
        return {} if self._manifest is None else self._manifest.queries(unique_id)

    def progress(self) -> ProgressCallback | None:
        """Return a callback that shows the progress of one recluster."""
        return ProgressLines(_note, sys.stderr)

    def explain(self, error: Exception) -> str:
        """Return an error in one line; print its traceback with ``--debug``."""
        if self._request.debug:
            _note(redaction.redact("".join(traceback.format_exception(error))))
        return redaction.without_known_secrets(redaction.short_message(error))

    def _project(self, targets: Sequence[Target]) -> Collection[str] | None:
        """Return all tables that the metrics file of this command is for; None if only some of them are named."""
        if self._manifest is not None:
            return {target.relation for target in CLUSTERED.targets(self._manifest.nodes.values())}
        return None if self._request.tables else {target.relation for target in targets}

    def _targets(self) -> list[Target]:
        request = self._request
        if self._manifest is not None:
            if self._targets_of_project is None:
                self._targets_of_project = self._targets_of_manifest()
            return self._targets_of_project
        if request.catalog is not None:
            names = tables_of_catalog(self._spark, request.catalog)
        elif request.namespace is not None:
            try:
                names = tables_of_namespace(self._spark, request.namespace)
            except CatalogNotFoundError as e:
                if not self.passes:
                    raise
                _note(f"{PROGRAM}: {e}")  # it may return
                names = []
        else:
            answered = {answer.table for answer in self._answers}
            names = [name for name in request.tables if name not in answered]
        return [Target(name, required=bool(request.tables)) for name in names]

    def _targets_of_manifest(self) -> list[Target]:
        """Return the chosen tables of the manifest, all of them checked."""
        request, nodes, eligible, of = self._request, self._nodes, self._operation.eligible, "this project"
        if request.select:
            eligible, of = EVERY_TABLE if eligible.by_default else eligible, "the selection"
        if request.run_results is not None and not any(eligible.targets(nodes)):
            return []
        names = NameResolution(
            lambda: str(self._spark.catalog.currentCatalog()),
            lambda name: has_catalog(self._spark, name),
            self.is_one_table,
        )
        targets = choose(nodes, list(request.tables) or None, names, eligible, of)
        if request.select and (left_out := sum(map(has_table, nodes)) - len(targets)):
            tables = count_noun(left_out, "table")
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
                _ = call.is_auto or call.table.key
                if self._operation.is_rewrite and (where := call.options(**call.given).where) is not None:
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
            return f"{count_noun(self._left_out, 'table')} of {place} left out, by automatic_clustering: false"
        if request.run_results is not None:
            built = f"the run of {request.run_results} built no table"
            return f"{built} that {self._operation.eligible.trait}; builds with --empty do not count"
        if self._manifest is not None:
            return f"no table of {place} is there"
        return f"no table of {place} has a cluster key"

    def _show(self, answer: Answer) -> None:
        for warning in answer.warnings:
            _note(f"{answer.table}: {warning}")
        if answer.error is not None:
            _note(answer.failure)
        elif answer.text:
            self._print("\n".join(filter(None, [answer.text, answer.detail])))

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr if self._request.json else sys.stdout, flush=True)

    def _end(self, code: int, error: str | None = None) -> int:
        self._code = code
        if self._request.json:
            tables = [] if self._operation.finish else [answer.values for answer in self._answers]
            printed = {**answer_of(self._request.command, code, error, tables), **self._summary.values}
            is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            print(json.dumps(printed, ensure_ascii=not is_utf8), flush=True)
        return code


def _note(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@contextmanager
def spark_session(
    settings: Mapping[str, str], properties_file: Path | None = None, lake: str | None = None
) -> Iterator[SparkSession]:
    """Yield a Spark session with Iceberg, or that of an embedded lake; stop it at the end if it was started here."""
    is_own = not starter.is_running()
    environment.refuse_spark_connect("run this through spark-submit", {**os.environ, **settings})
    if lake is not None:
        spark = embedded.start(lake, settings, report=_note)
    else:
        if is_own and starter.GATEWAY not in os.environ:
            all_settings = {**local_spark.DEFAULTS, **starter.outside_settings(properties_file), **settings}
            defaults = {name: all_settings[name] for name in local_spark.DEFAULTS}
            settings = {**defaults, **settings, **local_spark.iceberg_settings(all_settings)}
        spark = starter.start_spark(settings, properties_file=properties_file, report=_note)
    try:
        environment.check_environment(spark, any_catalog=True)
        yield spark
    finally:
        if is_own:
            with suppress(Exception):  # its JVM may have ended, as the error of the block says
                spark.stop()
