from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.adapter.config import (
    PARSERS,
    ClusteringConfig,
    clustering_turned_off,
    parse_automatic_clustering,
    parse_block_rows,
    parse_bytes,
    parse_cluster_by,
    parse_recluster_depth,
    parse_recluster_where,
)
from dbt_recluster.cluster_key import parse_cluster_key
from dbt_recluster.clustering.known_reads import KnownRead
from dbt_recluster.columns import Columns
from dbt_recluster.exceptions import ClusterKeyError, OptionError


def parse(**config: Any) -> ClusteringConfig:
    return ClusteringConfig.parse(config.get, config)


def test_defaults() -> None:
    assert parse() == ClusteringConfig(
        cluster_by=None,
        automatic_clustering=True,
        depth=None,
        final=False,
        max_bytes=None,
        where=None,
        block_rows=1_000_000,
        sort_on_load=True,
    )


def test_every_key() -> None:
    config = parse(
        cluster_by=["to_date(ts)", "id"],
        automatic_clustering=False,
        recluster_depth=2.5,
        recluster_final=True,
        recluster_strategy="peak",
        recluster_max_bytes="1.5 GB",
        recluster_where="id > 3",
        recluster_reads=["id > 5", {"where": "id = 7", "weight": 3}],
        block_rows=1000,
        sort_on_load=False,
        materialized="table",
    )
    assert config == ClusteringConfig(
        cluster_by=parse_cluster_key(["days(ts)", "id"]),
        automatic_clustering=False,
        depth=2.5,
        final=True,
        strategy="peak",
        max_bytes=1536 * 2**20,
        where="id > 3",
        reads=(KnownRead("id > 5"), KnownRead("id = 7", 3.0)),
        block_rows=1000,
        sort_on_load=False,
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cluster_by", 3, "cluster_by must be a string or a list"),
        ("automatic_clustering", "maybe", "automatic_clustering must be true or false, not 'maybe'"),
        ("recluster_depth", "deep", "recluster_depth must be a number of at least 1"),
        ("recluster_depth", 0, "recluster_depth must be"),
        ("recluster_depth", -1, "recluster_depth must be"),
        ("recluster_depth", True, "recluster_depth must be"),
        ("recluster_depth", "nan", "recluster_depth must be"),
        ("recluster_depth", float("inf"), "recluster_depth must be"),
        ("recluster_final", [], "recluster_final must be true or false"),
        ("recluster_strategy", "best", "recluster_strategy must be one of .*peak.*, not 'best'"),
        ("recluster_strategy", [], "recluster_strategy must be one of"),
        ("recluster_max_bytes", "ten", "recluster_max_bytes must be a number of bytes above 0"),
        ("recluster_max_bytes", 0, "recluster_max_bytes must be"),
        ("recluster_max_bytes", -5, "recluster_max_bytes must be"),
        ("recluster_max_bytes", True, "recluster_max_bytes must be"),
        ("recluster_where", 7, "recluster_where must be a SQL predicate"),
        ("recluster_where", "  ", "recluster_where must be a SQL predicate"),
        ("block_rows", 0, "block_rows must be a whole number above 0, at most"),
        ("block_rows", 1.5, "block_rows must be a whole number above 0, at most"),
        ("block_rows", "nan", "block_rows must be a whole number above 0, at most"),
        ("block_rows", "many", "block_rows must be a whole number above 0, at most"),
        ("sort_on_load", 2, "sort_on_load must be true or false"),
        ("recluster_reads", 7, "recluster_reads must be a list of queries, or of SQL predicates"),
        ("recluster_reads", [{"weight": 2}], "recluster_reads: a read is a query, or a SQL predicate"),
    ],
)
def test_wrong_values_name_the_key_and_what_is_allowed(key: str, value: Any, message: str) -> None:
    with pytest.raises((OptionError, ClusterKeyError), match=message):
        parse(**{key: value})


def test_a_misspelt_key_is_found() -> None:
    with pytest.raises(
        OptionError, match="recluster_dept is not a config of dbt-recluster; there are recluster_depth"
    ):
        parse(recluster_dept=3)


def test_values_from_env_var_are_strings() -> None:
    config = parse(
        automatic_clustering="False", recluster_depth="3", block_rows="5000", recluster_max_bytes="1000"
    )
    assert (config.automatic_clustering, config.depth, config.block_rows, config.max_bytes) == (
        False,
        3.0,
        5000,
        1000,
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [(10, 10), ("10", 10), ("10 b", 10), ("2KB", 2048), ("0.5 mb", 524288), ("1 TB", 2**40)],
)
def test_sizes(value: Any, expected: int) -> None:
    assert parse_bytes("max_bytes", value) == expected


def test_each_key_has_a_parser_that_takes_none_for_its_default() -> None:
    for parser in PARSERS.values():
        parser(None)
    assert parse_cluster_by([]) is None
    assert parse_recluster_where(None) is None
    assert parse_recluster_depth(0.001) == 0.001
    assert parse_recluster_depth(" Auto") == "auto"
    assert parse_automatic_clustering(None) is True
    assert parse_block_rows(None) == 1_000_000


def test_turning_off_for_one_run() -> None:
    assert clustering_turned_off({}, {}) is None
    assert clustering_turned_off({"automatic_clustering": True}, {}) is None
    assert clustering_turned_off({"automatic_clustering": "false"}, {}) == "var automatic_clustering"
    environment = {"DBT_RECLUSTER_AUTOMATIC_CLUSTERING": "0"}
    assert clustering_turned_off({}, environment) == "environment variable DBT_RECLUSTER_AUTOMATIC_CLUSTERING"
    assert clustering_turned_off({}, {"DBT_RECLUSTER_AUTOMATIC_CLUSTERING": ""}) is None
    with pytest.raises(OptionError, match="var automatic_clustering must be true or false"):
        clustering_turned_off({"automatic_clustering": "perhaps"}, {})


def test_order_of_a_load() -> None:
    columns = Columns.parse({"Id": "bigint", "ts": "timestamp"})
    config = parse(cluster_by=["to_date(ts)", "ID"]).resolve(columns)
    assert config.order_by() == "cast(`ts` as date), `Id`"
    assert parse(cluster_by="id", sort_on_load=False).resolve(columns).order_by() is None
    assert parse().resolve(columns).order_by() is None
