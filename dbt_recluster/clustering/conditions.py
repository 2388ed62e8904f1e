"""The conditions under which a build is followed by a recluster. Without any, it always is.

They are the patent's claims 1 to 5: amount and frequency of changes since the last recluster, an example query that has
become slow, and pruning that has become worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dbt_recluster.clustering.values import parse_number
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.reads.predicates import is_query


@dataclass(frozen=True)
class After:
    """Changes since the last recluster, of which any is enough.

    Attributes:
        rows: Rows added and deleted.
        commits: Commits of other writers that changed rows.
        share: Rows added and deleted, as a share of the table's rows.
    """

    rows: float | None = None
    commits: float | None = None
    share: float | None = None


@dataclass(frozen=True)
class When:
    """A query that has become worse, or all known ones.

    Attributes:
        query: An example query.
        opens: Blocks of the table that it opens, more of which are too many; below 1, a share of the table's blocks.
        seconds: Time that it takes, more of which is too much. The query is run.
        skipped: Share of the table's blocks that reads skip, less of which is too little.
    """

    query: str | None = None
    opens: float | None = None
    seconds: float | None = None
    skipped: float | None = None


@dataclass(frozen=True)
class Conditions:
    """All conditions of a model, of which any is enough."""

    after: After | None = None
    when: tuple[When, ...] = ()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self.after is not None or bool(self.when)


def parse_after(name: str, value: Any) -> After:
    """Read a mapping with ``rows``, ``commits`` or ``share``, each a number above 0.

    Raises:
        OptionError: It is none.
    """
    if isinstance(value, After):
        return value
    after = After(**_numbers(name, value, After, "{commits: 5}"))
    if after.share is not None and after.share > 1:
        raise OptionError(f"{name}: share must be at most 1, not {after.share:g}")
    return after


def parse_when(name: str, value: Any) -> tuple[When, ...]:
    """Read a mapping with ``query`` and ``opens`` or ``seconds``, or with ``skipped``, or a list of them.

    Raises:
        OptionError: It is none.
    """
    if value == ():
        return ()
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        raise OptionError(
            f"{name} must be a mapping such as {{skipped: 0.9}}, or a list of them, not {value!r:.40}"
        )
    return tuple(_parse_when(name, item) for item in items)


def _parse_when(name: str, value: Any) -> When:
    if isinstance(value, When):
        return value
    query = value.get("query") if isinstance(value, Mapping) else None
    rest = {k: v for k, v in value.items() if k != "query"} if isinstance(value, Mapping) else value
    example = "{skipped: 0.9}, or {query: 'select ...', opens: 40}"
    numbers = _numbers(name, rest, When, example)
    when = When(query, **{key: numbers.get(key) for key in ("opens", "seconds", "skipped")})
    if when.skipped is not None and (query is not None or when.skipped > 1 or len(numbers) > 1):
        raise OptionError(f"{name}: skipped is a share of at most 1, and stands alone: {{skipped: 0.9}}")
    if when.skipped is None and (not isinstance(query, str) or not is_query(query)):
        raise OptionError(
            f"{name}: opens and seconds need a query that begins with select or with, not {query!r:.40}"
        )
    return when


def _numbers(name: str, value: Any, kind: type, example: str) -> dict[str, float]:
    known = [f.name for f in fields(kind) if f.name != "query"]
    if not isinstance(value, Mapping) or not value:
        raise OptionError(
            f"{name} must be a mapping with {' or '.join(known)}, such as {example}, not {value!r:.40}"
        )
    if unknown := sorted(set(map(str, value)) - set(known)):
        raise OptionError(f"{name} has {', '.join(known)}, and no {unknown[0]!r}")
    numbers = {str(key): parse_number(given) for key, given in value.items()}
    for key, number in numbers.items():
        if number is None or number <= 0:
            raise OptionError(f"{name}: {key} must be a number above 0, not {value[key]!r:.40}")
    return {key: number for key, number in numbers.items() if number is not None}
