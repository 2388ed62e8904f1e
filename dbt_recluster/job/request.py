"""The command line of ``dbt-recluster``, parsed by the declarations of the operations."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from enum import IntEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.session.jvm import JavaStandardError
from dbt_recluster.iceberg.session.redaction import hide, redact, secrets_in_command
from dbt_recluster.iceberg.session.starter import GATEWAY
from dbt_recluster.names import name_parts
from dbt_recluster.operations.declaration import TABLE, Argument, Operation
from dbt_recluster.operations.inspection import OPERATIONS

PROGRAM = "dbt-recluster"

_DESCRIPTION = """\
Keep Apache Iceberg tables well clustered, with Spark and without a dbt project.

The cluster key and the options of a table come from the table itself: from the properties recluster.cluster_by
and recluster.option.*, which dbt sets when it builds the table, otherwise from its sort order. Options given here
win over those of the table.
"""
_EPILOG = """\
examples:
  dbt-recluster recluster lake.sales.orders --final --conf spark.master=local[4] --conf spark.sql.catalog.lake=...
  spark-submit --master yarn "$(dbt-recluster job)" recluster --catalog lake --max-bytes '50 GB'
  spark-submit --master yarn "$(dbt-recluster job)" information lake.sales.orders --json
  dbt build && dbt-recluster recluster --manifest target/manifest.json --run-results target/run_results.json ...

exit codes:
  0    done, or nothing to do
  1    a table failed (the others were tried), or Spark or the catalog cannot be reached
  2    wrong usage, or a catalog or namespace that does not exist; nothing was changed
  130  interrupted; a round that was not committed changed nothing

