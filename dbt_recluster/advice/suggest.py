"""Suggest a cluster key: the share of blocks that queries skip today, by bounds, and under each key, by a sample.

The sample is sorted by any key and cut into blocks as a merge of all blocks does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, combinations, islice, pairwise, permutations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbt_recluster.advice.cost_model import CostEstimate, CostModel, with_depth
from dbt_recluster.clustering.options import DeclaredRead, Queries, ReclusterOptions, is_query
from dbt_recluster.clustering.result import Result
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.table_reads import compact
from dbt_recluster.exceptions import ClusterKeyError, PredicateError
from dbt_recluster.iceberg.metadata.block_metadata import codes_of
from dbt_recluster.iceberg.predicates import Predicate, alternatives_of, fold, range_types
from dbt_recluster.iceberg.rewrite.sample import choose_split_points, sample_rows
from dbt_recluster.iceberg.sort_order import bounds_width
from dbt_recluster.key.box_tree import SHARES, Points, cut_into_boxes
from dbt_recluster.key.cluster_key import ClusterKey, KeyField
from dbt_recluster.key.curve import Curve
from dbt_recluster.key.transforms import Transform
from dbt_recluster.key.types import BoolArray, ColumnType, IntArray, Text
from dbt_recluster.planner.policy import LEAST_FULL_BLOCKS
from dbt_recluster.text import count_noun, shortened

LEAST_GAIN = 0.1
# A curve must open this share fewer blocks than a plain key: writers sort by a plain key without us.
_LEAST_CURVE_GAIN = 0.1
_MOST_COLUMNS, _MOST_PAIRED = 12, 4
# Each is a scan that Iceberg plans.
_MOST_QUERIES = 20
SAMPLE_ROWS = 50_000
_JOINED = {"and": np.logical_and, "or": np.logical_or}


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
        is_own: Whether it is the key of the table.
    """

    cluster_by: tuple[str, ...]
    distinct: int
    blocks: int
    skipped_now: float
    skipped_then: float
    opened: tuple[int, ...]
    first_bytes: int
    bytes_per_day: tuple[int, int] | None
    is_own: bool = False

    @property
    def name(self) -> str:
        """The key as one text."""
        return ", ".join(self.cluster_by)

    @property
    def gain(self) -> float:
        """Share of blocks that would be skipped and are not skipped today."""
        return self.skipped_then - self.skipped_now


@dataclass(frozen=True)
class Suggestion(Result):
    """Keys to cluster a table by.

    Attributes:
        table: The table's identifier.
        blocks: Blocks of the table.
        queries: The queries that were tried, by their names or predicates. If there are none, each key was tried with
            queries for single values of its first column.
        opened: Blocks that each of them opens today.
        sampled: Rows of the sample.
        candidates: The keys, best first.
        advice: What to do, in one sentence.
        dissent: Queries that would open much less under another key, a line for each.
        not_tried: Columns that cannot be a key, and their types.
        left_out: Queries that were not tried, a line for each.
        auto: What ``cluster_by: auto`` would do now, in one line.
    """

    table: str
    blocks: int
    queries: tuple[str, ...]
    opened: tuple[int, ...]
    sampled: int
    candidates: tuple[KeyCandidate, ...]
    advice: str
    dissent: tuple[str, ...] = ()
    not_tried: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    auto: str = ""


