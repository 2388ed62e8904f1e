"""How an operation is declared, and the arguments that several operations share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dbt_recluster.cluster_key import parse_cluster_key
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, Parser
from dbt_recluster.clustering.values import parse_boolean, parse_moment, parse_predicate
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.tables import CLUSTERED, Eligible
from dbt_recluster.text import did_you_mean

if TYPE_CHECKING:
    from dbt_recluster.operations.call import Call


@dataclass(frozen=True)
class Argument:
    """An argument of an operation.

    Attributes:
        name: Its name; ``--max-bytes`` on a command line.
        parse: Reads a value other than None.
        meaning: A sentence for the reference and for help.
        default: The value if none is given.
        otherwise: The default in words.
        metavar: What stands for the value in help; empty for one that is true or false.
        is_list: Whether a command line may repeat it.
        is_of_one_table: Whether it is for a single table that is named.
    """

    name: str
    parse: Parser
    meaning: str
    default: Any = None
    otherwise: str = ""
    metavar: str = "VALUE"
    is_list: bool = False
    is_of_one_table: bool = False

    def read(self, value: Any) -> Any:
        """Return a value, checked; the default for None.

        Raises:
            OptionError, ClusterKeyError: It has the wrong type or range.
        """
        return self.default if value is None else self.parse(self.name, value)


@dataclass(frozen=True)
class Operation:
    """An operation on tables, one after the other.

    Attributes:
        name: Its name in ``dbt run-operation``; the command has it with hyphens.
        short: Its other name on the command line.
        meaning: What it does, for the reference and for help; its first sentence stands alone.
        run: Does it to one table; returns a result with ``as_dict``, or JSON values.
        text: Writes the result of one table for people.
        arguments: The arguments besides those that choose tables, and ``format``.
        detail: Writes what belongs below it, such as a plan.
        eligible: Which tables it is for, of those that the user did not name.
        needs_choice: Whether the user must name or select tables.
        is_rewrite: Whether it rewrites data, which takes long enough for a numbered line of its own in the log.
        renamed: Names of arguments by those of earlier versions.
        order: Sorts its calls before they are run.
        finish: Writes files of all results, in place of a text for each, and returns their paths.
    """

    name: str
    short: str
    meaning: str
    run: Callable[[Call], Any]
    text: Callable[[Any, Call], str]
    arguments: tuple[Argument, ...] = ()
    detail: Callable[[Any], str] = lambda _: ""
    eligible: Eligible = CLUSTERED
    needs_choice: bool = False
    is_rewrite: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    order: Callable[[list[Call]], list[Call]] = list
    finish: Callable[[list[Any], Mapping[str, Any]], list[str]] | None = None

    def read(self, arguments: Iterable[Argument], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments, checked; ``arguments`` precede the operation's own.

        Raises:
            OptionError, ClusterKeyError: One is wrong, or the operation has no such argument.
        """
        known = {argument.name: argument for argument in (*arguments, *self.arguments)}
        given = {name: value for name, value in given.items() if value is not None}
        for old, new in self.renamed.items():
            if old in given and new in given:
                raise OptionError(f"{old} is the older name of {new}: name one of them")
        given = {self.renamed.get(name, name): value for name, value in given.items()}
        for name in given:
            if name not in known:
                meant = did_you_mean(str(name), known) or f"it takes {', '.join(known)}"
                raise OptionError(f"{self.name} has no argument {name!r}; {meant}")
        return {name: argument.read(given.get(name)) for name, argument in known.items()}


def operation(
    text: Callable[[Any, Call], str], *arguments: Argument, short: str = "", **facts: Any
) -> Callable[[Callable[[Call], Any]], Operation]:
    """Declare a function as the operation of its name. The first paragraph of its docstring is the meaning."""

    def declare(run: Callable[[Call], Any]) -> Operation:
        meaning = " ".join((run.__doc__ or "").partition("\n\n")[0].split())
        return Operation(run.__name__, short, meaning, run, text, arguments, **facts)

    return declare


def parse_format(name: str, value: Any) -> str:
    """Read ``text`` or ``json``, or raise OptionError."""
    word = str(value).strip().lower()
    if word not in ("text", "json"):
        raise OptionError(f"{name} must be text or json, not {value!r}")
    return word


def parse_selector(name: str, value: Any) -> list[str]:
    """Read the words of a selector, a string or a list of strings, or raise OptionError."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(w, str) and w.strip() for w in words):
        raise OptionError(f"{name} must be a selector such as tag:hourly, or a list of them, not {value!r}")
    return [word for text in words for word in text.split()]


def option_argument(name: str, metavar: str) -> Argument:
    """Return the argument that replaces an option of the model or the table."""
    option = RECLUSTER_OPTIONS[name]
    otherwise = "what the model or the table says"
    return Argument(name, option.parse, option.meaning, otherwise=otherwise, metavar=metavar)


def key_argument(meaning: str, *, is_of_one_table: bool = False) -> Argument:
    """Return the argument that names a cluster key."""
    return Argument(
        "cluster_by",
        lambda _, value: parse_cluster_key(value),
        f"{meaning}: columns or expressions, a list or separated by commas.",
        otherwise="the model's, else the table's sort order",
        metavar="KEY",
        is_of_one_table=is_of_one_table,
    )


def flag(name: str, meaning: str, *, default: bool = False) -> Argument:
    """Return an argument that is true or false."""
    return Argument(name, parse_boolean, meaning, default, str(default).lower(), "")


TABLE = Argument(
    "table",
    lambda _, value: value,  # checked once the tables are known
    "A relation (schema.table), the name of a model, or a list of both.",
    otherwise="every model that it is for",
    metavar="TABLE",
)
SELECT = Argument(
    "select",
    parse_selector,
    "Instead of names, the models as dbt's --select writes them (tag:hourly, path:models/marts, +orders), a string or "
    "a list.",
    metavar="SELECTOR",
)
EXCLUDE = Argument(
    "exclude", parse_selector, "What to leave out of them, as dbt's --exclude writes it.", metavar="SELECTOR"
)
FORMAT = Argument(
    "format",
    parse_format,
    "text for people, json for programs; with dbt's --quiet nothing else is printed.",
    "text",
    "text",
    "FORMAT",
)
CHOICE = (TABLE, SELECT, EXCLUDE)

WHERE = Argument(
    "where",
    parse_predicate,
    "A predicate on the table's columns; only blocks that may hold a matching row count.",
    otherwise="none",
    metavar="PREDICATE",
)
SINCE = Argument(
    "since",
    parse_moment,
    "Leave out what is older: a date, a time (UTC unless it has a zone) or a period such as '7 days'.",
    otherwise="all",
    metavar="TIME",
)
PLANNING = (
    option_argument("depth", "NUMBER"),
    option_argument("strategy", "NAME"),
    option_argument("block_rows", "NUMBER"),
)
