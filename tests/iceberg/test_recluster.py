"""Reclustering real tables: what it must never change, and what it must; and the options of the Python functions."""

import inspect
import re
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as parquet
import pytest
import yaml
from pyspark.errors.exceptions.captured import CapturedException
from tables import append, create_table, keyed, levels, make_table, metadata_file, planned, recluster_keeping_rows

from dbt_recluster import api
from dbt_recluster.advice.cost_model import CostModel
from dbt_recluster.advice.overview import table_overview
from dbt_recluster.api import (
    blocks_opened,
    clustering_information,
    clustering_report,
    estimate_clustering_cost,
    estimate_recluster,
    recluster,
    suggest_cluster_by,
)
from dbt_recluster.clustering.history import rewrite_speed
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, ReclusterOptions
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.exceptions import (
    ClusterKeyError,
    NotAnIcebergTableError,
    OptionError,
    PredicateError,
    SparkEnvironmentError,
)
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.session.redaction import short_message


def test_the_rows_stay_and_the_depth_falls(spark: Any, schema: str) -> None:
    name = make_table(spark, schema)
    result = recluster_keeping_rows(spark, name, "k", depth=1, block_rows=1000)
    assert (result.depth_before, result.blocks_in, result.blocks_before) == (6.0, 6, 6)
    assert result.depth_after < 2
    assert (result.rows, result.conflicts, len(result.rounds)) == (6000, 0, 1)
    assert result.blocks_after == result.blocks_out == clustering_information(spark, name)["total_block_count"]
    assert blocks_opened(spark, name, "k = 500") <= 2
    assert len(set(levels(spark, name))) == 1
    assert min(levels(spark, name)) > 0
    file = metadata_file(spark, name)
    assert recluster(spark, name, "k", depth=1, block_rows=1000, final=True).rounds == []
    assert metadata_file(spark, name) == file
    # The commit tells what it did, and the blocks record the sort order and keep their bounds.
    row = spark.sql(f"select operation, summary from {name}.snapshots order by committed_at desc").first()
    summary = {key.removeprefix("recluster."): value for key, value in row.summary.items()}
    assert (row.operation, int(summary["level"])) == ("replace", min(levels(spark, name)))
    assert (int(summary["blocks_in"]), int(summary["bytes_in"])) == (6, result.bytes_in)
    bounds = "readable_metrics.k.lower_bound lo, readable_metrics.k.upper_bound hi"
    files = spark.sql(f"select sort_order_id, {bounds} from {name}.files order by lo").collect()
    assert {row.sort_order_id for row in files} == {1}
    assert all(left.hi <= right.lo for left, right in pairwise(files))


def test_what_a_read_of_one_key_opens_is_estimated(spark: Any, schema: str) -> None:
    small = {
        "write.parquet.row-group-size-bytes": 32768,
        "write.parquet.row-group-check-min-record-count": 10,
        "write.parquet.page-row-limit": 100,  # pages of the usual size are compressed before a row group is full
    }
    name = make_table(spark, schema, files=4, rows=5000, keys=100_000, properties=small)
    unsorted = clustering_information(spark, name, "k")
    assert unsorted["key_read_bytes"] == pytest.approx(unsorted["total_bytes"], rel=0.01)
    plan = planned(spark, name, "k", depth=1)
    assert plan.key_read_bytes == unsorted["key_read_bytes"]
    assert plan.expected_key_read_bytes < plan.key_read_bytes
    recluster(spark, name, "k", depth=1)
    append(spark, name, 20_000, 5000, keys=100_000)
    after = clustering_information(spark, name)
    groups = _row_groups(spark, name)
    opened = [[size for least, greatest, size in groups if least <= key <= greatest] for key in range(500, 99_500, 500)]
    assert after["key_read_bytes"] == pytest.approx(sum(map(sum, opened)) / len(opened), rel=0.3)
    spark.sql(f"alter table {name} set tblproperties ('write.format.default' = 'orc')")
    assert "key_read_bytes" not in clustering_information(spark, name)


def _row_groups(spark: Any, name: str) -> list[tuple[int, int, int]]:
    """Bounds of the key and bytes of all row groups, by the files' own footers."""
    groups = []
    for file in spark.sql(f"select file_path from {name}.files").collect():
        footer = parquet.ParquetFile(unquote(urlparse(file[0]).path)).metadata
        for group in map(footer.row_group, range(footer.num_row_groups)):
            bounds = group.column(1).statistics
            size = sum(group.column(n).total_compressed_size for n in range(group.num_columns))
            groups.append((bounds.min, bounds.max, size))
    return groups


