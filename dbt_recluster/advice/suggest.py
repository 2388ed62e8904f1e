"""Suggest a cluster key: the share of blocks that queries skip today, by bounds, and under each key, by a sample."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice, permutations

import numpy as np

from dbt_recluster.advice.cost_model import CostEstimate, CostModel
from dbt_recluster.advice.replay import recorded_depth
from dbt_recluster.advice.sampled_rows import Query, SampledRows
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.result import Result
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.clustering.values import AUTO, DeclaredRead, Queries, is_query, parse_queries
from dbt_recluster.exceptions import ClusterKeyError, PredicateError
from dbt_recluster.iceberg.predicates import Predicate
from dbt_recluster.iceberg.sort_order import table_cluster_key
from dbt_recluster.key.cluster_key import ClusterKey, KeyField
from dbt_recluster.key.curve import Curve
from dbt_recluster.text import count_noun, shortened

LEAST_BLOCKS = 8
LEAST_GAIN = 0.1
# A curve must open this share fewer blocks than a plain key: writers sort by a plain key without us.
_LEAST_CURVE_GAIN = 0.1
_MOST_COLUMNS, _MOST_PAIRED = 12, 4
# Each is a scan that Iceberg plans.
_MOST_QUERIES = 20


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


def suggest_key(table: ClusteredTable, queries: Queries, options: ReclusterOptions) -> Suggestion:
    """Try every column of a table as a key, or those that ``queries`` name, pairs of the best, and the table's own key.

    Pairs are tried in both orders and on a curve. Without ``queries``, the most frequent reads are tried.

    Raises:
        PredicateError: A query without a name cannot select blocks.
        OptionError: The queries are no texts.
        ClusterKeyError: No column, or none that the queries name, can be a key.
    """
    recorded = recorded_depth(table)
    if options.depth == AUTO and recorded is not None:
        options = replace(options, depth=recorded.depth)
    tried, left_out = _tried_queries(table, queries)
    named = [table.predicate(read.text).columns(table.iceberg) for read in tried.values()]
    columns, not_tried = _key_columns(table, set[str]().union(*named) if tried else None)
    names, own = tuple(tried), _own_key(table)
    table = table.under(ClusterKey(tuple(map(KeyField, columns))))
    blocks = len(table.metadata())
    suggestion = Suggestion(table.name, blocks, names, (), 0, (), "", (), not_tried, tuple(left_out))
    if blocks < LEAST_BLOCKS or not table.metadata().rows.sum():
        count = "1 block" if blocks == 1 else f"{blocks} blocks"
        return replace(suggestion, advice=f"Do not cluster it yet: a query opens at most its {count}")
    trial = KeyTrial(table, tuple(tried.values()), options, own)
    singles = {item: trial.candidate((item,)) for item in range(len(columns))}
    best = sorted(singles, key=lambda item: (-singles[item].gain, item))[:_MOST_PAIRED]
    pairs = [trial.candidate(items) for items in permutations(best, 2)] if tried else []
    on_curves = combinations(sorted(best), 2) if tried else ()
    curves = [trial.candidate(items, on_curve=True) for items in on_curves]
    plain = [*singles.values(), *pairs]
    if own is not None:
        tried_anew, of_kind = trial.own(), curves if own.key.curve else plain
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
        if key := table_cluster_key(table.iceberg):
            return table.under(key.check(table.columns))
    return None


def _tried_queries(table: ClusteredTable, queries: Queries) -> tuple[dict[str, DeclaredRead], list[str]]:
    """Return the predicates to try keys for, by the names of their queries, and a line for each query left out.

    A named query that restricts no column is not tried: under any key it opens the same blocks.
    """
    queries = parse_queries("queries", queries)
    named = queries if isinstance(queries, Mapping) else {}
    if queries and not named:
        counts = Counter(queries)
        return {query: DeclaredRead(_given(table, query), count) for query, count in counts.items()}, []
    tried, left_out = {}, []
    for name, query in named.items():
        try:
            if predicate := _predicate(table, query):
                tried[name] = DeclaredRead(predicate)
        except PredicateError as e:
            left_out.append(f"{name}: {e}")
    if not tried:
        weights: defaultdict[str, float] = defaultdict(float)
        ranges = table.reads.column_ranges
        for read in table.reads.ranges:
            weights[ranges.sql(ranges.of_json(read.columns))] += read.weight
        by_weight = sorted(weights.items(), key=lambda item: -item[1])
        tried = {text: DeclaredRead(text, weight) for text, weight in by_weight}
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
    best, own = candidates[0], next((key for key in candidates if key.is_own), None)
    if best.gain < LEAST_GAIN and best.blocks < LEAST_BLOCKS:
        count = count_noun(best.blocks, "block")
        return f"Do not cluster it yet: its rows make {count} of block_rows rows, of which a query skips few"
    if best.gain < LEAST_GAIN:
        what = f"Keep {best.name}" if best.is_own else "Do not cluster it"
        return f"{what}: no key skips {LEAST_GAIN:.0%} of the blocks more than today"
    shares = f"{best.skipped_now:.0%} of the blocks skipped now, {best.skipped_then:.0%} then"
    if best.is_own:
        return f"Keep {best.name}, and recluster the table ({shares})"
    if own is not None:
        shares += f", and {own.skipped_then:.0%} by {own.name} once the table is reclustered"
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
        own = min(candidates, key=lambda key: (key.opened[place], key in curves))
        opened, least = best.opened[place], own.opened[place]
        if opened > 2 * max(1, least) and not (best in curves and opened <= best.blocks / 2):
            text = f"{shortened(name)} opens {opened:,} blocks by {best.name}"
            lines.append(f"{text}, and {least:,} by {own.name}")
    return tuple(lines)


def _key_columns(
    table: ClusteredTable, named: set[str] | None
) -> tuple[list[str], tuple[tuple[str, str], ...]]:
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
        own: ClusteredTable | None = None,
    ) -> None:
        self._table, self._own = table, own
        self._metadata = table.metadata()
        predicates = [table.predicate(read.text) for read in reads]
        self._queries = [self._query(where, r.weight) for where, r in zip(predicates, reads, strict=True)]
        read_of = [where.columns(table.iceberg) for where in predicates]
        keys = [*table.key.fields, *(own.key.fields if own else ())]
        names = dict.fromkeys([*(field.column for field in keys), *chain.from_iterable(read_of)])
        self._rows = SampledRows(table, names, options.block_rows)
        self._policy = options.policy
        self._costs = CostModel(table, options.policy)
        self.sampled = len(self._rows)
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

    def own(self) -> KeyCandidate:
        """Try the key of the table."""
        assert self._own is not None
        key = self._own.key
        curve = self._rows.curve(key.on_curve) if key.curve else None
        return replace(self._try(key, curve, CostModel(self._own, self._policy).estimate()), is_own=True)

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
