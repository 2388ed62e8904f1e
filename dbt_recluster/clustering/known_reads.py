"""What is known of the queries that read a table: predicates, and how often each is asked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbt_recluster.clustering.values import parse_number
from dbt_recluster.exceptions import OptionError, PredicateError
from dbt_recluster.iceberg.key_ranges import key_ranges
from dbt_recluster.planner import Reads

if TYPE_CHECKING:
    from dbt_recluster.clustering.keyed_table import KeyedTable

# Characters that they take in a table's property; a Hive metastore may hold 4,000.
_LONGEST = 3_500
_EXAMPLE = "\"event_date >= date'2026-01-01'\""


@dataclass(frozen=True)
class KnownRead:
    """A predicate of queries.

    Attributes:
        where: The predicate, on the table's columns.
        weight: How often it is asked, beside the others.
    """

    where: str
    weight: float = 1.0


def parse_reads(name: str, value: Any) -> tuple[KnownRead, ...]:
    """Read predicates: one, a list, or a list of mappings with ``where`` and ``weight``; also as the text of such JSON.

    Raises:
        OptionError: It is none of these, or too long.
    """
    if value is None:
        return ()
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            raise OptionError(f"{name} must be a list of SQL predicates, not {value!r:.40}") from None
    items = [value] if isinstance(value, (str, Mapping, KnownRead)) else value
    if not isinstance(items, Sequence):
        raise OptionError(f"{name} must be a list of SQL predicates such as {_EXAMPLE}, not {value!r:.40}")
    reads = tuple(_parse_read(name, item) for item in items)
    if len(reads_text(reads)) > _LONGEST:
        raise OptionError(
            f"{name} must be shorter: {len(reads)} predicates take {len(reads_text(reads)):,} characters, and the "
            f"table's property holds {_LONGEST:,}"
        )
    return reads


def _parse_read(name: str, item: Any) -> KnownRead:
    if isinstance(item, KnownRead):
        item = {"where": item.where, "weight": item.weight}
    given = item if isinstance(item, Mapping) else {"where": item}
    unknown = sorted(set(map(str, given)) - {"where", "weight"})
    if unknown:
        raise OptionError(f"{name}: a read has `where` and `weight`, and no `{unknown[0]}`")
    where, weight = given.get("where"), parse_number(given.get("weight", 1))
    if not isinstance(where, str) or not where.strip():
        raise OptionError(f"{name}: a read is a SQL predicate such as {_EXAMPLE}, not {where!r:.40}")
    if weight is None or weight <= 0 or not math.isfinite(weight):
        raise OptionError(f"{name}: a weight must be a number above 0, not {given.get('weight')!r:.40}")
    return KnownRead(where, weight)


def reads_text(reads: Sequence[KnownRead]) -> str:
    """Write reads as JSON, which :func:`parse_reads` reads."""
    items = [
        read.where if read.weight == 1 else {"where": read.where, "weight": read.weight} for read in reads
    ]
    return json.dumps(items, ensure_ascii=False, separators=(",", ":"))


def planner_reads(table: KeyedTable, reads: Sequence[KnownRead]) -> tuple[Reads | None, list[str]]:
    """Return the ranges of the key that reads ask for, and what to tell of those that are left out.

    A read that does not restrict the key is one of all keys. It ends nowhere, so it is left out without a word.
    """
    lower: list[list[Any]] = []
    upper: list[list[Any]] = []
    weight: list[float] = []
    left_out = []
    for read in reads:
        try:
            ranges = key_ranges(table.iceberg, table.columns.types, table.key, table.predicate(read.where))
        except PredicateError as e:
            left_out.append(f"reads: left out, {str(e).removeprefix('where: ')}")
            continue
        for low, high in ranges:
            lower.append(low)
            upper.append(high)
            weight.append(read.weight)
    if not weight:
        return None, left_out
    columns = range(len(table.key.fields))
    return (
        Reads(
            [[low[column] for low in lower] for column in columns],
            [[high[column] for high in upper] for column in columns],
            weight,
        ),
        left_out,
    )
