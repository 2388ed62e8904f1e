"""A sample of a table's rows, on which cluster keys are tried."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.clustering.cost_model import CostModel
from dbt_recluster.clustering.demands import Demand
from dbt_recluster.clustering.keyed_table import KeyedTable
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.iceberg.block_metadata import BlockMetadata
from dbt_recluster.iceberg.rows import matching_rows, sample_rows
from dbt_recluster.planner import Blocks
from dbt_recluster.planner.depth import Sweep

SAMPLE_ROWS = 50_000
MATCHING_ROWS = 10_000

# Values as their rank among the distinct values of a column, NULL 0.
Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyCandidate:
    """A key and its effect on queries.

    Attributes:
        cluster_by: Its columns.
        distinct: Distinct values of its first column in the sample.
        skipped_now: Share of blocks that the queries skip today, 0 to 1, averaged over the queries.
        skipped_then: Share of blocks that they would skip under this key.
        opened: Blocks that each query would open under this key.
        first_bytes: Bytes that the first clustering by it would read, as in ``estimate_clustering_cost``.
        bytes_per_day: Bytes that keeping it would read per day, least and most, likewise; None if the snapshots hold no
            load of the past seven days.
    """

    cluster_by: tuple[str, ...]
    distinct: int
    skipped_now: float
    skipped_then: float
    opened: tuple[int, ...]
    first_bytes: int
    bytes_per_day: tuple[int, int] | None

    @property
    def gain(self) -> float:
        """Share of blocks that would be skipped and are not skipped today."""
        return self.skipped_then - self.skipped_now


class KeyTrial:
    """A sample of a table, on which keys are tried.

    Args:
        table: The table under the key of all columns that may be part of a key.
        demands: Queries.
        named: The columns that each of them names.
        options: For the cost.

    Attributes:
        sampled: Rows of the sample.
        opened_now: Blocks that each query opens today.
    """

    def __init__(
        self,
        table: KeyedTable,
        demands: Sequence[Demand],
        named: Sequence[set[str]],
        options: ReclusterOptions,
    ) -> None:
        self._columns = [field.column for field in table.key.fields]
        self._metadata = table.metadata()
        self._weights = [demand.weight for demand in demands]
        rows = int(self._metadata.rows.sum())
        sample = sample_rows(table.iceberg, self._columns, rows, SAMPLE_ROWS)
        matches = [
            matching_rows(table.iceberg, self._columns, demand.predicate, MATCHING_ROWS) for demand in demands
        ]
        ranks = [_ranks(sample, matches, f"column_{item}") for item in range(len(self._columns))]
        self.sampled = len(sample)
        self._sample = [column[0] for column in ranks]
        # Per query, the values that its rows have in the columns that it names.
        self._values = [
            {
                item: np.unique(ranks[item][number + 1])
                for item, name in enumerate(self._columns)
                if name in names
            }
            for number, names in enumerate(named)
        ]
        blocks = min(-(-rows // options.block_rows), self.sampled)
        self._parts = max(2, blocks, min(len(self._metadata), self.sampled // 20))
        predicates = [table.predicate(demand.predicate) for demand in demands]
        self.opened_now = tuple(int(p.may_match(table.iceberg, self._metadata).sum()) for p in predicates)
        opened = float(np.average(self.opened_now, weights=self._weights)) if demands else 0.0
        self._skipped_now = 1 - opened / len(self._metadata)
        self._costs = CostModel(table, options.policy)

    def candidate(self, items: tuple[int, ...]) -> KeyCandidate:
        """Try the key of the columns at these positions."""
        parts = _parts([self._sample[item] for item in items], self._parts)
        opened: list[float] = []
        if self._weights:
            ranges = [_ranges(parts, column, self._parts) for column in self._sample]
            opened = [_opened_by_query(ranges, values, self._parts) for values in self._values]
            then = 1 - float(np.average(opened, weights=self._weights))
            now = self._skipped_now
        else:
            first = self._sample[items[0]]
            then = _skipped_by_value(*_ranges(parts, first, self._parts), first)
            now = _skipped_by_bounds(self._metadata, items[0])
        cost = self._costs.estimate(items)
        return KeyCandidate(
            tuple(self._columns[item] for item in items),
            len(np.unique(self._sample[items[0]])),
            round(now, 4),
            round(then, 4),
            self._blocks(opened),
            cost.first_bytes,
            cost.bytes_per_day if cost.loads else None,
        )

    def _blocks(self, shares: Sequence[float]) -> tuple[int, ...]:
        return tuple(math.ceil(len(self._metadata) * share - 1e-9) for share in shares)


def _ranks(sample: pa.Table, matches: Sequence[pa.Table], name: str) -> list[Ranks]:
    """Rank the values of a column, NULL first: those of the sample, then those of each query's rows."""
    tables = [sample, *matches]
    values = pa.concat_arrays([chunk for table in tables for chunk in table.column(name).chunks])
    encoded = values.dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(1, len(rank) + 1)
    places = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    ranks = np.where(places < 0, 0, rank[places] if len(rank) else 0)
    return np.split(ranks, np.cumsum([len(table) for table in tables])[:-1])


def _parts(columns: Sequence[Ranks], parts: int) -> Ranks:
    """Sort the sampled rows by these columns, split them evenly, and return each row's part."""
    order = np.lexsort(columns[::-1])
    part = np.empty(len(order), np.int64)
    part[order] = np.arange(len(order)) * parts // len(order)
    return part


def _ranges(part: Ranks, ranks: Ranks, parts: int) -> tuple[Ranks, Ranks]:
    """Return the least and the greatest value of each part."""
    lower, upper = np.full(parts, np.iinfo(np.int64).max), np.full(parts, -1)
    np.minimum.at(lower, part, ranks)
    np.maximum.at(upper, part, ranks)
    return lower, upper


def _opened_by_query(ranges: Sequence[tuple[Ranks, Ranks]], values: Mapping[int, Ranks], parts: int) -> float:
    """Return the share of parts whose bounds admit the query: in every column they hold one of its values."""
    opened = np.ones(parts, np.bool_)
    for item, wanted in values.items():
        lower, upper = ranges[item]
        opened &= np.searchsorted(wanted, lower) < np.searchsorted(wanted, upper, side="right")
    return float(opened.mean())


def _skipped_by_value(lower: Ranks, upper: Ranks, ranks: Ranks) -> float:
    """Return the share of parts whose range does not hold a value, averaged over the sampled values."""
    depth = Sweep.over(lower, upper, int(ranks.max()) + 1).point_depth()
    return 1 - float(depth[ranks].mean()) / len(lower)


def _skipped_by_bounds(metadata: BlockMetadata, item: int) -> float:
    """Return the share of blocks that do not cover a key, averaged over the blocks' own bounds."""
    blocks = Blocks.build(
        lower=metadata.lower[item], upper=metadata.upper[item], unbounded=metadata.unbounded[item]
    )
    depth = Sweep.over(blocks.lower, blocks.upper, blocks.points).point_depth()
    return 1 - float(depth.mean()) / len(blocks)
