"""Cluster keys tried on a sample of a table's rows: which blocks queries would open after a full sort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbt_recluster.clustering.costs.cost_model import CostModel
from dbt_recluster.clustering.costs.sampled_rows import SampledRows, SortedBlocks
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.reads.declared import DeclaredRead
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.curve import Curve
from dbt_recluster.iceberg.metadata.block_metadata import BoolArray
from dbt_recluster.iceberg.reads.expressions import expression_json, literals, may_match, ranges_predicate

# Each of them is a scan that Iceberg plans.
_SINGLE_VALUES = 5


@dataclass(frozen=True)
class KeyCandidate:
    """A key and its effect on queries.

    Attributes:
        cluster_by: Its items, as users write them.
        distinct: Distinct values of its first column in the sample.
        blocks: Blocks of the table if it is sorted by this key; those of now if nothing would be rewritten.
        skipped_now: Share of blocks that the queries skip today, 0 to 1, averaged over the queries.
        skipped_then: Share of blocks that they would skip under this key.
        opened: Blocks that each query would open under this key.
        first_bytes: Bytes that the first clustering by it would read, as in ``estimate_clustering_cost``.
        bytes_per_day: Bytes that keeping it would read per day, least and most, likewise; None if the snapshots hold no
            load of the past seven days.
    """

    cluster_by: tuple[str, ...]
    distinct: int
    blocks: int
    skipped_now: float
    skipped_then: float
    opened: tuple[int, ...]
    first_bytes: int
    bytes_per_day: tuple[int, int] | None

    @property
    def gain(self) -> float:
        """Share of blocks that would be skipped and are not skipped today."""
        return self.skipped_then - self.skipped_now


@dataclass(frozen=True, eq=False)
class _Query:
    """A query.

    Attributes:
        expression: What it asks for, in Iceberg's JSON.
        weight: How often it runs, relative to the others.
        opened: Blocks that it opens today, bool (blocks,).
    """

    expression: Any
    weight: float
    opened: BoolArray


class KeyTrial:
    """A sample of a table, on which keys are tried.

    Args:
        table: The table under the key of all columns that may be part of a key.
        reads: Predicates of queries; without any, a few for single values of a key's first column.
        options: The block size, and what the costs depend on.

    Attributes:
        sampled: Rows of the sample.
        opened_now: Blocks that each query opens today.
    """

    def __init__(
        self, table: ClusteredTable, reads: Sequence[DeclaredRead], options: ReclusterOptions
    ) -> None:
        self._table, self._names = table, [field.column for field in table.key.fields]
        self._metadata = table.metadata()
        self._queries = [self._query(read) for read in reads]
        named: dict[str, list[Any]] = {name: [] for name in self._names}
        for query in self._queries:
            for term, values in literals(query.expression):
                if (name := table.columns.find(term)) is not None:
                    named.setdefault(name, []).extend(values)
        self._rows = SampledRows(table, named, options.block_rows)
        self._costs = CostModel(table, options.policy)
        self.sampled = len(self._rows)
        self.opened_now = tuple(int(query.opened.sum()) for query in self._queries)

    def _query(self, read: DeclaredRead) -> _Query:
        iceberg, predicate = self._table.iceberg, self._table.predicate(read.text)
        opened = predicate.may_match(iceberg, self._metadata)
        return _Query(expression_json(iceberg, predicate), read.weight, opened)

    def curve(self, items: tuple[int, ...]) -> KeyCandidate:
        """Try a curve over the columns at these positions."""
        return self.candidate(items, self._rows.curve([self._names[item] for item in items]))

    def candidate(self, items: tuple[int, ...], curve: Curve | None = None) -> KeyCandidate:
        """Try the key of the columns at these positions, or a curve over them.

        If nothing would be rewritten, the blocks of then are those of now.
        """
        names = tuple(self._names[item] for item in items)
        queries = self._queries or self._single_values(names[0])
        blocks = len(self._metadata)
        now = opened = tuple(int(query.opened.sum()) for query in queries)
        skipped_now = _skipped(queries, now, blocks)
        cost = self._costs.estimate(items, curve)
        if cost.first_bytes:
            layout = self._rows.sorted_by(names, curve)
            blocks, opened = len(layout), tuple(self._opened(layout, query) for query in queries)
        return KeyCandidate(
            tuple(str(self._table.key.fields[item]) for item in items)
            if curve is None
            else (cost.cluster_key,),
            self._rows.columns[names[0]].distinct,
            blocks,
            skipped_now,
            _skipped(queries, opened, blocks),
            opened if self._queries else (),
            cost.first_bytes,
            cost.bytes_per_day if cost.loads or cost.rewrites else None,
        )

    def _single_values(self, name: str) -> list[_Query]:
        examples = self._rows.columns[name].examples(_SINGLE_VALUES)
        texts = [ranges_predicate(self._table.columns.types, {name: (value, value)}) for value in examples]
        return [
            self._query(DeclaredRead(text, count, is_query=False)) for text, count in Counter(texts).items()
        ]

    def _opened(self, blocks: SortedBlocks, query: _Query) -> int:
        """Return how many blocks of a full sort a query opens.

        It opens none of a partition that it does not open today.
        """
        of_block = self._rows.partition_of_block
        now = np.bincount(of_block[query.opened], minlength=len(blocks.unsampled))
        names = {term: self._table.columns.find(term) or term for term, _ in literals(query.expression)}
        bounds = {term: own for term, name in names.items() if (own := blocks.bounds(name)) is not None}
        matches = may_match(
            query.expression,
            bounds,
            lambda term, value: self._rows.columns[names[term]].place(value),
            len(blocks.partition),
        )
        sampled = int(np.count_nonzero(matches & (now > 0)[blocks.partition]))
        return sampled + int(np.minimum(now, blocks.unsampled).sum())


def _skipped(queries: Sequence[_Query], opened: Sequence[int], blocks: int) -> float:
    """Return the share of blocks that queries skip on average."""
    if not queries or not blocks:
        return 0.0
    mean = np.average(opened, weights=[query.weight for query in queries])
    return round(1 - float(mean) / blocks, 4)