Each command has its own help: dbt-recluster recluster --help
"""
_JOB = "print the path of the file to give to spark-submit"


class Exit(IntEnum):
    """How a command ends."""

    DONE = 0
    FAILED = 1
    WRONG_USAGE = 2
    INTERRUPTED = 130


class Request(argparse.Namespace):
    """A parsed command line: its options, and the arguments of its operation, checked; ``job`` has no operation."""

    command: str
    operation: Operation | None = None
    tables: tuple[str, ...]
    namespace: str | None
    catalog: str | None
    manifest: Path | None
    run_results: Path | None
    select: list[str] | None
    renamed: Mapping[str, str]
    arguments: Mapping[str, Any]
    settings: Mapping[str, str]
    properties_file: Path | None
    as_json: bool
    debug: bool


@contextmanager
def standard_error() -> Iterator[None]:
    """Write to the standard error of spark-submit, if that started this process."""
    if GATEWAY not in os.environ:
        yield
        return
    with redirect_stderr(JavaStandardError()):
        yield


class _Parser(argparse.ArgumentParser):
    """A parser whose errors take one line, without the usage, and with ``--json`` one of JSON too."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        message = redact(message)
        if self.as_json:
            print(json.dumps(answer_of(None, Exit.WRONG_USAGE, message, [])), flush=True)
        with standard_error():
            self.exit(Exit.WRONG_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def answer_of(command: str | None, code: int, error: str | None, tables: list[Any]) -> dict[str, Any]:
    """Return what a command prints as JSON."""
    return {"command": command, "exit_code": code, "error": error, "tables": tables}


def parse(arguments: Sequence[str] | None = None) -> Request:
    """Parse a command line; None is that of the process.

    Raises:
        SystemExit: Its usage is wrong (code 2), or help was asked for (code 0).
    """
    words = sys.argv[1:] if arguments is None else arguments
    _Parser.as_json = "--json" in words
    parser, options_with_values = _parser()
    hide(secrets_in_command(words, harmless=options_with_values - {"conf"}))
    request = parser.parse_args(words, Request())
    operation = request.operation
    if operation is None:
        return request
    request.tables = tuple(dict.fromkeys(request.tables))
    request.renamed, request.settings = dict(request.renamed), dict(request.settings)
    if error := _wrong_choice(request, operation):
        parser.error(error)
    given = {argument.name: getattr(request, argument.name) for argument in operation.arguments}
    try:
        request.arguments = operation.read((TABLE,), {**given, "table": list(request.tables) or None})
    except ReclusterError as e:
        parser.error(str(e))
    return request


def _wrong_choice(request: Request, operation: Operation) -> str | None:
    """Return what is wrong with the choice of tables, or None."""
    tables, namespace, catalog = request.tables, request.namespace, request.catalog
    is_selected = request.select is not None or request.run_results is not None
    if request.manifest is None:
        if is_selected or request.renamed:
            return "--select, --run-results and --map are for --manifest"
        if bool(tables) + (namespace is not None) + (catalog is not None) != 1:
            return f"{request.command} needs one or more tables, or --namespace, or --catalog, or --manifest"
        return None
    if namespace is not None:
        return "--namespace and --manifest are two ways to choose tables; give one of them"
    if request.renamed and catalog is not None:
        return "--catalog puts all tables of the manifest there, and leaves nothing to --map"
    if tables and is_selected:
        return "name tables, or choose them by --select and --run-results, not both"
    if operation.needs_choice and not tables and not is_selected:
        return f"{request.command} needs tables, or --select, or --run-results beside --manifest"
    return None


def _parser() -> tuple[argparse.ArgumentParser, set[str]]:
    """Return the parser, and the names of the options that take a value."""
    parser = _Parser(
        prog=PROGRAM,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    text = f"{PROGRAM} {_version()}"
    parser.add_argument("--version", action="version", version=text, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for operation in OPERATIONS.values():
        text = _help(operation.meaning)
        command = commands.add_parser(
            operation.name.replace("_", "-"),
            aliases=[operation.short] if operation.short else [],
            help=text.partition(". ")[0].partition(": ")[0].rstrip("."),
            description=text,
            allow_abbrev=False,
        )
        command.set_defaults(operation=operation)
        for title, options in _COMMON.items():
            group = command.add_argument_group(title) if title else command
            for name, (text, facts) in options.items():
                group.add_argument(name, help=text, **facts)
        for argument in operation.arguments:
            _add_argument(command, argument)
    commands.add_parser(
        "job",
        help=_JOB,
        description=f'{_JOB.capitalize()}, as in: spark-submit ... "$({PROGRAM} job)" recluster TABLE.',
        allow_abbrev=False,
    )
    taken = (command._option_string_actions.items() for command in commands.choices.values())
    return parser, {name.lstrip("-") for options in taken for name, action in options if action.nargs != 0}


def _version() -> str:
    # Not from the module that has it, which imports dbt.
    try:
        return version(PROGRAM)
    except PackageNotFoundError:
        return "of an unknown version: the package is not installed, only unpacked"


def _help(text: str) -> str:
    return text.replace("%", "%%")


def _add_argument(parser: argparse.ArgumentParser, argument: Argument) -> None:
    text, facts = _help(argument.meaning).rstrip("."), dict[str, Any]()
    if argument.metavar:
        text = f"{text} (default: {argument.otherwise})"
        facts = {"action": "append"} if argument.is_list else {"type": _value(argument.parse)}
        facts["metavar"] = argument.metavar
    else:  # one that is false by default is only ever turned on
        is_off = argument.default is False
        facts = {"action": "store_true" if is_off else argparse.BooleanOptionalAction, "default": None}
    parser.add_argument(f"--{argument.name.replace('_', '-')}", help=text, **facts)


def _value(parse_value: Callable[[str, str], Any]) -> Callable[[str], Any]:
    """Return a type for argparse, which puts the name of the option before the error."""

    def convert(text: str) -> Any:
        try:
            parse_value("it", text)
        except ReclusterError as e:
            raise argparse.ArgumentTypeError(str(e)) from None
        return text

    return convert


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return path


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError("it must be NAME=VALUE")
    return name.strip(), value


_SETTINGS: dict[str, Any] = {"action": "append", "default": [], "type": _setting}
# The options of every command by the title of their group: help, and argparse's keywords.
_COMMON: Mapping[str, Mapping[str, tuple[str, dict[str, Any]]]] = {
    "which tables": {
        "tables": (
            "a table, as Spark names it: catalog.namespace.table",
            {"nargs": "*", "type": _value(lambda _, text: name_parts(text)), "metavar": "TABLE"},
        ),
        "--namespace": (
            "every table of a namespace that has a cluster key: lake.sales",
            {"type": _value(lambda _, text: name_parts(text, "namespace")), "metavar": "NAME"},
        ),
        "--catalog": (
            "every table of a catalog that has a cluster key; with --manifest, Spark's catalog of its tables",
            {"metavar": "NAME"},
        ),
    },
    "tables that any dbt builds": {
        "--manifest": (
            "dbt's target/manifest.json: every table with cluster_by, or those that are named",
            {"type": Path, "metavar": "FILE"},
        ),
        "--run-results": (
            "dbt's target/run_results.json: only what that run has built",
            {"type": Path, "metavar": "FILE"},
        ),
        "--select": (
            "only these nodes, by name or unique id; - reads the lines of dbt ls --output json",
            {"nargs": "+", "action": "extend", "metavar": "NAME"},
        ),
        "--map": (
            "Spark's name of a catalog of the manifest: awsdatacatalog=lake; may be repeated",
            {**_SETTINGS, "dest": "renamed", "metavar": "NAME=CATALOG"},
        ),
    },
    "": {
        "--conf": (
            "a setting of the Spark session; may be repeated. Through spark-submit, give settings to that instead",
            {**_SETTINGS, "dest": "settings", "metavar": "KEY=VALUE"},
        ),
        "--properties-file": (
            "a file of such settings, as spark-submit takes it; those of --conf win",
            {"type": _file, "metavar": "FILE"},
        ),
        "--json": (
            "print nothing but one line of JSON to standard output",
            {"dest": "as_json", "action": "store_true"},
        ),
        "--debug": ("print the traceback of an error to standard error", {"action": "store_true"}),
    },
}
