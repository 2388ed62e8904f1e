"""suggest_cluster_by against the truth: the same rows really sorted, and Iceberg's own planning of each query."""

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tables import create_table

from dbt_recluster.advice import suggest
from dbt_recluster.advice.suggest import KeyTrial
from dbt_recluster.api import ClusteredTable, blocks_opened, recluster, suggest_cluster_by
from dbt_recluster.clustering.options import DeclaredRead, ReclusterOptions
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.rewrite.sample import sample_rows
from dbt_recluster.key.cluster_key import parse_cluster_key

pytestmark = pytest.mark.thorough

ROWS, BLOCK_ROWS = 6_000, 400
URL = "https://www.example.com/"
QUERIES = [
    # A single value, and one that lies between others, or beyond them.
    "k = 77",
    "k = -5",
    "shop = 3",
    f"url = '{URL}page/000777'",
    f"url = '{URL}page/000777x'",
    "url = 'a'",
    "id = 1234",
    "id = 123456",
    # Ranges.
    "k > 2900 or k < 20",
    "k > 300 and k < 100",
    "k >= 100 and shop = 7",
    "id < 500 and p = 1",
    "d >= date'2026-01-03' and k < 500",
    "ts < timestamp'2026-01-01 06:00:00'",
    f"url like '{URL}page/0001%'",
    "word not like 'w%'",
    "x > 55.5",
    "f > 2000",
    # Lists, and what bounds say nothing of.
    "k in (5, 1500, 2995)",
    "p <> 1",
    "word is null",
    "word is not null and f is not null",
    "f = double('nan')",
    "flag",
    "s.n = 12",
]
COLUMNS = (
    "id bigint, k int, shop int, url string, word string, x decimal(10, 2), f double, d date, ts timestamp, p int, "
    "flag boolean, s struct<n: int>"
)
VALUES = (
    "id, 2 * pmod(hash(id), 1500) as k, pmod(hash(id, 7), 40) as shop, "
    f"concat('{URL}page/', lpad(cast(pmod(hash(id, 3), 1500) as string), 6, '0')) as url, "
    "if(id % 17 = 0, null, concat('w', lpad(cast(pmod(hash(id, 5), 1500) as string), 5, '0'))) as word, "
    "cast(pmod(hash(id, 9), 10000) / 100 as decimal(10, 2)) as x, "
    "case when id % 500 = 0 then double('nan') when id % 19 = 0 then null else pmod(hash(id, 2), 3000) end as f, "
    "date_add(date'2026-01-01', cast(id div 1500 as int)) as d, timestamp_seconds(1767225600 + id * 60) as ts, "
    "cast(id % 3 as int) as p, id % 2 = 0 as flag, named_struct('n', cast(id % 100 as int)) as s"
)


def empty(spark: Any, name: str, partitioned: str = "", **more: str) -> str:
    return create_table(spark, name, COLUMNS, {"write.spark.fanout.enabled": "true", **more}, partitioned)


def make(spark: Any, schema: str, partitioned: str = "", loads: int = 3) -> str:
    """A table in which every block of a partition overlaps with all others in every column but `id`, `d` and `ts`."""
    table = empty(spark, f"{schema}.t", partitioned)
    for load in range(loads):
        first, last = load * ROWS // loads, (load + 1) * ROWS // loads
        spark.sql(f"insert into {table} select /*+ repartition(5) */ {VALUES} from range({first}, {last})")
    return table


def opened_by(spark: Any, name: str, queries: Sequence[str]) -> list[int]:
    table = ClusteredTable(spark, name)
    return [blocks_opened(spark, table, query) for query in queries]


def sorted_copy(spark: Any, table: str, key: Sequence[str], partitioned: str = "", **more: str) -> str:
    """Sort a copy of a table by a key."""
    copy = empty(spark, f"{table}_{uuid.uuid4().hex[:8]}", partitioned, **more)
    # Blocks of rows in random order overlap, so one merge takes all of a partition.
    spark.sql(f"insert into {copy} select /*+ repartition(6) */ * from {table}")
    recluster(spark, copy, list(key), depth=1, block_rows=BLOCK_ROWS, final=True)
    return copy


def number_of_blocks(spark: Any, table: str) -> int:
    return int(spark.table(f"{table}.files").count())


