"""The queries that a key is chosen for: given ones, those of a project, or the known reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import parse_queries
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.reads.column_ranges import ranges_predicate
from dbt_recluster.iceberg.reads.query_scans import is_query, query_ranges
from dbt_recluster.iceberg.value_types import value_types

# Each of them costs a query of the table.
_MOST_DEMANDS = 20


@dataclass(frozen=True)
class Demand:
    """A query that a key should serve.

    Attributes:
        name: The query's name in its project, or the predicate.
        predicate: The rows that it reads.
        weight: How often it runs, relative to the others.
    """

    name: str
    predicate: str
    weight: float = 1.0


def demands_of(
    table: ClusteredTable, queries: Sequence[str] | Mapping[str, str]
) -> tuple[list[Demand], list[str]]:
    """Return the demands on a table.

    Args:
        table: The table; its own key does not matter.
        queries: Predicates and whole queries, or whole queries by name; none stands for the most frequent known reads.
            A query with a name that restricts no column makes no demand: under any key it opens the same blocks. If
            none makes a demand, the known reads do.

    Returns:
        The demands, and the named queries that are left out, a line for each.

    Raises:
        PredicateError: A query without a name cannot be planned, or restricts no column.
        OptionError: The queries are no texts.
    """
    queries = parse_queries(queries)
    named = queries if isinstance(queries, Mapping) else {}
    if queries and not named:
        return [Demand(query, _given(table, query) if is_query(query) else query) for query in queries], []
    demands, left_out = [], []
    for name, query in named.items():
        try:
            predicate = _predicate(table, query)
        except PredicateError as e:
            left_out.append(f"{name}: {e}")
            continue
        if predicate:
            demands.append(Demand(name, predicate))
    if not demands:
        known = sorted(table.known_reads, key=lambda read: -read.weight)
        texts = [ranges_predicate(table.columns.types, read.box) for read in known]
        demands = [Demand(text, text, read.weight) for text, read in zip(texts, known, strict=True)]
    if len(demands) > _MOST_DEMANDS:
        left_out.append(
            f"{len(demands) - _MOST_DEMANDS} of {len(demands)} queries: {_MOST_DEMANDS} are tried"
        )
    return demands[:_MOST_DEMANDS], left_out


def _given(table: ClusteredTable, query: str) -> str:
    predicate = _predicate(table, query)
    if not predicate:
        beginning = " ".join(query.split())[:60]
        raise PredicateError(f"{beginning!r} restricts no column of {table.name}, so no key can help it")
    return predicate


def _predicate(table: ClusteredTable, query: str) -> str:
    """Return the predicate of a whole query: empty if it restricts no column of the table."""
    _, boxes = query_ranges(table.iceberg, value_types(table.columns.types), query)
    return " or ".join(f"({ranges_predicate(table.columns.types, box)})" for box in boxes)
