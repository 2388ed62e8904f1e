"""suggest_cluster_by against the truth: the same rows really sorted, and Iceberg's own planning of each query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dbt_recluster.advice import sampled_rows
from dbt_recluster.advice.suggest import KeyTrial
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.values import DeclaredRead
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.maintenance import ClusteredTable, blocks_opened, recluster, suggest_cluster_by

ROWS, BLOCK_ROWS = 6_000, 400
URL = "https://www.example.com/"
QUERIES = [
    # A single value, and one that lies between others, or beyond them.
    "k = 77",
    "k = 4001",
    "k = -5",
    "shop = 3",
    "shop = 300",
    f"url = '{URL}page/000777'",
    f"url = '{URL}page/000777x'",
    f"url = '{URL}other'",
    "url = 'a'",
    "word = 'w00777x'",
    "id = 1234",
    "id = 123456",
    # Ranges.
    "k between 100 and 300",
    "k > 2900 or k < 20",
    "k > 300 and k < 100",
    "k >= 100 and shop = 7",
    "id < 500 and p = 1",
    "d = date'2026-01-02'",
    "d >= date'2026-01-03' and k < 500",
    "ts < timestamp'2026-01-01 06:00:00'",
    f"url like '{URL}page/0001%'",
    "word like 'w001%'",
    "word not like 'w%'",
    "x > 55.5",
    "f > 2000",
    # Lists, and what bounds say nothing of.
    "k in (5, 1500, 2995)",
    "p in (0, 2)",
    "p <> 1",
    "word is null",
    "word is not null and f is not null",
    "f = double('nan')",
    "flag",
    "s.n = 12",
    "k <> 5",
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


def make(spark: Any, schema: str, name: str, partitioned: str, rows: int = ROWS, loads: int = 3) -> str:
    """A table in which every block of a partition overlaps with all others in every column but `id`, `d` and `ts`."""
    table = f"{schema}.{name}"
    clause = f"partitioned by ({partitioned})" if partitioned else ""
    spark.sql(
        f"create table {table} ({COLUMNS}) using iceberg {clause} tblproperties ('write.distribution-mode' = 'none', "
        "'write.spark.fanout.enabled' = 'true')"
    )
    for load in range(loads):
        first, last = load * rows // loads, (load + 1) * rows // loads
        spark.sql(f"insert into {table} select /*+ repartition(5) */ {VALUES} from range({first}, {last})")
    return table


def opened_by(spark: Any, name: str, queries: Sequence[str]) -> list[int]:
    table = ClusteredTable(spark, name)
    return [blocks_opened(spark, table, query) for query in queries]


def sorted_copy(spark: Any, table: str, key: Sequence[str], partitioned: str) -> str:
    """Sort a copy of a table by a key."""
    name = f"{table.rpartition('.')[2]}_by_{'_'.join(key)}"
    copy = make(spark, table.rpartition(".")[0], name, partitioned, rows=0, loads=0)
    # Blocks of rows in random order overlap, so one merge takes all of a partition.
    spark.sql(f"insert into {copy} select /*+ repartition(6) */ * from {table}")
    recluster(spark, copy, list(key), depth=1, block_rows=BLOCK_ROWS, final=True)
    return copy


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("partitioned", "keys"),
    [
        ("", [("url",)]),
        ("bucket(3, id)", [("ts", "shop")]),
        pytest.param("", [("shop", "k")], marks=pytest.mark.exhaustive),
        pytest.param("bucket(3, id)", [("id",)], marks=pytest.mark.exhaustive),
        pytest.param("", [("k",), ("word",), ("x",), ("f",), ("d", "url")], marks=pytest.mark.exhaustive),
        pytest.param("p", [("k",), ("shop",), ("word", "k")], marks=pytest.mark.exhaustive),
        pytest.param("days(ts), truncate(1, word)", [("k",), ("url", "k")], marks=pytest.mark.exhaustive),
        pytest.param("truncate(1000, id), p", [("d",), ("id",), ("x",)], marks=pytest.mark.exhaustive),
    ],
)
def test_what_it_predicts_is_what_a_sort_makes(
    spark: Any, schema: str, partitioned: str, keys: list[tuple[str, ...]]
) -> None:
    table = make(spark, schema, "t", partitioned)
    trial = Trial(spark, table)
    assert trial.now == opened_by(spark, table, QUERIES)
    for key in keys:
        candidate = trial.candidate(key)
        copy = sorted_copy(spark, table, key, partitioned)
        assert candidate.first_bytes > 0
        assert candidate.blocks == spark.table(f"{copy}.files").count(), key
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

    def candidate(self, key: tuple[str, ...]) -> Any:
        return self._trial.candidate(self._items(key))

    def curve(self, columns: tuple[str, ...]) -> Any:
        return self._trial.candidate(self._items(columns), on_curve=True)

    def _items(self, columns: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self._names.index(column) for column in columns)


@pytest.mark.thorough
def test_what_it_predicts_of_a_curve_is_about_what_a_sort_makes(spark: Any, schema: str) -> None:
    """The boundaries of the table come from another sample, so a query may open a few blocks more or less."""
    table = make(spark, schema, "t", "")
    trial = Trial(spark, table)
    candidate = trial.curve(("k", "word"))
    assert candidate.cluster_by == ("hilbert(k, word)",)
    copy = make(spark, schema, "copy", "", rows=0, loads=0)
    spark.sql(f"insert into {copy} select /*+ repartition(6) */ * from {table}")
    recluster(spark, copy, "hilbert(k, word)", depth=1, block_rows=BLOCK_ROWS, final=True)
    assert candidate.blocks == pytest.approx(spark.table(f"{copy}.files").count(), abs=2)
    truth = opened_by(spark, copy, QUERIES)
    opened = {query: (p, t) for query, p, t in zip(QUERIES, candidate.opened, truth, strict=True)}
    assert all(abs(p - t) <= 3 for p, t in opened.values()), opened
    assert sum(candidate.opened) == pytest.approx(sum(truth), rel=0.1)


@pytest.mark.thorough
def test_single_values_are_those_of_the_table(spark: Any, schema: str) -> None:
    """Without queries; twin: Iceberg's planning of a query for each of many values."""
    partitioned = "bucket(3, id)"
    table = make(spark, schema, "t", partitioned)
    found = suggest_cluster_by(spark, table, depth=1, block_rows=BLOCK_ROWS)
    for candidate in found.candidates:
        (column,) = candidate.cluster_by
        if column not in ("id", "word"):
            continue
        rows = spark.sql(
            f"select string({column}) from {table} where {column} is not null and id % 449 = 3"
        ).collect()
        for of, share in [
            (table, candidate.skipped_now),
            (sorted_copy(spark, table, (column,), partitioned), candidate.skipped_then),
        ]:
            opened = opened_by(spark, of, [f"{column} = '{value}'" for (value,) in rows])
            assert share == pytest.approx(
                1 - sum(opened) / len(opened) / spark.table(f"{of}.files").count(), abs=0.02
            )


