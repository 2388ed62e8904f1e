"""The options of a recluster, each declared once: its parser, its default and the sentence that explains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypedDict

from dbt_recluster.clustering import values
from dbt_recluster.clustering.result import ProgressCallback
from dbt_recluster.clustering.values import AUTO, After, DeclaredRead, Depth, When
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.table_properties import OPTION_PREFIX
from dbt_recluster.planner import Policy

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:  # Python 3.10 has none, and the command does without typing_extensions

    class Unpack:
        """Stands for the type that it is applied to."""

        __class_getitem__ = staticmethod(lambda kind: kind)


TRIGGERS = ("run", "manual")

# Takes the name that an error mentions, and a value other than None.
Parser = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Option:
    """The declaration of an option."""

    parse: Parser
    meaning: str  # a sentence for the reference and for help
    example: str  # a value as YAML
    default: Any = None
    otherwise: str = ""  # the default in words
    is_recorded: bool = True  # whether a property of the table records the model's value
    metavar: str | None = None  # in help, empty for true or false; None if it is no argument of recluster
    config: str = ""  # the name of the model's config
    name: str = ""  # the name of the field, of the argument, and in a model's ``meta``

    @property
    def table_property(self) -> str:
        """The property that records the option with the table."""
        return f"{OPTION_PREFIX}{self.name}"

    def read(self, name: str, value: Any) -> Any:
        """Return a value as it is given under ``name``, checked; the default for None."""
        return self.default if value is None else self.parse(name, value)

    def of_table(self, properties: Mapping[str, str], given: Any = None) -> Any:
        """Return the given value, else the one that a table's properties record, else the default, checked."""
        if given is not None or not self.is_recorded:
            return self.read(self.name, given)
        return self.read(f"table property {self.table_property}", properties.get(self.table_property))


def option(parse: Parser, meaning: str, *, default: Any = None, **facts: Any) -> Any:
    """Declare a field of a dataclass as an :class:`Option`; its config has a prefix unless ``config`` names it."""
    facts.setdefault("otherwise", str(default).lower())
    return field(default=default, metadata={"option": Option(parse, meaning, default=default, **facts)})


def declared(kind: type) -> dict[str, Option]:
    """Return the options that a dataclass declares, by name."""
    return {
        f.name: replace(facts, name=f.name, config=facts.config or f"recluster_{f.name}")
        for f in fields(kind)
        if (facts := f.metadata.get("option"))
    }