def test_where_chooses_whole_blocks(spark: Any, schema: str) -> None:
    """The session says whether the case of a column's name matters."""
    name = make_table(spark, schema, partitioned="truncate(500, k)")
    options: dict[str, Any] = {"depth": 1, "block_rows": 1000}
    assert blocks_opened(spark, name, "K < 100") == 6
    assert recluster_keeping_rows(spark, name, "k", where="K < 100", **options).blocks_in == 6
    assert levels(spark, name).count(0) == 6  # the other partition
    assert recluster(spark, name, "k", where="k < 100", **options).rounds == []
    nothing = recluster(spark, name, "k", where="K is null", **options)
    assert nothing.reason == "no block can hold a row that the predicate admits"


def test_the_budget_is_kept(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=8)
    size = spark.sql(f"select max(file_size_in_bytes) from {name}.files").first()[0]
    result = recluster(spark, name, "k", depth=1, max_bytes=f"{3 * size} B", final=True, block_rows=1000)
    assert 0 < result.bytes_in <= 3 * size
    assert recluster(spark, name, "k", depth=1, max_bytes=1).rounds == []


def test_a_budget_of_time_is_kept_by_the_speed_of_earlier_rounds(spark: Any, schema: str) -> None:
    """A round of tiny blocks takes much longer than the budget, so its speed leaves nothing for the next one."""
    name = make_table(spark, schema, files=8)
    size = spark.sql(f"select max(file_size_in_bytes) from {name}.files").first()[0]
    assumed = 10 * 2**20
    options: dict[str, Any] = {"depth": 1, "final": True, "block_rows": 1000}
    result = recluster(spark, name, "k", max_seconds=3 * size / assumed, **options)
    assert (len(result.rounds), 0 < result.bytes_in <= 3 * size, result.limited) == (1, True, True)
    speed = rewrite_speed(ClusteredTable(spark, name))
    assert speed is not None
    assert speed < assumed / 10
    nothing = recluster(spark, name, "k", max_seconds=3 * size / assumed, **options)
    assert nothing.rounds == []
    assert "no block set can be rewritten in" in nothing.reason
    nothing = recluster(spark, name, "k", max_seconds=1e6, max_bytes=2, **options)
    assert "no block set fits into 2 bytes" in nothing.reason
    result = recluster(spark, name, "k", max_seconds=4 * size / speed, **{**options, "final": False})
    assert 0 < result.bytes_in <= 4 * size


def test_an_estimate_with_where_is_of_the_blocks_that_it_admits(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=0)
    # Blocks of the whole range lie over narrow ones; only the narrow ones match.
    spark.sql(f"insert into {name} select /*+ repartition(3) */ id, cast(id % 10 as int), 'few' from range(3000)")
    append(spark, name, 3000, 3000, files=3)
    options = ReclusterOptions(final=True, depth=1, where="v = 'few'", block_rows=1000)
    table = ClusteredTable(spark, name, "k")
    estimate = CostModel.from_options(table, options).recluster(table.predicate(options.where))
    result = Recluster(table, options).run()
    assert (estimate.blocks, estimate.average_depth) == (3, result.average_depth_before) == (3, 3.0)
    assert (estimate.bytes, estimate.rounds) == (result.bytes_in, len(result.rounds))
    assert estimate.expected_average_depth == result.average_depth_after == 1.0


def test_the_verdict_is_of_the_whole_table_whatever_a_predicate_admits(spark: Any, schema: str) -> None:
    name = create_table(spark, f"{schema}.t", "k int, v int")
    for v in range(3):
        spark.sql(f"insert into {name} select id, {v} from range(0, 200, 1, 1)")
    for where, verdict, why in (
        ("v > 2", "stuck", "no block can hold a row that the predicate admits"),
        ("v = 0", "stuck", "the predicate leaves 2 blocks out"),
        ("v >= 0", "deep", "depth 3 is above 2"),
    ):
        table, options = ClusteredTable(spark, name, "k"), ReclusterOptions(depth=2, block_rows=100, where=where)
        overview = table_overview(table, options)
        dry = Recluster(table, replace(options, dry_run=True)).run()
        for found in (overview, dry):
            assert (found.verdict, found.threshold, found.reason.endswith(why)) == (verdict, 2, True), where
        assert (overview.depth, dry.depth_before, dry.depth_after) == (3, 3, 3)
    result = recluster(spark, name, "k", depth=2, block_rows=100, where="v > 2")
    assert (result.rounds, result.verdict, result.cause) == (
        [],
        "stuck",
        "no block can hold a row that the predicate admits",
    )