def suggest_key(table: ClusteredTable, queries: Queries, options: ReclusterOptions) -> Suggestion:
    """Try every column of a table as a key, or those that ``queries`` name, pairs of the best, and the table's own key.

    Pairs are tried in both orders and on a curve. Without ``queries``, a sample of the known reads is tried.

    Raises:
        PredicateError: A query without a name cannot select blocks.
        ClusterKeyError: No column, or none that the queries name, can be a key.
    """
    tried, left_out = _tried_queries(table, queries)
    named = [table.predicate(read.text).columns(table.iceberg) for read in tried.values()]
    columns, not_tried = _key_columns(table, set[str]().union(*named) if tried else None)
    names, keyed = tuple(tried), _own_key(table)
    table = table.under(ClusterKey(tuple(map(KeyField, columns))))
    blocks = len(table.metadata())
    suggestion = Suggestion(table.name, blocks, names, (), 0, (), "", (), not_tried, tuple(left_out))
    is_small = blocks < LEAST_FULL_BLOCKS and table.is_small(options.block_rows)
    if is_small or not table.metadata().rows.sum():
        count = "1 block" if blocks == 1 else f"{blocks} blocks"
        return replace(suggestion, advice=f"Do not cluster it yet: a query opens at most its {count}")
    trial = KeyTrial(table, tuple(tried.values()), with_depth(keyed or table, options), keyed)
    singles = {item: trial.candidate((item,)) for item in range(len(columns))}
    best = sorted(singles, key=lambda item: (-singles[item].gain, item))[: _MOST_PAIRED if tried else 0]
    plain = [*singles.values(), *map(trial.candidate, permutations(best, 2))]
    curves = [trial.candidate(items, on_curve=True) for items in combinations(sorted(best), 2)]
    if keyed is not None:
        tried_anew, of_kind = trial.current_key(), curves if keyed.key.curve else plain
        of_kind[:] = [*(key for key in of_kind if key.name != tried_anew.name), tried_anew]
    candidates = _ranked(plain, curves)
    return replace(
        suggestion,
        opened=trial.opened_now,
        sampled=trial.sampled,
        candidates=candidates,
        advice=_advice(candidates, has_queries=bool(tried)),
        dissent=_dissent(candidates, names, curves),
    )


def _own_key(table: ClusteredTable) -> ClusteredTable | None:
    """Return the table under its own key, or None without a valid one."""
    with suppress(ClusterKeyError):
        if key := table.own_key:
            return table.under(key.check(table.columns))
    return None


def _tried_queries(table: ClusteredTable, queries: Queries) -> tuple[dict[str, DeclaredRead], list[str]]:
    """Return the predicates to try keys for, by the names of their queries, and a line for each query left out.

    A named query that restricts no column is not tried: under any key it opens the same blocks.
    """
    named = queries if isinstance(queries, Mapping) else {}
    if queries and not named:
        counts = Counter(queries)
        return {query: DeclaredRead(_given(table, query), weight=count) for query, count in counts.items()}, []
    tried, left_out = {}, []
    for name, query in named.items():
        try:
            if predicate := _predicate(table, query):
                tried[name] = DeclaredRead(predicate)
        except PredicateError as e:
            left_out.append(f"{name}: {e}")
    if not tried:
        weights: defaultdict[str, float] = defaultdict(float)
        ranges, reads, recorded = table.reads.column_ranges, table.reads.ranges, table.reads.recorded
        for read in compact((replace(read, weight=recorded.daily(read)) for read in reads), _MOST_QUERIES):
            weights[ranges.sql(ranges.of_json(read.columns))] += read.weight
        by_weight = sorted(weights.items(), key=lambda item: -item[1])
        tried = {text: DeclaredRead(text, weight=weight) for text, weight in by_weight}
    if len(tried) > _MOST_QUERIES:
        left_out.append(f"{len(tried) - _MOST_QUERIES} of {len(tried)} queries: {_MOST_QUERIES} are tried")
    return dict(islice(tried.items(), _MOST_QUERIES)), left_out


def _given(table: ClusteredTable, query: str) -> str:
    """Return the predicate of a query without a name, or the predicate itself."""
    predicate = _predicate(table, query) if is_query(query) else query
    if not predicate:
        text = f"{shortened(query)!r} restricts no column of {table.name}"
        raise PredicateError(f"{text}, so no key can help it")
    return predicate