@dataclass(frozen=True)
class ReclusterOptions:
    """How to recluster a table. Every value is checked when the options are made.

    Attributes:
        dry_run: Plan and report; change nothing.
        trigger: What started it, for the history: ``run`` after a build, otherwise ``manual``. Only a recluster after a
            build asks for conditions.
        progress: Callback for the progress of each round, or None.

    Raises:
        OptionError: A value has the wrong type or range.
    """

    depth: Depth | None = option(
        values.parse_depth,
        "The depth up to which a table counts as well clustered; between 0 and 1, a share of the number of "
        "blocks; auto, where rewriting and reading cost least.",
        otherwise="4",
        metavar="NUMBER",
        example="2",
    )
    final: bool = option(
        values.parse_boolean,
        "Repeat rounds until nothing is left to do.",
        default=False,
        example="true",
        metavar="",
    )
    strategy: str | None = option(
        values.parse_strategy,
        "How block sets are selected.",
        otherwise="payback",
        example="peak",
        metavar="NAME",
    )
    max_merge_blocks: int | None = option(
        values.parse_merge_blocks,
        "The most overlapping blocks in one merge; with strategy width also the base of its buckets of widths.",
        otherwise="no limit, and base 4",
        metavar="NUMBER",
        example="8",
    )
    max_bytes: int | None = option(
        values.parse_bytes,
        "The most bytes to rewrite in each table: a number, or a size such as '10 GB'.",
        otherwise="no limit",
        example="10 GB",
        metavar="SIZE",
    )
    max_seconds: float | None = option(
        values.parse_seconds,
        "The most seconds of rewriting in each table, kept by the speed of its own rounds, 10 MB a second before the "
        "first.",
        otherwise="no limit",
        example="600",
        metavar="NUMBER",
    )
    where: str | None = option(
        values.parse_predicate,
        "A predicate on the table's columns; only blocks that may hold a matching row are considered, and rewritten "
        "whole.",
        otherwise="none",
        example="\"event_date >= date'2026-01-01'\"",
        metavar="PREDICATE",
    )
    block_rows: int = option(
        values.parse_row_count,
        "The most rows in a block that a merge writes; loads write files as Spark does.",
        default=1_000_000,
        example="500000",
        metavar="NUMBER",
        config="block_rows",
    )
    reads: tuple[DeclaredRead, ...] | None = option(
        values.parse_reads,
        "What queries read: project, even, or queries or predicates, each with a weight for how often; blocks are "
        "merged where reads end.",
        otherwise="what the table records",
        example="project",
    )
    after: After | None = option(
        values.parse_after,
        "How much must have changed since the last recluster, commits, rows, rows deleted or updated, or share, or how "
        "long ago it must be, hours or days.",
        otherwise="after every build",
        example="{commits: 5}",
        is_recorded=False,
    )
    when: tuple[When, ...] = option(
        values.parse_when,
        "The query that must have become worse: it opens too many blocks, returns too small a share of the rows in "
        "them or takes too many seconds, or reads have skipped too few blocks, or the reducible ratio has fallen too "
        "low.",
        default=(),
        otherwise="after every build",
        example='{query: "select ...", opens: 40}',
        is_recorded=False,
    )
    dry_run: bool = False
    trigger: str = "manual"
    progress: ProgressCallback | None = None

    def __post_init__(self) -> None:
        for name, declaration in RECLUSTER_OPTIONS.items():
            object.__setattr__(self, name, declaration.read(name, getattr(self, name)))
        object.__setattr__(self, "dry_run", values.parse_boolean("dry_run", self.dry_run))
        if self.trigger not in TRIGGERS:
            raise OptionError(f"trigger must be one of {', '.join(TRIGGERS)}, not {self.trigger!r}")
        if self.progress is not None and not callable(self.progress):
            raise OptionError(f"progress must be a function, not {self.progress!r}")

    @classmethod
    def of_table(cls, properties: Mapping[str, str], **given: Any) -> ReclusterOptions:
        """Return the given options, each else as a table's properties record it, else its default."""
        options = RECLUSTER_OPTIONS.items()
        recorded = {name: known.of_table(properties, given.get(name)) for name, known in options}
        return cls(**{**given, **recorded})

    @property
    def policy(self) -> Policy:
        """The planner's policy, with the default in place of ``auto``; ``max_bytes`` is for the whole recluster."""
        names = ("depth", "strategy", "max_bytes", "max_merge_blocks", "block_rows")
        given: dict[str, Any] = {name: getattr(self, name) for name in names}
        given = {name: value for name, value in given.items() if value not in (None, AUTO)}
        return Policy(max_merge_bytes=100 * 2**30, **given)  # of one block set, which a failed merge loses


RECLUSTER_OPTIONS = declared(ReclusterOptions)


def property_text(value: Any) -> str:
    """Return the value of an option as a table's property."""
    if isinstance(value, tuple):
        return values.reads_as_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


class PlanningOptions(TypedDict, total=False):
    """The options that every plan follows, as keywords."""

    depth: Depth | None
    strategy: str | None
    block_rows: int | None


class ReclusteringOptions(PlanningOptions, total=False):
    """The options of a recluster, as keywords."""

    final: bool | None
    where: str | None
    max_merge_blocks: int | None
    max_bytes: int | str | None
    max_seconds: float | None
