"""The options that a table records: Python functions go by them, and what is given to a function wins."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from tables import make_table

from dbt_recluster import maintenance
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.exceptions import OptionError
from dbt_recluster.maintenance import (
    clustering_information,
    clustering_report_data,
    estimate_clustering_cost,
    estimate_recluster,
    recluster,
)

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
