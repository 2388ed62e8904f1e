"""A table that has not changed since its last recluster answers from its snapshots, as its blocks would."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from tables import Meanwhile, make_even_table

from dbt_recluster.advice.cost_model import PriceList
from dbt_recluster.advice.overview import Overview, table_overview
from dbt_recluster.api import ClusteredTable, clustering_information, recluster, suspend_recluster
from dbt_recluster.clustering import table
from dbt_recluster.clustering.checkpoint import Checkpoint
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, ReclusterOptions
from dbt_recluster.clustering.recluster import Recluster

OPTIONS = ReclusterOptions(depth=2, block_rows=100)


@pytest.fixture
def name(spark: Any, schema: str) -> str:
    name = make_even_table(spark, schema, loads=0)
    spark.sql(f"alter table {name} add partition field p")
    for load_number in range(8):
        load(spark, name, load_number % 2)
    return name


def is_recorded(overview: Overview) -> bool:
    """Whether the figures come from the snapshots alone."""
    return overview.reason == "unchanged since its last recluster"


def load(spark: Any, name: str, partition: int) -> None:
    spark.range(0, 400, 1, 2).selectExpr("(id * 37) % 400 as k", f"{partition} as p").writeTo(name).append()


def seen(spark: Any, name: str, options: ReclusterOptions = OPTIONS, **more: Any) -> Overview:
    return table_overview(ClusteredTable(spark, name, "k"), options, **more)


@pytest.mark.thorough
@pytest.mark.parametrize("reads", [None, "k between 100 and 110"])
def test_the_overview_of_an_unchanged_table_reads_no_block(
    spark: Any, name: str, reads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(OPTIONS, reads=RECLUSTER_OPTIONS["reads"].read("reads", reads))
    assert seen(spark, name, options).verdict == "deep"
    Recluster(ClusteredTable(spark, name, "k"), options).run()
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "is_of", lambda *_: False)
        measured = seen(spark, name, options)
    with monkeypatch.context() as patched:
        patched.setattr(table, "read_blocks", None)  # whoever calls it fails
        expected = seen(spark, name, options)
        assert (is_recorded(expected), is_recorded(measured)) == (True, False)
        figures = ("verdict", "depth", "threshold", "fragmentation", "blocks", "bytes", "recluster_bytes")
        assert [getattr(expected, each) for each in figures] == [getattr(measured, each) for each in figures]
        assert (expected.read_depth is None) == (reads is None)
        if reads is None:  # without reads, prices have no blocks read either
            priced = seen(spark, name, options, prices=PriceList("EUR", 3600, 5))
            assert (priced.spent_week, priced.saved_week) == (priced.recluster_seconds, None)
        suspend_recluster(spark, name)
        suspended = seen(spark, name, options)
        assert (suspended.verdict, suspended.depth) == ("suspended", expected.depth)


@pytest.mark.alike
@pytest.mark.parametrize(
    "key",
    [
        "concat('a prefix of 21 letters', (id * 37) % 400)",  # cut off after 16 characters
        "if(id % 3 = 0, null, if(id % 5 = 0, double('NaN'), (id * 37) % 400))",
        "if(id % 2 = 0, -0.0d, if(id % 3 = 0, 0.0d, double(id % 7)))",
        "id % 2",
    ],
)
def test_its_figures_are_those_of_the_new_blocks(spark: Any, schema: str, key: str) -> None:
    """The planner cannot predict them from bounds and row counts."""
    name, options = f"{schema}.t", ReclusterOptions(depth=1, block_rows=100)
    properties = {"write.metadata.metrics.column.k": "truncate(16)", "write.distribution-mode": "none"}
    listed = ", ".join(f"'{each}' = '{value}'" for each, value in properties.items())
    spark.sql(f"create table {name} using iceberg tblproperties ({listed}) as select {key} k from range(400)")
    for _ in range(4):
        spark.sql(f"insert into {name} select {key} from range(0, 400, 1, 1)")
    result = Recluster(ClusteredTable(spark, name, "k"), options).run()
    overview = seen(spark, name, options)
    assert (is_recorded(overview), overview.depth) == (True, result.depth_after)
    assert overview.average_depth == result.average_depth_after


@pytest.mark.thorough
def test_whatever_changes_has_the_blocks_read(spark: Any, name: str) -> None:
    Recluster(ClusteredTable(spark, name, "k"), OPTIONS).run()
    assert is_recorded(seen(spark, name))
    assert not is_recorded(seen(spark, name, ReclusterOptions(depth=1, block_rows=100)))
    assert not is_recorded(seen(spark, name, replace(OPTIONS, where="p = 1")))
    week = datetime.now(timezone.utc) + timedelta(days=8)
    assert (seen(spark, name).rewritten_bytes_week or 0) > 0
    later = seen(spark, name, now=week)
    assert (later.rewritten_bytes_week, later.loaded_bytes_week) == (0, 0)
    for _ in range(4):
        load(spark, name, 1)
    assert (seen(spark, name).verdict, is_recorded(seen(spark, name))) == ("deep", False)


def test_a_load_during_the_merge(spark: Any, name: str) -> None:
    meanwhile = Meanwhile("commit", lambda: load(spark, name, 1))
    options = replace(OPTIONS, progress=meanwhile)
    assert Recluster(ClusteredTable(spark, name, "k"), options).run().rounds
    assert meanwhile.errors == []
    assert not is_recorded(seen(spark, name))


@pytest.mark.parametrize("key", ["k", "hilbert(k, id)"])
def test_every_answer_has_one_depth_threshold_and_verdict(spark: Any, schema: str, key: str) -> None:
    """Overview, information and dry run, also between loads under a curve, beside the threshold as it was set."""
    name, options = f"{schema}.t", ReclusterOptions(depth=1.5, block_rows=100)
    depth = "tblproperties ('recluster.option.depth' = '1.5')"
    spark.sql(f"create table {name} (id bigint, k bigint) using iceberg {depth}")
    verdicts = []
    for load in range(5):
        keys = f"(id * 37 + {load}) % 1000 k from range({load * 1000}, {load * 1000 + 1000}, 1, 2)"
        spark.sql(f"insert into {name} select id % 1000, {keys}")
        if load == 2:
            recluster(spark, name, key, depth=1, block_rows=100)
        overview = table_overview(ClusteredTable(spark, name, key), options)
        information = clustering_information(spark, name, key, block_rows=100)
        planned = Recluster(ClusteredTable(spark, name, key), replace(options, dry_run=True)).run()
        shown = (planned.depth_after, planned.threshold, planned.verdict)
        assert (overview.depth, overview.threshold, overview.verdict) == shown, load
        assert tuple(information[name] for name in ("depth", "threshold", "verdict")) == shown, load
        assert (planned.threshold, planned.plan is not None and bool(planned.plan.sets)) == (
            1.5,
            shown[2] == "deep",
        )
        verdicts.append(shown[2])
    assert verdicts[1] == verdicts[4] == "deep"
    assert verdicts[2] == "well clustered"