def test_options_of_a_call_are_not_kept(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=4)
    result = recluster(spark, name, "k", depth=1, block_rows=250, max_bytes="1 GB", final=True)
    assert not any(name.startswith("recluster.option.") for name in IcebergTable.load(spark, name).properties)
    assert result.blocks_out > 4


@pytest.mark.parametrize("depth", [1, 2])
def test_frequent_values_come_to_rest(spark: Any, schema: str, depth: int) -> None:
    """Most rows have one of four values, each of which fills more than a block: its parts are small by chance."""
    name = make_table(spark, schema, files=0)
    value = "case id % 6 when 0 then 5 when 1 then 1 when 2 then 2 when 3 then 2 when 4 then 9 else id end"
    for start in range(0, 200, 40):
        spark.sql(f"insert into {name} select id, cast({value} as int), 'v' from range({start}, {start + 40})")
    result = recluster_keeping_rows(spark, name, "k", depth=depth, block_rows=30, final=True)
    assert 1 <= len(result.rounds) <= 2
    assert not recluster(spark, name, "k", depth=depth, block_rows=30).rounds


@pytest.mark.parametrize("files", [0, 1])
def test_an_empty_table_has_nothing_to_recluster(spark: Any, schema: str, files: int) -> None:
    name = make_table(spark, schema, files=files)
    if files:
        spark.sql(f"delete from {name}")
    result = recluster(spark, name, "k", final=True)
    assert (result.rounds, result.blocks_before, result.average_depth_after) == ([], 0, 0.0)
    assert clustering_information(spark, name)["total_block_count"] == 0
    assert blocks_opened(spark, name, "k = 1") == 0


def test_columns_with_odd_names_are_keys(spark: Any, schema: str) -> None:
    name = f"{schema}.t"
    rows = "id % 99 `a key`, id % 98 `Order`, id % 97 `sum(x)`, id % 96 `tick``ed`, struct(id % 95 zip) s, id `a.b.c`"
    spark.sql(f"create table {name} using iceberg as select /*+ repartition(4) */ {rows} from range(0, 400, 1, 4)")
    before = metadata_file(spark, name)
    for key in ("a.b.c", "`a.b.c`", "a"):
        with pytest.raises(ClusterKeyError):
            recluster(spark, name, key)
    assert metadata_file(spark, name) == before
    for key in ("`a key`", "order", "`sum(x)`", "`tick``ed`", "s.zip"):
        result = recluster_keeping_rows(spark, name, key, depth=1, block_rows=50, final=True)
        assert result.depth_after <= 2


NO_CHOICE = "it has a subquery. Use comparisons of columns"
BAD_INPUT: list[tuple[dict[str, Any], type[Exception], str]] = [
    *(({"table": name}, NotAnIcebergTableError, "is not the name of a table") for name in (None, 5, "", "a b")),
    *(({"table": name}, NotAnIcebergTableError, "cannot be loaded") for name in ("nope.t", "x.y.z.t")),
    ({"cluster_by": None}, ClusterKeyError, "has no cluster key"),
    ({"depth": 10**400}, OptionError, "depth must be a number of at least 1"),
    ({"max_merge_blocks": 1}, OptionError, "max_merge_blocks must be a whole number above 1, at most"),
    ({"where": "nope = 1"}, PredicateError, "cannot be resolved"),
    ({"where": "k ="}, PredicateError, "cannot choose blocks"),
    ({"where": "rand() < 0.5"}, PredicateError, "Cannot convert"),
    ({"where": "1=1; drop table x"}, PredicateError, "cannot choose blocks"),
    # Iceberg takes the first of these for every row.
    *(({"where": f"{text} (select 1)"}, PredicateError, NO_CHOICE) for text in ("k not in", "k =", "exists")),
    ({"where": "k > all (select 1)"}, PredicateError, "PARSE_SYNTAX_ERROR"),
]


