"""The queries that cluster keys are tried for: given ones, those of a project, or the reads of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from dbt_recluster.clustering.reads.declared import DeclaredRead
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import parse_queries
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.reads.expressions import query_ranges, ranges_predicate
from dbt_recluster.iceberg.reads.predicates import is_query
from dbt_recluster.iceberg.value_types import value_types

# Each of them costs a query of the table.
_MOST_QUERIES = 20


def tried_queries(
    table: ClusteredTable, queries: Sequence[str] | Mapping[str, str]
) -> tuple[dict[str, DeclaredRead], list[str]]:
    """Return the predicates to try keys for, by the names of their queries.

    Args:
        table: The table; its own key does not matter.
        queries: Predicates and whole queries, or whole queries by name; none stands for the most frequent reads of the
            table. A query with a name that restricts no column is not tried: under any key it opens the same blocks.
            If none is tried, the reads of the table are.

    Returns:
        The predicates, and the named queries that are left out, a line for each.

    Raises:
        PredicateError: A query without a name cannot be planned, or restricts no column.
        OptionError: The queries are no texts.
    """
    queries = parse_queries("queries", queries)
    named = queries if isinstance(queries, Mapping) else {}
    if queries and not named:
        counts = Counter(queries)
        return {
            query: DeclaredRead(_given(table, query), count, is_query=False)
            for query, count in counts.items()
        }, []
    tried, left_out = {}, []
    for name, query in named.items():
        try:
            predicate = _predicate(table, query)
        except PredicateError as e:
            left_out.append(f"{name}: {e}")
            continue
        if predicate:
            tried[name] = DeclaredRead(predicate, is_query=False)
    if not tried:
        weights: dict[str, float] = {}
        for read in table.reads.ranges:
            text = table.reads.predicate(read)
            weights[text] = weights.get(text, 0.0) + read.weight
        by_weight = sorted(weights.items(), key=lambda item: -item[1])
        tried = {text: DeclaredRead(text, weight, is_query=False) for text, weight in by_weight}
    if len(tried) > _MOST_QUERIES:
        left_out.append(f"{len(tried) - _MOST_QUERIES} of {len(tried)} queries: {_MOST_QUERIES} are tried")
    return dict(islice(tried.items(), _MOST_QUERIES)), left_out


def _given(table: ClusteredTable, query: str) -> str:
    predicate = _predicate(table, query) if is_query(query) else query
    if not predicate:
        beginning = " ".join(query.split())[:60]
        raise PredicateError(f"{beginning!r} restricts no column of {table.name}, so no key can help it")
    return predicate


def _predicate(table: ClusteredTable, query: str) -> str:
    """Return the predicate of a whole query: empty if it restricts no column of the table."""
    _, alternatives = query_ranges(table.iceberg, value_types(table.columns.types), query)
    return " or ".join(f"({ranges_predicate(table.columns.types, ranges)})" for ranges in alternatives)