def _predicate(table: ClusteredTable, query: str) -> str:
    """Return the predicate of a query, empty if it restricts no column of the table."""
    ranges = table.reads.column_ranges
    return " or ".join(f"({ranges.sql(alternative)})" for alternative in ranges.of_query(query)[1])


def _ranked(plain: Sequence[KeyCandidate], curves: Sequence[KeyCandidate]) -> tuple[KeyCandidate, ...]:
    """Return keys, best first, and the shorter of about equals; a curve, or a new key, first only if clearly better."""
    best, *others = sorted(plain, key=lambda key: (-round(key.gain, 2), len(key.cluster_by)))
    ranked = sorted([best, *others, *curves], key=lambda key: -round(key.gain, 2))
    opened, plain_opened = ((1 - key.skipped_then) * key.blocks for key in (ranked[0], best))
    if opened > (1 - _LEAST_CURVE_GAIN) * plain_opened:
        ranked.sort(key=lambda key: key is not best)
    least = ranked[0].skipped_then - LEAST_GAIN
    return tuple(sorted(ranked, key=lambda key: not key.is_own or key.skipped_then <= least))


def _advice(candidates: Sequence[KeyCandidate], has_queries: bool) -> str:
    best, current = candidates[0], next((key for key in candidates if key.is_own), None)
    if best.gain < LEAST_GAIN and best.blocks < LEAST_FULL_BLOCKS:
        count = count_noun(best.blocks, "block")
        return f"Do not cluster it yet: it would have {count}, of which a query skips few"
    if best.gain < LEAST_GAIN:
        what = f"Keep {best.name}" if best.is_own else "Do not cluster it"
        return f"{what}: no key skips {LEAST_GAIN:.0%} of the blocks more than today"
    shares = f"{best.skipped_now:.0%} of the blocks skipped now, {best.skipped_then:.0%} then"
    if best.is_own:
        return f"Keep {best.name}, and recluster the table ({shares})"
    if current is not None:
        shares += f", and {current.skipped_then:.0%} by {current.name} once the table is reclustered"
    if not has_queries:
        return f"By {best.name}, if queries filter by it ({shares}); give the predicates of your queries to be sure"
    return f"By {best.name} ({shares})"


def _dissent(
    candidates: Sequence[KeyCandidate], names: Sequence[str], curves: Sequence[KeyCandidate]
) -> tuple[str, ...]:
    """Name the queries that the best key for all serves badly; on a curve, only if they skip less than a half."""
    if candidates[0].gain < LEAST_GAIN:
        return ()
    lines, best = [], candidates[0]
    for place, name in enumerate(names):
        best_of_query = min(candidates, key=lambda key: (key.opened[place], key in curves))
        opened, least = best.opened[place], best_of_query.opened[place]
        if opened > 2 * max(1, least) and not (best in curves and opened <= best.blocks / 2):
            text = f"{shortened(name)} opens {opened:,} blocks by {best.name}"
            lines.append(f"{text}, and {least:,} by {best_of_query.name}")
    return tuple(lines)


def _key_columns(table: ClusteredTable, named: set[str] | None) -> tuple[list[str], tuple[tuple[str, str], ...]]:
    """Return the columns, of those named if any, that can be a key, and those that cannot."""
    columns, not_tried = [], []
    for name in table.columns.names:
        if named is not None and name not in named:
            continue
        try:
            KeyField(name).check(table.columns)
        except ClusterKeyError:
            not_tried.append((name, table.columns.types.get(name, "a name with a dot")))
            continue
        if table.columns.types[name] != "boolean":
            columns.append(name)
    if not columns:
        among = " among those that the queries name" if named else ""
        raise ClusterKeyError(f"{table.name} has no column to cluster by{among}")
    return columns[:_MOST_COLUMNS], tuple(not_tried)


