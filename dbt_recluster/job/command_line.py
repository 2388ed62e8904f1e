"""The command line of ``dbt-recluster``, made from the declarations of the operations."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.job.request import DONE, PROGRAM, WRONG_USAGE, Request
from dbt_recluster.operations.declaration import Argument, Operation
from dbt_recluster.operations.runner import OPERATIONS
from dbt_recluster.redaction import hide, redact, secrets_in_command
from dbt_recluster.table_names import name_parts

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
_TABLES = "a table, as Spark names it: catalog.namespace.table"
_JOB = "print the path of the file to give to spark-submit"


class _Parser(argparse.ArgumentParser):
    """Errors take one line; the usage of these commands takes several. With ``--json`` there is one of JSON too."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        from dbt_recluster.job.start import standard_error

        message = redact(message)
        if self.as_json:
            known: dict[str, Any] = {
                "command": None,
                "exit_code": WRONG_USAGE,
                "error": message,
                "tables": [],
            }
            print(json.dumps(known), flush=True)
        with standard_error():
            self.exit(WRONG_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; wrong usage raises SystemExit(2).

    Args:
        arguments: The command line; None is that of the process.
    """
    request = parse(arguments)
    if request.operation is None:
        print(Path(__file__).with_name("recluster_job.py"))
        return DONE
    from dbt_recluster.job.commands import run

    return run(request)


def parse(arguments: Sequence[str] | None = None) -> Request:
    """Parse a command line.

    Raises:
        SystemExit: Its usage is wrong (code 2), or help was asked for (code 0).
    """
    words = sys.argv[1:] if arguments is None else arguments
    _Parser.as_json = "--json" in words
    parser, options_with_values = _parser()
    hide(secrets_in_command(words, harmless=options_with_values - {"conf"}))
    given = vars(parser.parse_args(words))
    command, operation = given["command"], given.get("operation")
    if operation is None:
        return Request(command)
    tables = tuple(dict.fromkeys(given["tables"]))
    if error := _wrong_choice(command, operation, tables, given):
        parser.error(error)
    for argument in operation.arguments:
        if argument.is_of_one_table and given[argument.name] is not None and len(tables) != 1:
            parser.error(f"{_flag(argument)} is for a single table: name it")
    try:
        read = operation.read((), {each.name: given[each.name] for each in operation.arguments})
    except ReclusterError as e:
        parser.error(str(e))
    return Request(
        command=command,
        operation=operation,
        tables=tables,
        namespace=given["namespace"],
        catalog=given["catalog"],
        manifest=given["manifest"],
        run_results=given["run_results"],
        select=given["select"],
        exclude=given["exclude"],
        renamed=dict(given["map"]),
        arguments=read,
        settings=dict(given["conf"]),
        properties_file=given["properties_file"],
        as_json=given["json"],
        debug=given["debug"],
    )


def _wrong_choice(
    command: str, operation: Operation, tables: Sequence[str], given: Mapping[str, Any]
) -> str | None:
    """Return what is wrong with the tables that are chosen, or None."""
    is_selected = given["select"] is not None or given["exclude"] is not None
    if given["manifest"] is None:
        if is_selected or given["run_results"] is not None or given["map"]:
            return "--select, --exclude, --run-results and --map are for --manifest"
        if bool(tables) + (given["namespace"] is not None) + (given["catalog"] is not None) != 1:
            return f"{command} needs one or more tables, or --namespace, or --catalog, or --manifest"
        return None
    if given["namespace"] is not None:
        return "--namespace and --manifest are two ways to choose tables; give one of them"
    if given["map"] and given["catalog"] is not None:
        return "--catalog puts all tables of the manifest there, and leaves nothing to --map"
    if tables and (is_selected or given["run_results"] is not None):
        return "name tables, or choose them by --select, --exclude and --run-results, not both"
    if operation.needs_choice and not tables and not is_selected and given["run_results"] is None:
        return f"{command} needs tables, or --select, or --run-results beside --manifest"
    return None


def _parser() -> tuple[argparse.ArgumentParser, set[str]]:
    """Return the parser, and the options of all commands that take a value, without their dashes."""
    parser = _Parser(
        prog=PROGRAM,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
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
        _add_common(command)
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


class _Version(argparse.Action):
    """Read the version from the installed package: the module that has it belongs to dbt's."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            text = version(PROGRAM)
        except PackageNotFoundError:
            text = "of an unknown version: the package is not installed, only unpacked"
        print(f"{PROGRAM} {text}")
        parser.exit(DONE)


def _add_common(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which tables")
    which.add_argument("tables", nargs="*", type=_value(_name_of("table")), metavar="TABLE", help=_TABLES)
    which.add_argument(
        "--namespace",
        type=_value(_name_of("namespace")),
        metavar="NAME",
        help="every table of a namespace that has a cluster key: lake.sales",
    )
    which.add_argument(
        "--catalog",
        metavar="NAME",
        help="every table of a catalog that has a cluster key; with --manifest, Spark's catalog of its tables",
    )
    of_dbt = parser.add_argument_group("tables that any dbt builds")
    of_dbt.add_argument(
        "--manifest",
        type=Path,
        metavar="FILE",
        help="dbt's target/manifest.json: every table with cluster_by, or those that are named",
    )
    of_dbt.add_argument(
        "--run-results",
        type=Path,
        metavar="FILE",
        help="dbt's target/run_results.json: only what that run has built",
    )
    for name, text in (
        (
            "select",
            "only these nodes: names, tag:, path:, fqn:, package:, config.NAME:; - reads the lines of dbt ls",
        ),
        ("exclude", "but not these nodes"),
    ):
        of_dbt.add_argument(f"--{name}", nargs="+", action="extend", metavar="SELECTOR", help=text)
    of_dbt.add_argument(
        "--map",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=CATALOG",
        help="Spark's name of a catalog of the manifest: awsdatacatalog=lake; may be repeated",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of the Spark session; may be repeated. Through spark-submit, give settings to that instead",
    )
    parser.add_argument(
        "--properties-file",
        type=_file,
        metavar="FILE",
        help="a file of such settings, as spark-submit takes it; those of --conf win",
    )
    parser.add_argument(
        "--json", action="store_true", help="print nothing but one line of JSON to standard output"
    )
    parser.add_argument(
        "--debug", action="store_true", help="print the traceback of an error to standard error"
    )


def _add_argument(parser: argparse.ArgumentParser, argument: Argument) -> None:
    text = _help(argument.meaning).rstrip(".")
    if argument.otherwise and argument.metavar:
        text = f"{text} (default: {argument.otherwise})"
    if not argument.metavar:
        # One that is false by default is only ever turned on.
        action: Any = "store_true" if argument.default is False else argparse.BooleanOptionalAction
        parser.add_argument(_flag(argument), action=action, default=None, help=text)
    elif argument.is_list:
        parser.add_argument(_flag(argument), action="append", metavar=argument.metavar, help=text)
    else:
        parser.add_argument(_flag(argument), type=_value(argument.parse), metavar=argument.metavar, help=text)


def _flag(argument: Argument) -> str:
    return f"--{argument.name.replace('_', '-')}"


def _help(text: str) -> str:
    return text.replace("%", "%%")


def _value(parse_value: Callable[[str, str], Any]) -> Callable[[str], Any]:
    """Return a type for argparse, which puts the name of the option before the error."""

    def convert(text: str) -> Any:
        try:
            parse_value("it", text)
        except ReclusterError as e:
            raise argparse.ArgumentTypeError(str(e)) from None
        return text

    return convert


def _name_of(kind: str) -> Callable[[str, str], Any]:
    return lambda _, text: name_parts(text, kind)


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
