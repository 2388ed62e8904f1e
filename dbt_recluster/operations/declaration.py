"""How an operation is declared: its names, its arguments, the tables it is for, what it runs and its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from dbt_recluster.clustering.options import Option, Parser
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.tables import CLUSTERED, Eligible

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

    @classmethod
    def of_option(cls, option: Option, metavar: str = "VALUE") -> Argument:
        """Return the argument that replaces an option of the model or the table."""
        otherwise = "what the model or the table says"
        return cls(option.name, option.parse, option.meaning, otherwise=otherwise, metavar=metavar)

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
        detail: Writes what belongs below it, such as a plan; None is nothing.
        arguments: The arguments besides those that choose tables, and ``format``.
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
    detail: Callable[[Any], str] | None = None
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
        given = {name: value for name, value in given.items() if value is not None}
        for old, new in self.renamed.items():
            if old in given and new in given:
                raise OptionError(f"{old} is the older name of {new}: name one of them")
        given = {self.renamed.get(name, name): value for name, value in given.items()}
        return read_arguments(self.name, (*arguments, *self.arguments), given)


def read_arguments(of: str, arguments: Iterable[Argument], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operation or a test, checked; None stands for one that is not given.

    Raises:
        OptionError, ClusterKeyError: One is wrong, or there is no such argument.
    """
    known = {argument.name: argument for argument in arguments}
    for name in given:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            meant = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"
            raise OptionError(f"{of} has no argument {name!r}; {meant}")
    return {name: argument.read(given.get(name)) for name, argument in known.items()}