class KeyTrial:
    """A sample of a table, under a key of all columns that may be part of one, on which keys are tried.

    Without ``reads``, each key is tried with queries for single values of its first column. ``own`` is the table under
    its own key.
    """

    def __init__(
        self,
        table: ClusteredTable,
        reads: Sequence[DeclaredRead],
        options: ReclusterOptions,
        keyed: ClusteredTable | None = None,
    ) -> None:
        self._table, self._keyed = table, keyed
        self._metadata = table.metadata()
        predicates = [table.predicate(read.text) for read in reads]
        self._queries = [self._query(where, r.weight) for where, r in zip(predicates, reads, strict=True)]
        read_of = [where.columns(table.iceberg) for where in predicates]
        keys = [*table.key.fields, *(keyed.key.fields if keyed else ())]
        names = dict.fromkeys([*(field.column for field in keys), *chain.from_iterable(read_of)])
        self._rows = SampledRows(table, names, options.block_rows)
        self._policy = options.policy
        self._costs = CostModel(table, options.policy)
        self.sampled = self._rows.count
        self.opened_now = tuple(int(query.opened.sum()) for query in self._queries)

    def _query(self, where: Predicate, weight: float) -> Query:
        expression = where.as_json(self._table.iceberg, self._table.columns)
        return Query(expression, weight, where.may_match(self._table.iceberg, self._metadata))

    def candidate(self, items: tuple[int, ...], *, on_curve: bool = False) -> KeyCandidate:
        """Try the key of the columns at these positions, or a curve over them."""
        fields = tuple(self._table.key.fields[item] for item in items)
        curve = self._rows.curve(fields) if on_curve else None
        key = ClusterKey(fields, curve=len(fields) if on_curve else 0)
        return self._try(key, curve, self._costs.estimate(items, curve))

    def current_key(self) -> KeyCandidate:
        """Try the key of the table."""
        assert self._keyed is not None
        key = self._keyed.key
        curve = self._rows.curve(key.on_curve) if key.curve else None
        return replace(self._try(key, curve, CostModel(self._keyed, self._policy).estimate()), is_own=True)

    def _try(self, key: ClusterKey, curve: Curve | None, cost: CostEstimate) -> KeyCandidate:
        """Compare now with a table sorted by the key; if nothing would be rewritten, its blocks are those of now."""
        first = key.fields[0].column
        queries, blocks = self._queries or self._single_values(first), len(self._metadata)
        opened = [int(query.opened.sum()) for query in queries]
        skipped_now = _skipped(queries, opened, blocks)
        if cost.first_bytes:
            blocks, opened = self._rows.opened(key, curve, queries)
        return KeyCandidate(
            (cost.cluster_key,) if key.curve else tuple(map(str, key.fields)),
            self._rows.columns[first].distinct,
            blocks,
            skipped_now,
            _skipped(queries, opened, blocks),
            tuple(opened) if self._queries else (),
            cost.first_bytes,
            cost.bytes_per_day if cost.loads or cost.rewrites else None,
        )

    def _single_values(self, name: str) -> list[Query]:
        examples = self._rows.columns[name].examples(5)
        ranges = self._table.reads.column_ranges
        texts = Counter(ranges.sql({name: (value, value)}) for value in examples)
        return [self._query(self._table.predicate(text), count) for text, count in texts.items()]


def _skipped(queries: Sequence[Query], opened: Sequence[int], blocks: int) -> float:
    """Return the share of blocks that queries skip on average."""
    if not queries or not blocks:
        return 0.0
    mean = np.average(opened, weights=[query.weight for query in queries])
    return round(1 - float(mean) / blocks, 4)


class Query(NamedTuple):
    """A query of the table."""

    expression: Any  # its predicate in Iceberg's JSON
    weight: float  # how often it runs, relative to the others
    opened: BoolArray  # blocks that it opens today, bool (blocks,)


