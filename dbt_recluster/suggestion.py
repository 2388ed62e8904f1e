"""Which key to cluster by: what share of a table's blocks queries would skip, by a sample of its rows.

Nothing is changed. The shares of today come from the blocks' bounds; those of a key from a sorted sample, cut into
as many parts as the table would have blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.cost import estimate, recent_history
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg.blocks import BlockMetadata, read_blocks
from dbt_recluster.iceberg.predicates import may_match, predicate_columns
from dbt_recluster.iceberg.rows import matching_rows, sample_rows
from dbt_recluster.iceberg.table import IcebergTable
from dbt_recluster.options import planning_policy
from dbt_recluster.planner import Blocks
from dbt_recluster.planner.depth import Sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = 50_000
MATCHES = 10_000
FEW_BLOCKS = 8
LEAST_GAIN = 0.1
_MOST_COLUMNS = 12
_PAIRED = 4

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Candidate:
    """A key, and what it would do for queries.

    Attributes:
        cluster_by: Its columns.
        distinct: Distinct values of its first column in the sample.
        skipped_now: The share of blocks that the queries skip today, 0 to 1, on average over the queries.
        skipped_then: The share they would skip under this key.
        first_bytes: Bytes that the first clustering by it would read, as in ``estimate_clustering_cost``.
        bytes_per_day: Bytes a day that keeping it would read after loads like those of the past seven days, least
            and most, likewise; None where the snapshots hold no load.
    """

    cluster_by: tuple[str, ...]
    distinct: int
    skipped_now: float
    skipped_then: float
    first_bytes: int
    bytes_per_day: tuple[int, int] | None

    @property
    def gain(self) -> float:
        """The share of blocks skipped then and not now."""
        return self.skipped_then - self.skipped_now


@dataclass(frozen=True)
class Suggestion:
    """What to cluster a table by.

    Attributes:
        table: The table's identifier.
        blocks: Blocks of the table.
        queries: The predicates that were tried; empty where each key was tried with its own first column set equal
            to the values of the sample.
        sampled: Rows of the sample.
        candidates: The keys tried, best first.
        advice: What to do, in one sentence.
    """

    table: str
    blocks: int
    queries: tuple[str, ...]
    sampled: int
    candidates: tuple[Candidate, ...]
    advice: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {**asdict(self), "candidates": [asdict(each) for each in self.candidates]}


def suggest_cluster_by(
    spark: SparkSession,
    table: str,
    queries: Sequence[str] = (),
    *,
    depth: float | None = None,
    strategy: str | None = None,
    block_rows: int = 1_000_000,
) -> Suggestion:
    """Try keys on a table: every column, and pairs of the best; with ``queries`` only columns that they name.

    Args:
        spark: A session with Iceberg's extensions.
        table: ``schema.table`` or ``catalog.schema.table``.
        queries: Predicates as queries of this table have them.
        depth: The threshold that the costs are of, as in :func:`dbt_recluster.maintenance.recluster`.
        strategy: Likewise.
        block_rows: The most rows in a block of the clustered table.

    Raises:
        NotAnIcebergTableError, OptionError, PredicateError: Bad input.
        ClusterKeyError: No column, or none that the queries name, can be a key.
    """
    policy = planning_policy(depth, strategy, None, block_rows)
    target = IcebergTable.load(spark, table)
    named = [predicate_columns(target, each) for each in queries]
    columns = _columns(target, set[str]().union(*named) if queries else None)
    metadata = read_blocks(target, ClusterKey(tuple(KeyField(name) for name in columns)))
    rows = int(metadata.rows.sum())
    if not rows or len(metadata) < FEW_BLOCKS:
        few = f"Do not cluster it yet: a query opens at most its {len(metadata)} blocks"
        return Suggestion(table, len(metadata), tuple(queries), 0, (), few)
    sample = sample_rows(target, columns, rows, SAMPLE)
    matches = [matching_rows(target, columns, each, MATCHES) for each in queries]
    codes = [_codes(sample, matches, f"column_{i}") for i in range(len(columns))]
    parts = max(2, min(-(-rows // block_rows), len(sample)), min(len(metadata), len(sample) // 20))
    wanted = [
        {i: np.unique(codes[i][number + 1]) for i, name in enumerate(columns) if name in names}
        for number, names in enumerate(named)
    ]
    skipped = [1 - may_match(target, metadata, each).mean() for each in queries]
    past = recent_history(spark, target)

    def candidate(key: tuple[int, ...]) -> Candidate:
        cut = _cut([codes[i][0] for i in key], parts)
        if queries:
            ranges = [_ranges(cut, column[0], parts) for column in codes]
            then = float(np.mean([_skipped_by_query(ranges, each, parts) for each in wanted]))
            before = float(np.mean(skipped))
        else:
            ranges = [_ranges(cut, codes[key[0]][0], parts)]
            then, before = _skipped_by_value(*ranges[0], codes[key[0]][0]), _skipped_now(metadata, key[0])
        distinct = len(np.unique(codes[key[0]][0]))
        names = tuple(columns[i] for i in key)
        cost = estimate(target, ClusterKey(tuple(map(KeyField, names))), policy, past)
        return Candidate(
            names,
            distinct,
            round(before, 4),
            round(then, 4),
            cost.first_bytes,
            cost.bytes_per_day if cost.loads else None,
        )

    singles = {i: candidate((i,)) for i in range(len(columns))}
    best = sorted(singles, key=lambda i: (-singles[i].gain, i))[:_PAIRED]
    pairs = [candidate(key) for key in permutations(best, 2)] if queries else []
    found = sorted([*singles.values(), *pairs], key=lambda each: (-each.gain, len(each.cluster_by)))
    return Suggestion(
        table, len(metadata), tuple(queries), len(sample), tuple(found), _advice(found[0], queries)
    )


def _advice(best: Candidate, queries: Sequence[str]) -> str:
    if best.gain < LEAST_GAIN:
        return f"Do not cluster it: no key skips {LEAST_GAIN:.0%} of the blocks more than today"
    key = ", ".join(best.cluster_by)
    shares = f"{best.skipped_now:.0%} of the blocks skipped now, {best.skipped_then:.0%} then"
    if not queries:
        return f"By {key}, if queries filter by it ({shares}); give the predicates of your queries to be sure"
    return f"By {key} ({shares})"


def _columns(table: IcebergTable, named: set[str] | None) -> list[str]:
    """Return the columns that can be a key, among those that queries name if there are any."""
    fit = []
    known = table.columns()
    for name in known.names:
        if named is not None and name not in named:
            continue
        try:
            KeyField(name).check(known)
        except ClusterKeyError:
            continue
        if known.types[name] != "boolean":
            fit.append(name)
    if not fit:
        raise ClusterKeyError(
            f"{table.name} has no column to cluster by"
            + (" among those that the queries name" if named else "")
        )
    return fit[:_MOST_COLUMNS]


def _codes(sample: pa.Table, matches: Sequence[pa.Table], name: str) -> list[Codes]:
    """Number the values of a column in their order, NULL first: those of the sample, then of each query's rows."""
    tables = [sample, *matches]
    values = pa.concat_arrays([chunk for each in tables for chunk in each.column(name).chunks])
    encoded = values.dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(1, len(rank) + 1)
    places = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    codes = np.where(places < 0, 0, rank[places] if len(rank) else 0)
    return np.split(codes, np.cumsum([len(each) for each in tables])[:-1])


