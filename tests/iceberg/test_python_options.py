"""Options of the Python functions: wrong ones are one sentence, and those that a table records hold."""

from __future__ import annotations

import inspect
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from pyspark.errors.exceptions.captured import CapturedException
from tables import make_table, metadata_file

from dbt_recluster import maintenance
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.exceptions import OptionError, PredicateError, SparkEnvironmentError
from dbt_recluster.iceberg.session.redaction import short_message
from dbt_recluster.maintenance import (
    blocks_opened,
    clustering_information,
    clustering_report_data,
    estimate_clustering_cost,
    estimate_recluster,
    recluster,
    suggest_cluster_by,
)

QUERIES = "queries must be a SQL predicate, a query or a list of them, or queries by name, not "
WHERE = "where must be a SQL predicate, such as .*, not "


def test_wrong_types_are_one_sentence(spark: Any, schema: str) -> None:
    table = make_table(spark, schema, files=2)
    before = metadata_file(spark, table)
    queries = [
        (5, f"{QUERIES}5"),
        ([5], rf"{QUERIES}\[5\]"),
        ({"a": 5}, f"{QUERIES}{{'a': 5}}"),
        ({"a": None}, f"{QUERIES}{{'a': None}}"),
        ([None], rf"{QUERIES}\[None\]"),
        ("", f"{QUERIES}''"),
        (b"k = 1", f"{QUERIES}b'k = 1'"),
    ]
    calls: list[tuple[Any, tuple[Any, ...], type[Exception], str]] = [
        *((suggest_cluster_by, (spark, table, value), OptionError, message) for value, message in queries),
        *(
            (blocks_opened, (spark, table, value), OptionError, WHERE + repr(value))
            for value in (None, 5, " ")
        ),
        (clustering_information, (spark, table, "k", 5), OptionError, f"{WHERE}5"),
        (
            partial(estimate_clustering_cost, now="soon"),
            (spark, table, "k"),
            OptionError,
            "now must be a date",
        ),
        (recluster, (None, table), SparkEnvironmentError, "spark must be a SparkSession .*, not None"),
        (clustering_information, (7, table), SparkEnvironmentError, "spark must be .*, not 7"),
    ]
    for function, arguments, error, message in calls:
        with pytest.raises(error, match=f"^{message}"):
            function(*arguments)
    assert metadata_file(spark, table) == before


@pytest.mark.parametrize("function", ["in", "not in", "= ", "> all", "exists"])
def test_a_subquery_chooses_no_blocks(spark: Any, schema: str, function: str) -> None:
    """Iceberg takes ``not in (select ...)`` for every row."""
    table = make_table(spark, schema, files=2)
    where = f"{'' if function == 'exists' else 'k'} {function} (select max(k) from {table})"
    message = "PARSE_SYNTAX_ERROR" if function == "> all" else "it has a subquery. Use comparisons of columns"
    with pytest.raises(PredicateError, match=message):
        recluster(spark, table, "k", where=where)
    with pytest.raises(PredicateError, match=message):
        suggest_cluster_by(spark, table, [where])


def test_an_error_of_java_without_a_message_has_its_name(spark: Any) -> None:
    with pytest.raises(CapturedException) as caught:
        spark._jvm.java.util.Collections.emptyList().add(1)
    assert short_message(caught.value) == "UnsupportedOperationException"


def test_an_end_of_the_week_before_all_weeks(spark: Any, schema: str) -> None:
    """Loads after the end of the week are not among its loads."""
    table = make_table(spark, schema, files=2)
    first = datetime.min
    for now in (first, first.replace(tzinfo=timezone(timedelta(hours=14))), first + timedelta(days=2)):
        assert estimate_clustering_cost(spark, table, "k", now=now).loads == 0
    assert estimate_clustering_cost(spark, table, "k", now=datetime.max).loads == 0
    assert estimate_clustering_cost(spark, table, "k").loads == 1


GIVEN = {
    "block_rows": 400,
    "depth": 1,
    "final": True,
    "max_bytes": "1 GB",
    "max_merge_blocks": 4,
    "reads": "even",
    "strategy": "peak",
    "where": "k > 1",
}
FUNCTIONS = {name: getattr(maintenance, name) for name in maintenance.__all__}
TAKEN = [
    (name, option)
    for name, function in FUNCTIONS.items()
    if inspect.isfunction(function)
    for option in inspect.signature(function).parameters
    if option in RECLUSTER_OPTIONS and not (option == "where" and "recluster" not in name)
]


def recorded(spark: Any, schema: str, name: str = "t", **options: Any) -> str:
    properties = {f"recluster.option.{option}": value for option, value in options.items()}
    table = make_table(spark, schema, name=name, rows=500, properties=properties)
    spark.sql(f"alter table {table} write locally ordered by k")
    return table


def most_rows(spark: Any, table: str) -> int:
    return int(spark.sql(f"select max(record_count) from {table}.files").first()[0])


@pytest.mark.thorough
def test_a_recluster_goes_by_them(spark: Any, schema: str) -> None:
    table = recorded(spark, schema, block_rows=400, depth=1, final="true")
    done = recluster(spark, table, final=False)
    assert (len(done.rounds), done.rounds[0].rows) == (1, 3000)
    assert most_rows(spark, table) <= 400
    other = recorded(spark, schema, "other", block_rows=400, depth=1000)
    assert not recluster(spark, other).rounds
    assert recluster(spark, other, depth=1, block_rows=1500).rounds
    assert 1000 < most_rows(spark, other) <= 1500


def test_an_option_that_a_function_is_not_given_is_the_one_on_record(spark: Any, schema: str) -> None:
    plain = recorded(spark, schema, "plain")
    own = recorded(spark, schema, "own", block_rows=400, depth=1, where="k < 300")
    assert (
        clustering_information(spark, own)["fragmentation"]
        == clustering_information(spark, plain, block_rows=400)["fragmentation"]
        != clustering_information(spark, plain)["fragmentation"]
    )
    given = {"block_rows": 400, "depth": 1}
    of_own, of_plain = (
        estimate_recluster(spark, own),
        estimate_recluster(spark, plain, **given, where="k < 300"),
    )
    assert of_own.as_dict() == {**of_plain.as_dict(), "table": own}
    assert clustering_report_data(spark, own).estimate == of_own
    costs = estimate_clustering_cost(spark, own), estimate_clustering_cost(spark, plain, **given)
    assert costs[0].first_bytes == costs[1].first_bytes != 0


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "option"), TAKEN)
def test_every_function_that_takes_an_option_reads_it_unless_it_is_given(
    spark: Any, schema: str, name: str, option: str
) -> None:
    if option == "reads":
        wrong, message = "[", "table property recluster.option.reads must be"
    else:
        wrong, message = "", f"table property recluster.option.{option} must be"
    table = recorded(spark, schema, **{option: wrong})
    with pytest.raises(OptionError, match=message):
        FUNCTIONS[name](spark, table)
    FUNCTIONS[name](spark, table, **{option: GIVEN[option]})