@pytest.mark.parametrize(
    ("partitioned", "keys"),
    [
        ("bucket(3, id)", [("ts", "shop")]),
        pytest.param("", [("url",)], marks=pytest.mark.exhaustive),
        pytest.param("", [("k",), ("word",), ("f",), ("d", "url")], marks=pytest.mark.exhaustive),
        pytest.param("days(ts), truncate(1, word)", [("k",), ("url", "k")], marks=pytest.mark.exhaustive),
        pytest.param("truncate(1000, id), p", [("d",), ("id",), ("x",)], marks=pytest.mark.exhaustive),
    ],
)
def test_the_predicted_blocks_are_those_of_a_sorted_copy(
    spark: Any, schema: str, partitioned: str, keys: list[tuple[str, ...]]
) -> None:
    table = make(spark, schema, partitioned)
    trial = Trial(spark, table)
    assert trial.now == opened_by(spark, table, QUERIES)
    for key in keys:
        candidate = trial.candidate(key)
        copy = sorted_copy(spark, table, key, partitioned)
        assert candidate.first_bytes > 0
        assert candidate.blocks == number_of_blocks(spark, copy), key
        truth = opened_by(spark, copy, QUERIES)
        wrong = {q: (p, t) for q, p, t in zip(QUERIES, candidate.opened, truth, strict=True) if p != t}
        assert wrong == {}, key
        # By the key that it has now nothing is rewritten, so nothing changes.
        again = Trial(spark, copy).candidate(key)
        assert (again.first_bytes, again.opened, again.gain) == (0, tuple(truth), 0)


class Trial:
    """All queries at one table, under any key."""

    def __init__(self, spark: Any, table: str) -> None:
        keyed = ClusteredTable(spark, table)
        names = [name for name in keyed.columns.names if name not in ("flag", "s")]
        self._names = names
        options = ReclusterOptions(depth=1, block_rows=BLOCK_ROWS)
        reads = [DeclaredRead(query) for query in QUERIES]
        self._trial = KeyTrial(keyed.under(parse_cluster_key(names)), reads, options)
        self.now = list(self._trial.opened_now)

    def candidate(self, key: tuple[str, ...], *, on_curve: bool = False) -> Any:
        return self._trial.candidate(tuple(map(self._names.index, key)), on_curve=on_curve)