class SampledRows:
    """A sample of the columns among ``names`` that have bounds, of all rows if there are few."""

    def __init__(self, table: ClusteredTable, names: Iterable[str], block_rows: int) -> None:
        metadata, kinds = table.metadata(), range_types(table.columns.types)
        names = [name for name in names if name in kinds]
        rows = int(metadata.rows.sum())
        sample = sample_rows(table.iceberg, names, rows, SAMPLE_ROWS)
        block = pc.index_in(sample.column("path").combine_chunks(), value_set=metadata.path)
        # Another commit may have come between.
        sample, block = sample.filter(block.is_valid()), block.drop_null()
        # The partition of each block, from 0, and of each row.
        self._partition_of_block: IntArray = np.unique(metadata.partition, return_inverse=True)[1]
        self._partition = self._partition_of_block[np.asarray(block.to_numpy(zero_copy_only=False), np.int64)]
        self.count = len(self._partition)
        # Live rows of each partition, and the most in one of its blocks.
        self._rows = self._total(metadata.rows)
        full = self._rows * float(table.block_bytes) // np.maximum(self._total(metadata.bytes), 1)
        self._limit = np.maximum(1, np.minimum(block_rows, full)).astype(np.int64)
        if metadata.deleted_rows is not None:
            self._rows -= self._total(metadata.deleted_rows)
        self._width = cache(partial(bounds_width, table.iceberg))
        is_whole = rows <= SAMPLE_ROWS
        self.columns = {
            name: _SampledColumn(sample.column(f"column_{number}").combine_chunks(), kinds[name], is_whole)
            for number, name in enumerate(names)
        }

    def _total(self, values: IntArray) -> IntArray:
        """Return the sum of values of blocks in each partition."""
        return np.bincount(self._partition_of_block, values).astype(np.int64)

    def curve(self, fields: Sequence[KeyField]) -> Curve:
        """Return the curve over some key items, by the values of their bounds."""
        return Curve.from_columns(self._bound_values(fields))

    def _bound_values(self, fields: Sequence[KeyField]) -> list[pa.Array]:
        """Return the values of key items as bounds have them, (rows,) each."""
        return [field.transform.values(self.columns[field.column].values) for field in fields]

    def opened(self, key: ClusterKey, curve: Curve | None, queries: Sequence[Query]) -> tuple[int, list[int]]:
        """Return how many blocks a full sort by a key has, and how many each query opens, in partitions of today."""
        block, partition = self._sorted(key, curve)
        names = [field.column for field in key.fields]
        is_sampled = np.bincount(partition, minlength=len(self._rows)) > 0
        unsampled = np.where(is_sampled, 0, -(-self._rows // self._limit))

        @cache
        def bounds(name: str) -> _Bounds | None:
            width = self._width(name, in_key=name in names) if name in self.columns else 0
            return None if width == 0 else self.columns[name].bounds(block, len(partition), width)

        def may_hold(node: Any) -> BoolArray:
            name = None if isinstance(node, bool) else node.get("term")
            if not isinstance(name, str) or (column_bounds := bounds(name)) is None:  # excludes no block
                return np.full(len(partition), node is not False)
            return column_bounds.may_hold(node, self.columns[name].kind)

        opened = []
        for query in queries:
            matches = fold(query.expression, may_hold, lambda word, *ends: _JOINED[word](*ends))
            now = np.bincount(self._partition_of_block[query.opened], minlength=len(self._rows))
            sampled = np.count_nonzero(matches & (now > 0)[partition])
            opened.append(int(sampled + np.minimum(now, unsampled).sum()))
        return len(partition) + int(unsampled.sum()), opened

    def _sorted(self, key: ClusterKey, curve: Curve | None) -> tuple[IntArray, IntArray]:
        """Return the block of each row, sorted by partition and key, and the partition of each block."""
        if curve is not None and not key.leading:
            return self._in_boxes(key, curve)
        ranks = [self.columns[field.column].ranks(field.transform) for field in key.fields]
        if curve is not None:
            ranks.insert(len(key.leading), curve.index(self._bound_values(key.on_curve)))
        order = np.lexsort([*ranks[::-1], self._partition])
        partition = self._partition[order]
        starts = np.diff(partition, prepend=-1) != 0
        changes = [np.diff(rank[order], prepend=0) != 0 for rank in ranks]
        is_new = np.logical_or.reduce([starts, *changes])
        for begin, end in pairwise([*np.flatnonzero(starts), len(order)]):
            distinct = np.flatnonzero(is_new[begin:end])
            starts[begin + self._starts(int(partition[begin]), distinct, end - begin)] = True
        block = np.empty(len(order), np.int64)
        block[order] = np.cumsum(starts) - 1
        return block, partition[starts]

    def _in_boxes(self, key: ClusterKey, curve: Curve) -> tuple[IntArray, IntArray]:
        """Return the same of rows that are merged along a curve."""
        points, columns = Points.from_columns(curve, self._bound_values(key.on_curve), 1), len(key.on_curve)
        block, partitions = np.empty(len(points.rows), np.int64), list[int]()
        for partition in np.unique(self._partition).tolist():
            place = np.flatnonzero(self._partition == partition)
            rows, limit = float(self._rows[partition]), float(self._limit[partition])
            of_block = columns * max(1.0, rows / limit) ** (-1 / columns)
            sample = points.take(place).standing_for(rows)
            tree = cut_into_boxes(sample, limit, curve.parts, of_block)
            share = np.arange(len(place)) * SHARES // len(place)
            used, box = np.unique(tree.box_of(sample.rank, share), return_inverse=True)
            block[place] = len(partitions) + box
            partitions += [partition] * len(used)
        return block, np.array(partitions, np.int64)

    def _starts(self, partition: int, distinct: IntArray, sampled: int) -> IntArray:
        """Return where the later blocks of a partition begin, given the first sorted, sampled row of each key."""
        rows, limit = int(self._rows[partition]), int(self._limit[partition])
        if rows <= limit:
            return distinct[:0]
        counts = np.diff(np.append(distinct, sampled))
        points = choose_split_points(counts, rows, limit)
        before = [distinct[point.value] + round(point.share * counts[point.value]) for point in points]
        return np.minimum(np.array(before, np.int64), sampled - 1)


class _SampledColumn:
    """The values of a column in sampled rows, which may be all; ``distinct`` counts NULL and NaN too.

    ``order`` is the rank of each row's value, int64 (rows,); NULL is before all values, NaN after them.
    """

    def __init__(self, values: pa.Array, kind: ColumnType, is_whole: bool) -> None:
        self.values, self.kind, self._is_whole = values.cast(kind.arrow), kind, is_whole
        plain, is_nan = self.values, np.zeros(len(values), np.bool_)
        if kind.has_nan:
            is_nan = _mask(pc.is_nan(plain))
            plain = pc.if_else(pa.array(is_nan), pa.scalar(None, kind.arrow), plain)
            plain = pc.add(plain, pa.scalar(0, kind.arrow))  # 0.0 for -0.0
        self._known = plain.unique().drop_null().sort()
        self.order: IntArray = np.array(pc.index_in(plain, value_set=self._known).fill_null(-1), np.int64)
        self.order[is_nan] = len(self._known)
        self.distinct = len(np.unique(self.order))

    def ranks(self, transform: Transform) -> IntArray:
        """Return the rank of each row's value under a transform, int64 (rows,); NULL and NaN as in ``order``."""
        of_value = codes_of(transform.values(self._known))  # ascending, as the values are
        return np.append(of_value, [len(of_value), -1])[self.order]

    @property
    def _valued(self) -> BoolArray:
        """The rows with a value that is neither NULL nor NaN."""
        return (self.order >= 0) & (self.order < len(self._known))

    def examples(self, count: int) -> list[Any]:
        """Return values at even steps among the sorted rows that have one; fewer if there are fewer rows."""
        ranks = np.sort(self.order[self._valued])
        count = min(count, len(ranks))
        examples = []
        for place in ((np.arange(count) + 0.5) * len(ranks) / max(1, count)).astype(np.int64):
            with suppress(ValueError, OverflowError):  # a date beyond Python's
                examples.append(self._known[int(ranks[place])].as_py())
        return examples

    def bounds(self, block: IntArray, blocks: int, width: int | None) -> _Bounds:
        """Return the bounds that n ``blocks`` would record, cut off at a width in characters or bytes unless None.

        ``block`` is the block of each row, int64 (rows,).
        """
        valued = self._valued
        rows = np.bincount(block[valued], minlength=blocks)
        first, last = np.full(blocks, len(self._known)), np.full(blocks, -1)
        np.minimum.at(first, block[valued], self.order[valued])
        np.maximum.at(last, block[valued], self.order[valued])
        if not self._is_whole:
            # The expected number of values beyond the ends of a sample, if they are evenly distributed.
            beyond = np.rint((last - first + 1) / np.maximum(rows, 1)).astype(np.int64)
            first, last = np.maximum(first - beyond, 0), np.minimum(last + beyond, len(self._known) - 1)
        places = (pa.array(np.where(rows > 0, ends, 0), mask=rows == 0) for ends in (first, last))
        lower, upper = map(self._known.take, places)
        if width is not None and isinstance(self.kind, Text):
            lower, short = (self.kind.truncated(ends, width) for ends in (lower, upper))
            # Iceberg counts the last character up instead.
            longer = pc.binary_join_element_wise(short, self.kind.after, self.kind.after[:0])
            upper = pc.if_else(pc.greater(self.kind.width_of(upper), width), longer, upper)
        null, nan = self.order < 0, self.order >= len(self._known)
        nulls, nans = (np.bincount(block[rows], minlength=blocks) > 0 for rows in (null, nan))
        return _Bounds(lower, upper, nulls, nans)


class _Bounds(NamedTuple):
    """The metrics of a column in n blocks."""

    lower: pa.Array  # (n,), null for a block without a value that is neither NULL nor NaN
    upper: pa.Array
    nulls: BoolArray  # blocks with a NULL, bool (n,)
    nans: BoolArray  # blocks with a NaN, bool (n,)

    def may_hold(self, node: Mapping[str, Any], kind: ColumnType) -> BoolArray:
        """Return which blocks Iceberg opens for a comparison in its JSON: bool (n,)."""
        comparison, valued = node["type"], _mask(self.lower.is_valid())
        without_value = {"is-null": self.nulls, "not-null": valued | self.nans}
        without_value |= {"is-nan": self.nans, "not-nan": valued | self.nulls}
        if comparison in without_value:
            return without_value[comparison]
        column, lower, upper = node["term"], self.lower, self.upper
        if is_outside := comparison == "not-starts-with":
            node, lower, upper = {**node, "type": "starts-with"}, upper, lower
        # A range of a stepped type ends at the next value.
        is_open = comparison in ("gt", "lt") and kind.step is None
        below, above = (pc.less, pc.greater) if is_open else (pc.less_equal, pc.greater_equal)
        opened = np.zeros(len(valued), np.bool_)
        for ranges in alternatives_of(node, {column: kind}):
            if column not in ranges:  # the comparison is no range
                return np.ones(len(valued), np.bool_)
            low, high = ranges[column]
            meets = np.ones(len(valued), np.bool_)
            if low is not None:
                meets &= _mask(above(upper, pa.scalar(low, kind.arrow)))
            if high is not None:
                meets &= _mask(below(lower, pa.scalar(high, kind.arrow)))
            opened |= meets
        return self.nulls | ~opened if is_outside else opened


def _mask(values: pa.Array) -> BoolArray:
    """Return an Arrow array of booleans as a mask; null is false."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)