def _cut(columns: Sequence[Codes], parts: int) -> Codes:
    """Return the part that each sampled row falls into when all are sorted by these columns and cut evenly."""
    order = np.lexsort(columns[::-1])
    part = np.empty(len(order), np.int64)
    part[order] = np.arange(len(order)) * parts // len(order)
    return part


def _ranges(part: Codes, codes: Codes, parts: int) -> tuple[Codes, Codes]:
    """Return the least and the greatest value of each part."""
    lower, upper = np.full(parts, np.iinfo(np.int64).max), np.full(parts, -1)
    np.minimum.at(lower, part, codes)
    np.maximum.at(upper, part, codes)
    return lower, upper


def _skipped_by_query(
    ranges: Sequence[tuple[Codes, Codes]], wanted: Mapping[int, Codes], parts: int
) -> float:
    """Return the share of parts that bounds exclude: some column has no value there that the query's rows have."""
    opened = np.ones(parts, np.bool_)
    for column, values in wanted.items():
        lower, upper = ranges[column]
        opened &= np.searchsorted(values, lower) < np.searchsorted(values, upper, side="right")
    return 1 - float(opened.mean())


def _skipped_by_value(lower: Codes, upper: Codes, codes: Codes) -> float:
    """Return the share of parts whose range does not hold a value, on average over the sampled values."""
    depth = Sweep.over(lower, upper, int(codes.max()) + 1).point_depth()
    return 1 - float(depth[codes].mean()) / len(lower)


def _skipped_now(metadata: BlockMetadata, column: int) -> float:
    """Return the share of blocks that do not cover a key, on average over the blocks' own bounds."""
    blocks = Blocks.build(
        lower=metadata.lower[column], upper=metadata.upper[column], unbounded=metadata.unbounded[column]
    )
    depth = Sweep.over(blocks.lower, blocks.upper, blocks.points).point_depth()
    return 1 - float(depth.mean()) / len(blocks)
