"""The command line of ``dbt-recluster``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from dbt_recluster.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.clustering.values import (
    parse_bytes,
    parse_depth,
    parse_predicate,
    parse_row_count,
    parse_since,
)
from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.planner import STRATEGIES
from dbt_recluster.redaction import hide, redact, secrets_in_command
from dbt_recluster.table_names import name_parts

PROGRAM = "dbt-recluster"
# Exit codes.
DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130

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

exit codes:
  0    done, or nothing to do
  1    a table failed (the others were tried), or Spark or the catalog cannot be reached
  2    wrong usage, or a catalog or namespace that does not exist; nothing was changed
  130  interrupted; a round that was not committed changed nothing

Each command has its own help: dbt-recluster recluster --help
"""
_TABLES = "a table, as Spark names it: catalog.namespace.table"
_OPTIONS = ("final", "where", "max_bytes", "depth", "strategy", "block_rows", "dry_run")


@dataclass(frozen=True)
class Request:
    """A parsed command line.

    Attributes:
        command: The name of the command.
        tables: Tables that are named.
        namespace: The namespace whose tables are meant, or None.
        catalog: The catalog whose tables are meant, or None.
        cluster_by: The key to use instead of the tables' own, or None.
        where: The predicate of a measurement, or None.
        since: The start of the history, or None for all.
        options: The values of ``ReclusterOptions`` that were given.
        orphans: Whether to remove orphan files too.
        settings: Spark settings.
        as_json: Whether standard output is JSON.
        debug: Whether to print the tracebacks of errors.
    """

    command: str
    tables: tuple[str, ...] = ()
    namespace: str | None = None
    catalog: str | None = None
    cluster_by: ClusterKey | None = None
    where: str | None = None
    since: datetime | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    orphans: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    as_json: bool = False
    debug: bool = False


class _Parser(argparse.ArgumentParser):
    """Errors take one line; the usage of these commands takes several."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {redact(message)} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; wrong usage raises SystemExit(2).

    Args:
        arguments: The command line; None is that of the process.
    """
    request = parse(arguments)
    if request.command == "job":
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
    parser, options_with_values = _parser()
    hide(secrets_in_command(words, harmless=options_with_values - {"conf"}))
    given = vars(parser.parse_args(words))
    command = given["command"]
    if command == "job":
        return Request(command)
    tables, namespace, catalog = tuple(dict.fromkeys(given["tables"])), given["namespace"], given["catalog"]
    if (bool(tables) + (namespace is not None) + (catalog is not None)) != 1:
        parser.error(f"{command} needs one or more tables, or --namespace, or --catalog")
    key = given.get("cluster_by")
    if key is not None and command == "recluster" and len(tables) != 1:
        parser.error("--cluster-by is for a single table: name it")
    options = {name: given[name] for name in _OPTIONS if given.get(name) is not None}
    return Request(
        command=command,
        tables=tables,
        namespace=namespace,
        catalog=catalog,
        cluster_by=key,
        where=given.get("where"),
        since=given.get("since"),
        options=options,
        orphans=given.get("orphans", False),
        settings=dict(given["conf"]),
        as_json=given["json"],
        debug=given["debug"],
    )


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
    for name, (summary, add_arguments) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=_sentence(summary), allow_abbrev=False)
        add_arguments(command)
    summary = "print the path of the file to give to spark-submit"
    commands.add_parser(
        "job",
        help=summary,
        description=_sentence(f'{summary}, as in: spark-submit ... "$({PROGRAM} job)" recluster TABLE'),
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
    which.add_argument("--catalog", metavar="NAME", help="every table of a catalog that has a cluster key")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of the Spark session; may be repeated. Through spark-submit, give settings to that instead",
    )
    parser.add_argument(
        "--json", action="store_true", help="print nothing but one line of JSON to standard output"
    )
    parser.add_argument(
        "--debug", action="store_true", help="print the traceback of an error to standard error"
    )


def _add_recluster(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    _add_key(parser, "cluster by this key, which becomes the sort order of the table")
    parser.add_argument(
        "--final",
        action=argparse.BooleanOptionalAction,
        help="repeat rounds until nothing is left to do; otherwise one round",
    )
    _add_where(parser)
    parser.add_argument(
        "--max-bytes",
        type=_value(parse_bytes),
        metavar="SIZE",
        help="the most bytes to rewrite in each table: a number, or a size such as '10 GB'",
    )
    _add_planning(parser)
    parser.add_argument(
        "--dry-run", action="store_true", default=None, help="plan and print; rewrite nothing"
    )


def _add_information(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    _add_key(parser, "measure by this key; the table keeps its own")
    _add_where(parser)


def _add_history(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    parser.add_argument(
        "--since",
        type=_value(lambda _, value: parse_since(value)),
        metavar="TIME",
        help="leave out what is older: a date, a time (UTC unless it has a zone) or a period such as '7 days'",
    )


def _add_estimate(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    _add_key(parser, "estimate for this key; the table keeps its own")
    _add_planning(parser)


def _add_maintain(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    parser.add_argument(
        "--orphans",
        action="store_true",
        help="also remove orphan files of more than three days, for which all files of a table are listed",
    )
    parser.add_argument(
        "--dry-run", action="store_true", default=None, help="say what is due; change nothing"
    )


def _add_key(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--cluster-by",
        type=_value(lambda _, value: parse_cluster_key(value)),
        metavar="KEY",
        help=f"{text}: columns or expressions, separated by commas",
    )


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--where",
        type=_value(parse_predicate),
        metavar="PREDICATE",
        help="a SQL predicate; only blocks that may hold a matching row are considered",
    )


def _add_planning(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--depth",
        type=_value(parse_depth),
        metavar="NUMBER",
        help="the average depth up to which a table counts as well clustered; below 1, a share of the number of "
        "blocks; auto, where rewriting and reading cost least",
    )
    parser.add_argument("--strategy", choices=STRATEGIES, help="how block sets are selected")
    parser.add_argument(
        "--block-rows", type=_value(parse_row_count), metavar="NUMBER", help="the most rows in a new block"
    )


def _value(parse_value: Callable[[str, str], Any]) -> Callable[[str], Any]:
    """Return a type for argparse, which puts the name of the option before the error."""

    def convert(text: str) -> Any:
        try:
            return parse_value("it", text)
        except ReclusterError as e:
            raise argparse.ArgumentTypeError(str(e)) from None

    return convert


def _name_of(kind: str) -> Callable[[str, str], str]:
    def check(_: str, text: str) -> str:
        name_parts(text, kind)
        return text

    return check


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError("it must be KEY=VALUE")
    return name.strip(), value


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "recluster": ("recluster tables that are not well clustered", _add_recluster),
    "information": ("print how well tables are clustered; change nothing", _add_information),
    "history": ("print every round of reclustering and every other commit; change nothing", _add_history),
    "estimate": ("estimate what clustering costs, at first and each day; change nothing", _add_estimate),
    "maintain": (
        "do what is due: join position delete files, rewrite manifests, expire snapshots",
        _add_maintain,
    ),
    "suspend": ("keep everybody from reclustering tables until they are resumed", _add_common),
    "resume": ("allow reclustering again", _add_common),
}
