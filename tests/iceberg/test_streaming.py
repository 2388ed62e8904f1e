"""A structured-streaming reader of a table that is reclustered between its batches, and killed and started again."""

from pathlib import Path
from typing import Any

import pytest
from tables import append, make_table

from dbt_recluster.api import recluster


def follow(spark: Any, source: str, target: str, checkpoint: Path, **options: Any) -> int:
    """Read what is new in ``source`` into ``target``, as a new query that starts where the last one ended."""
    query = (
        spark.readStream.format("iceberg")
        .options(**options)
        .load(source)
        .writeStream.format("iceberg")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .toTable(target)
    )
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def ids(spark: Any, name: str) -> list[int]:
    return sorted(row[0] for row in spark.sql(f"select id from {name}").collect())


def merged(spark: Any, name: str, key: str = "k") -> int:
    return len(recluster(spark, name, key, depth=1, block_rows=500, final=True).rounds)


@pytest.mark.parametrize(("version", "most_files"), [(2, None), pytest.param(3, "1", marks=pytest.mark.exhaustive)])
def test_a_stream_reads_each_row_once_however_often_it_is_reclustered(
    spark: Any, schema: str, tmp_path: Path, version: int, most_files: str | None
) -> None:
    source = make_table(spark, schema, files=3, rows=500, properties={"format-version": version})
    target = make_table(spark, schema, files=0, name="copy")
    options = {} if most_files is None else {"streaming-max-files-per-micro-batch": most_files}
    # It starts at the first snapshot, of files that no later snapshot has any more.
    assert merged(spark, source)
    assert follow(spark, source, target, tmp_path / "c", **options) == 1500
    for load in range(1, 3):
        append(spark, source, 1500 * load, 1500, files=3)
        assert merged(spark, source)
        assert follow(spark, source, target, tmp_path / "c", **options) == 1500
        # Nothing but rewrites of what has been read.
        assert merged(spark, source, "id")
        spark.sql(f"call system.rewrite_data_files(table => '{source}')")
        assert follow(spark, source, target, tmp_path / "c", **options) == 0
    assert ids(spark, target) == ids(spark, source) == list(range(4500))


@pytest.mark.thorough
def test_a_recluster_is_no_change_to_a_changelog(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=3, rows=500)
    assert merged(spark, name)
    append(spark, name, 1500, 500)
    assert merged(spark, name, "id")
    view = spark.sql(f"call system.create_changelog_view(table => '{name}')").first()[0]
    changes = spark.sql(f"select _change_type, count(*), count(distinct id) from {view} group by 1").collect()
    assert [tuple(row) for row in changes] == [("INSERT", 2000, 2000)]


def test_a_batch_planned_before_a_recluster_is_read_after_it(spark: Any, schema: str, tmp_path: Path) -> None:
    source = make_table(spark, schema, files=3, rows=500)
    target = make_table(spark, schema, files=0, name="copy")
    attempts: list[int] = []

    def write(batch: Any, number: int) -> None:
        attempts.append(number)
        if len(attempts) == 1:
            # The query has recorded where this batch ends, and has read no row of it.
            raise RuntimeError("killed before the batch")
        batch.writeTo(target).append()

    def run() -> None:
        stream = spark.readStream.format("iceberg").load(source).writeStream.foreachBatch(write)
        query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination(60)

    with pytest.raises(Exception, match="killed before the batch"):
        run()
    assert merged(spark, source)
    run()
    assert attempts == [0, 0]
    assert ids(spark, target) == list(range(1500))