def test_bad_input_changes_nothing(spark: Any, schema: str) -> None:
    name = make_table(spark, schema, files=2, rows=10)
    before = metadata_file(spark, name)
    for call, error, message in BAD_INPUT:
        with pytest.raises(error, match=message):
            recluster(spark, **{"table": name, "cluster_by": "k", **call})
        assert metadata_file(spark, name) == before, call
    spark.sql(f"alter table {name} write ordered by k desc")
    with pytest.raises(ClusterKeyError, match="is not a cluster key"):
        recluster(spark, name)


QUERIES = "queries must be a SQL predicate, a query or a list of them, or queries by name, not "
WHERE = "where must be a SQL predicate, such as .*, not "
SESSION = "spark must be a SparkSession .*, not "


def test_an_argument_of_a_wrong_type_is_one_sentence(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=2)
    before = metadata_file(spark, table)
    calls: list[tuple[Any, tuple[Any, ...], type[Exception], str]] = [
        *(
            (suggest_cluster_by, (spark, table, value), OptionError, QUERIES + re.escape(repr(value)))
            for value in (5, [5], {"a": None}, "", b"k = 1")
        ),
        *((blocks_opened, (spark, table, value), OptionError, f"{WHERE}{value!r}") for value in (None, " ")),
        (clustering_information, (spark, table, "k", 5), OptionError, f"{WHERE}5"),
        (partial(estimate_clustering_cost, now="soon"), (spark, table, "k"), OptionError, "now must be"),
        (recluster, (None, table), SparkEnvironmentError, f"{SESSION}None"),
    ]
    for function, arguments, error, message in calls:
        with pytest.raises(error, match=f"^{message}"):
            function(*arguments)
    assert metadata_file(spark, table) == before


def test_an_error_of_java_without_a_message_has_its_name(spark: Any) -> None:
    with pytest.raises(CapturedException) as caught:
        spark._jvm.java.util.Collections.emptyList().add(1)
    assert short_message(caught.value) == "UnsupportedOperationException"


def test_an_end_of_the_week_before_all_weeks(spark: Any, schema: str) -> None:
    """Loads after the end of the week are not among its loads."""
    table = make_table(spark, schema, files=2)
    append(spark, table, 1000, 10)  # the first commit is no load
    first = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))
    for now, loads in ((datetime.min, 0), (first, 0), (datetime.max, 0), (None, 1)):
        assert estimate_clustering_cost(spark, table, "k", now=now).loads == loads


GIVEN = {name: yaml.safe_load(option.example) for name, option in RECLUSTER_OPTIONS.items()}
GIVEN |= {"reads": "even", "where": "k > 1"}
TAKEN: dict[str, list[Any]] = defaultdict(list)
for name, function in inspect.getmembers(api, inspect.isfunction):
    for option in (parameters := inspect.signature(function).parameters):
        if (
            "spark" in parameters
            and option in RECLUSTER_OPTIONS
            and not (option == "where" and "recluster" not in name)
        ):
            TAKEN[option].append(function)


def test_an_option_that_a_function_is_not_given_is_the_one_on_record(spark: Any, schema: str) -> None:
    plain = keyed(spark, schema, "plain", rows=600)
    own = keyed(spark, schema, "own", rows=600, block_rows=400, depth=1, where="k < 300")
    assert (
        clustering_information(spark, own)["fragmentation"]
        == clustering_information(spark, plain, block_rows=400)["fragmentation"]
        != clustering_information(spark, plain)["fragmentation"]
    )
    given = {"block_rows": 400, "depth": 1}
    estimate = estimate_recluster(spark, own)
    expected = estimate_recluster(spark, plain, **given, where="k < 300").as_dict()
    assert estimate.as_dict() == {**expected, "table": own}
    assert clustering_report(spark, own).estimate == estimate
    costs = estimate_clustering_cost(spark, own), estimate_clustering_cost(spark, plain, **given)
    assert costs[0].first_bytes == costs[1].first_bytes != 0


@pytest.mark.thorough
@pytest.mark.parametrize("option", TAKEN)
def test_every_function_that_takes_an_option_reads_it_unless_it_is_given(spark: Any, schema: str, option: str) -> None:
    table = keyed(spark, schema, **{option: "[" if option == "reads" else ""})
    for function in TAKEN[option]:
        with pytest.raises(OptionError, match=f"table property recluster.option.{option} must be"):
            function(spark, table)
    for function in TAKEN[option]:
        function(spark, table, **{option: GIVEN[option]})