@pytest.mark.alike
@pytest.mark.parametrize(
    ("key", "sampled", "most_wrong"), [("hilbert", ROWS, 3), ("url", ROWS // 4, 2), ("id", ROWS // 4, 2)]
)
def test_what_it_predicts_of_a_curve_and_by_a_sample_is_about_what_a_sort_makes(
    spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch, key: str, sampled: int, most_wrong: int
) -> None:
    """The table has its boundaries from another sample. A value that was not sampled opens the block it would be in."""
    table = make(spark, schema)
    monkeypatch.setattr(suggest, "SAMPLE_ROWS", sampled)
    trial = Trial(spark, table)
    candidate = trial.candidate(("k", "word"), on_curve=True) if key == "hilbert" else trial.candidate((key,))
    assert candidate.cluster_by == ("hilbert(k, word)" if key == "hilbert" else key,)
    copy = sorted_copy(spark, table, candidate.cluster_by)
    assert candidate.blocks == pytest.approx(number_of_blocks(spark, copy), abs=most_wrong - 1)
    truth = opened_by(spark, copy, QUERIES)
    opened = {query: (p, t) for query, p, t in zip(QUERIES, candidate.opened, truth, strict=True)}
    if sampled < ROWS:
        del opened["f = double('nan')"]  # of twelve rows
    assert all(abs(p - t) <= most_wrong for p, t in opened.values()), opened
    assert sum(p for p, _ in opened.values()) == pytest.approx(sum(t for _, t in opened.values()), rel=0.1)
    assert opened["id = 1234"][0] >= 1


@pytest.mark.exhaustive
def test_single_values_are_those_of_the_table(spark: Any, schema: str) -> None:
    """Without queries; twin: Iceberg's planning of a query for each of many values."""
    partitioned = "bucket(3, id)"
    table = make(spark, schema, partitioned)
    found = suggest_cluster_by(spark, table, depth=1, block_rows=BLOCK_ROWS)
    by_column = {candidate.cluster_by[0]: candidate for candidate in found.candidates}
    for column in ("id", "word"):
        values = f"select string({column}) from {table} where {column} is not null and id % 449 = 3"
        queries = [f"{column} = '{value}'" for (value,) in spark.sql(values).collect()]
        copy = sorted_copy(spark, table, (column,), partitioned)
        for of, share in (table, by_column[column].skipped_now), (copy, by_column[column].skipped_then):
            opened = sum(opened_by(spark, of, queries)) / len(queries)
            assert share == pytest.approx(1 - opened / number_of_blocks(spark, of), abs=0.02)


@pytest.mark.exhaustive
def test_where_nothing_gains_nothing_is_recommended(spark: Any, schema: str) -> None:
    """Neither a column that partitions tell apart already nor one that loads come in the order of."""
    table = make(spark, schema, "p", loads=4)
    for queries in (["p = 1"], ["p = 2", "id between 100 and 200"], ["word is not null"], ["k <> 5"]):
        found = suggest_cluster_by(spark, table, queries, depth=1, block_rows=BLOCK_ROWS)
        assert found.advice.startswith("Do not cluster it: no key skips 10% of the blocks more"), found
    copy = sorted_copy(spark, table, ("k",), "p")
    found = suggest_cluster_by(spark, copy, ["k = 77", "k > 2000"], block_rows=BLOCK_ROWS)
    assert found.candidates[0].opened == found.opened
    assert found.advice == "Keep k: no key skips 10% of the blocks more than today"


@pytest.mark.exhaustive
def test_bounds_that_are_cut_off_or_not_recorded_open_what_they_open(spark: Any, schema: str) -> None:
    """By another key a text keeps the bounds that the table's properties ask for."""
    table = make(spark, schema)
    unrecorded = {"write.metadata.metrics.column.word": "none"}
    spark.sql(f"alter table {table} set tblproperties ('write.metadata.metrics.column.word' = 'none')")
    queries = [f"url = '{URL}page/000777'", "word = 'w00777'", "word is null"]
    found = suggest_cluster_by(spark, table, queries, depth=1, block_rows=BLOCK_ROWS)
    for candidate in found.candidates:
        if "word" in ", ".join(candidate.cluster_by):
            assert candidate.opened[1:] == (candidate.blocks,) * 2
        else:
            copy = sorted_copy(spark, table, candidate.cluster_by, **unrecorded)
            assert list(candidate.opened) == opened_by(spark, copy, queries)


def test_a_curve_is_suggested_for_reads_of_two_columns_and_no_fewer(spark: Any, schema: str) -> None:
    table = make(spark, schema)
    by_k = [f"k = {2 * value}" for value in range(5, 1_500, 300)]
    by_word = [f"word = 'w{value:05d}'" for value in range(5, 1_500, 300)]
    found = suggest_cluster_by(spark, table, by_k + by_word, depth=1, block_rows=BLOCK_ROWS)
    best = found.candidates[0]
    assert best.cluster_by == ("hilbert(k, word)",)
    assert found.advice.startswith("By hilbert(k, word) (")
    assert best.first_bytes > 0
    opened_by_key = {key.cluster_by: sum(key.opened) for key in found.candidates}
    for plain in ("k",), ("word",), ("k", "word"):
        assert sum(best.opened) < 0.7 * opened_by_key[plain]
    # A read of one column opens about the square root of the blocks, and sorted by it one or two.
    assert all(2 <= opened <= 0.5 * best.blocks for opened in best.opened)

    found = suggest_cluster_by(spark, table, by_k, depth=1, block_rows=BLOCK_ROWS)
    assert [key.cluster_by for key in found.candidates] == [("k",)]
    # The second column in a few reads only, or always beside the first, takes no curve either.
    rows = spark.table(table).where("word is not null").orderBy("id").select("k", "word").limit(5).collect()
    by_both = [f"k = {row.k} and word = '{row.word}'" for row in rows]
    for queries in [*by_k, *by_k, by_word[0]], by_both:
        found = suggest_cluster_by(spark, table, queries, depth=1, block_rows=BLOCK_ROWS)
        assert found.candidates[0].cluster_by[0] == "k", found
        assert ("hilbert(k, word)",) in [key.cluster_by for key in found.candidates]


def test_a_sample_of_many_sorted_files_has_their_quantiles(spark: Any, schema: str) -> None:
    """Each file is a task, and shorter than a stride: the first row of each would be its least key."""
    name = create_table(spark, f"{schema}.t", "k bigint", {"read.split.open-file-cost": 128 << 20})
    rows = spark.range(0, 40_000, 1, 200).selectExpr("pmod(xxhash64(id), 40000) k").sortWithinPartitions("k")
    rows.writeTo(name).option("use-table-distribution-and-ordering", "false").append()
    sampled = sample_rows(IcebergTable.load(spark, name), ["k"], 40_000, 150)
    assert 75 <= len(sampled) <= 225
    assert np.quantile(sampled["column_0"], [0.25, 0.5, 0.75]) == pytest.approx([10_000, 20_000, 30_000], abs=6_000)
