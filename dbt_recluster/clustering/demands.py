"""The queries that a key is chosen for: given ones, those of a project, or the known reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dbt_recluster.clustering.keyed_table import KeyedTable
from dbt_recluster.exceptions import PredicateError
from dbt_recluster.iceberg.query_scans import is_query, scan_predicates
from dbt_recluster.iceberg.read_boxes import box_predicate, predicate_boxes
from dbt_recluster.iceberg.value_types import value_types

# Of known reads; for each, some of the table's rows are read.
_MOST_READS = 20


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


def demands_of(table: KeyedTable, queries: Sequence[str] | Mapping[str, str]) -> list[Demand]:
    """Return the demands on a table.

    Args:
        table: The table; its own key does not matter.
        queries: Predicates and whole queries, or whole queries by name; none stands for the most frequent known reads.
            A whole query that cannot be planned, or that restricts no column, makes no demand if it has a name: under
            any key it opens the same blocks.

    Raises:
        PredicateError: A query without a name cannot be planned.
    """
    if isinstance(queries, Mapping):
        return [
            Demand(name, predicate)
            for name, query in queries.items()
            if (predicate := _predicate_or_none(table, query))
        ]
    if queries:
        return [Demand(query, _predicate(table, query) if is_query(query) else query) for query in queries]
    known = sorted(table.known_reads, key=lambda read: -read.weight)[:_MOST_READS]
    predicates = [box_predicate(table.columns.types, read.box) for read in known]
    return [Demand(text, text, read.weight) for text, read in zip(predicates, known, strict=True)]


def _predicate(table: KeyedTable, query: str) -> str:
    """Return the predicate of a whole query: empty if it restricts no column of the table."""
    kinds = value_types(table.columns.types)
    boxes = [
        box
        for scan in scan_predicates(table.iceberg, query)
        for box in predicate_boxes(table.iceberg, kinds, scan)
    ]
    return " or ".join(f"({box_predicate(table.columns.types, box)})" for box in boxes)


def _predicate_or_none(table: KeyedTable, query: str) -> str | None:
    try:
        return _predicate(table, query)
    except PredicateError:
        return None
