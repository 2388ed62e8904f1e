"""Reads that a model declares, or a caller names, and their text in the table's property."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbt_recluster.clustering.values import parse_number
from dbt_recluster.exceptions import OptionError
from dbt_recluster.iceberg.reads.predicates import is_query

# Stands for no reads at all, whatever the table records.
EVEN = "even"

# Characters in a table's property; a Hive metastore may hold 4,000.
_LONGEST = 3_500
# The sum of many must stay finite.
_GREATEST_WEIGHT = 1e9
_EXAMPLE = "\"event_date >= date'2026-01-01'\""


@dataclass(frozen=True)
class DeclaredRead:
    """A query, or a predicate of queries, and how often it runs.

    Attributes:
        text: A whole query, or a predicate on the table's columns.
        weight: How often the query runs in a day. Only costs depend on more than the ratio of weights.
        is_query: Whether the text is a whole query; None decides by its first word.
    """

    text: str
    weight: float = 1.0
    is_query: bool | None = None

    def __post_init__(self) -> None:
        if self.is_query is None:
            object.__setattr__(self, "is_query", is_query(self.text))


def parse_reads(name: str, value: Any) -> tuple[DeclaredRead, ...] | None:
    """Parse the reads that a user declares.

    Accepted are a query or a predicate, a list of them, and a list of mappings with ``query`` or ``where`` and with
    ``weight``, also as JSON text. ``even`` and an empty list mean that reads are even over the keys. None stands for
    the reads that the table records.

    Raises:
        OptionError: It is none of these, or too long.
    """
    if value is None:
        return None
    if isinstance(value, str) and value.strip().lower() == EVEN:
        return ()
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise OptionError(f"{name} must be a list of SQL predicates, not {value!r:.40}") from None
    items = [value] if isinstance(value, (str, Mapping, DeclaredRead)) else value
    if not isinstance(items, Sequence):
        raise OptionError(
            f"{name} must be a list of queries, or of SQL predicates such as {_EXAMPLE}, not {value!r:.40}"
        )
    if len(items) > _LONGEST:
        raise OptionError(
            f"{name} must be shorter: {len(items):,} reads do not fit into the {_LONGEST:,} characters of the table's "
            "property"
        )
    reads = tuple(_parse_read(name, item) for item in items)
    if len(reads_as_text(reads)) > _LONGEST:
        raise OptionError(
            f"{name} must be shorter: {len(reads)} reads take {len(reads_as_text(reads)):,} characters, and the "
            f"table's property holds {_LONGEST:,}"
        )
    return reads


def _parse_read(name: str, item: Any) -> DeclaredRead:
    if isinstance(item, DeclaredRead):
        item = {"query" if item.is_query else "where": item.text, "weight": item.weight}
    given = item
    if not isinstance(given, Mapping):
        given = {"query" if isinstance(item, str) and is_query(item) else "where": item}
    unknown = sorted(set(map(str, given)) - {"query", "where", "weight"})
    if unknown:
        raise OptionError(f"{name}: a read has `query` or `where`, and `weight`, and no `{unknown[0]}`")
    if "query" in given and "where" in given:
        raise OptionError(f"{name}: a read has `query` or `where`, not both")
    text, weight = given.get("query", given.get("where")), parse_number(given.get("weight", 1))
    if not isinstance(text, str) or not text.strip():
        raise OptionError(
            f"{name}: a read is a query, or a SQL predicate such as {_EXAMPLE}, not {text!r:.40}"
        )
    if "query" in given and not is_query(text):
        raise OptionError(f"{name}: a query begins with select or with, not as {text!r:.40}; use `where`")
    if weight is None or not 0 < weight <= _GREATEST_WEIGHT:
        raise OptionError(
            f"{name}: a weight must be a number above 0, at most {_GREATEST_WEIGHT:,.0f}, "
            f"not {given.get('weight')!r:.40}"
        )
    return DeclaredRead(text, weight, "query" in given)


def reads_as_text(reads: Sequence[DeclaredRead]) -> str:
    """Write reads as a text that :func:`parse_reads` reads."""
    if not reads:
        return EVEN
    items = [
        read.text
        if read.weight == 1 and read.is_query == is_query(read.text)
        else {"query" if read.is_query else "where": read.text, "weight": read.weight}
        for read in reads
    ]
    return json.dumps(items, ensure_ascii=False, separators=(",", ":"))