@pytest.mark.thorough
def test_a_sample_of_some_rows_errs_little(spark: Any, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every fourth row; a value that was not sampled opens the block that it would be in."""
    table = make(spark, schema, "t", "")
    monkeypatch.setattr(sampled_rows, "SAMPLE_ROWS", ROWS // 4)
    trial = Trial(spark, table)
    for key in [("url",), ("id",)]:
        candidate = trial.candidate(key)
        copy = sorted_copy(spark, table, key, "")
        truth = opened_by(spark, copy, QUERIES)
        assert candidate.blocks == pytest.approx(spark.table(f"{copy}.files").count(), abs=1)
        opened = {query: (p, t) for query, p, t in zip(QUERIES, candidate.opened, truth, strict=True)}
        del opened["f = double('nan')"]  # of twelve rows
        assert all(abs(p - t) <= 2 for p, t in opened.values()), (key, opened)
        assert opened["id = 1234"][0] >= 1


@pytest.mark.thorough
def test_many_small_blocks_become_few(spark: Any, schema: str) -> None:
    table = make(spark, schema, "t", "", rows=1_500, loads=12)
    assert spark.table(f"{table}.files").count() == 60
    found = suggest_cluster_by(spark, table, ["k = 1501", "url = 'a'"], depth=1, block_rows=300)
    by_key = {candidate.cluster_by: candidate for candidate in found.candidates}
    assert {candidate.blocks for candidate in found.candidates} <= {5, 6}
    assert by_key["k",].opened == (1, 0)
    assert found.opened == (60, 0)


@pytest.mark.thorough
def test_where_nothing_gains_nothing_is_recommended(spark: Any, schema: str) -> None:
    """Neither a column that partitions tell apart already nor one that loads come in the order of."""
    table = make(spark, schema, "t", "p", loads=4)
    for queries in (
        ["p = 1"],
        ["id < 300"],
        ["p = 2", "id between 100 and 200"],
        ["word is not null"],
        ["k <> 5"],
    ):
        found = suggest_cluster_by(spark, table, queries, depth=1, block_rows=BLOCK_ROWS)
        assert found.advice.startswith("Do not cluster it: no key skips 10% of the blocks more than today"), (
            found
        )
    copy = sorted_copy(spark, table, ("k",), "p")
    found = suggest_cluster_by(spark, copy, ["k = 77", "k > 2000"], block_rows=BLOCK_ROWS)
    assert found.candidates[0].opened == found.opened
    assert found.advice == "Keep k: no key skips 10% of the blocks more than today"


@pytest.mark.thorough
def test_bounds_that_are_cut_off_or_not_recorded_open_what_they_open(spark: Any, schema: str) -> None:
    """By another key a text keeps the bounds that the table's properties ask for."""
    table = make(spark, schema, "t", "")
    spark.sql(f"alter table {table} set tblproperties ('write.metadata.metrics.column.word' = 'none')")
    queries = [f"url = '{URL}page/000777'", "word = 'w00777'", "word is null"]
    found = suggest_cluster_by(spark, table, queries, depth=1, block_rows=BLOCK_ROWS)
    for number, candidate in enumerate(found.candidates):
        copy = make(spark, schema, f"copy_{number}", "", rows=0, loads=0)
        spark.sql(f"alter table {copy} set tblproperties ('write.metadata.metrics.column.word' = 'none')")
        spark.sql(f"insert into {copy} select /*+ repartition(6) */ * from {table}")
        if "word" in ", ".join(candidate.cluster_by):
            assert candidate.opened[1:] == (candidate.blocks,) * 2
            continue
        recluster(spark, copy, list(candidate.cluster_by), depth=1, block_rows=BLOCK_ROWS, final=True)
        assert list(candidate.opened) == opened_by(spark, copy, queries)


@pytest.mark.thorough
def test_a_curve_is_suggested_for_reads_of_two_columns_and_no_fewer(spark: Any, schema: str) -> None:
    table = make(spark, schema, "t", "")
    by_k = [f"k = {2 * value}" for value in range(5, 1_500, 300)]
    by_word = [f"word = 'w{value:05d}'" for value in range(5, 1_500, 300)]
    found = suggest_cluster_by(spark, table, by_k + by_word, depth=1, block_rows=BLOCK_ROWS)
    best = found.candidates[0]
    assert best.cluster_by == ("hilbert(k, word)",)
    assert found.advice.startswith("By hilbert(k, word) (")
    assert best.first_bytes > 0
    plain = [key for key in found.candidates if key.cluster_by in [("k",), ("word",), ("k", "word")]]
    assert len(plain) == 3
    for key in plain:
        assert sum(best.opened) < 0.7 * sum(key.opened)
    # A read of one column opens about the square root of the blocks, and sorted by it one or two.
    assert all(2 <= opened <= 0.5 * best.blocks for opened in best.opened)

    found = suggest_cluster_by(spark, table, by_k, depth=1, block_rows=BLOCK_ROWS)
    assert [key.cluster_by for key in found.candidates] == [("k",)]
    # The second column in a few reads only, or always beside the first, takes no curve either.
    rows = spark.table(table).where("word is not null").orderBy("id").select("k", "word").limit(5).collect()
    for queries in [
        [*by_k, *by_k, by_word[0]],
        [f"k = {row.k} and word = '{row.word}'" for row in rows],
    ]:
        found = suggest_cluster_by(spark, table, queries, depth=1, block_rows=BLOCK_ROWS)
        assert found.candidates[0].cluster_by[0] == "k", found
        assert ("hilbert(k, word)",) in [key.cluster_by for key in found.candidates]
