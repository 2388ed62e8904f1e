"""What the public functions answer to arguments of the wrong type: one sentence, before anything is read or written."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from pyspark.errors.exceptions.captured import CapturedException
from tables import make_table, metadata_file

from dbt_recluster.exceptions import OptionError, PredicateError, SparkEnvironmentError
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.maintenance import (
    blocks_opened,
    clustering_information,
    estimate_clustering_cost,
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
