"""Queries of other engines, translated to Spark by sqlglot."""

import logging
import sys

import pytest

from dbt_recluster.advice.imported_reads import translate_to_spark
from dbt_recluster.exceptions import OptionError, PredicateError

TRINO = {"iceberg.sales.orders": "lake.sales.`or-ders`"}
SPARK = {"sales.orders": "lake.sales.orders", "sales.daily": "lake.sales.daily", "orders": "lake.o"}


def trino(query: str) -> str:
    return "; ".join(translate_to_spark(query, "trino", lambda name: TRINO.get(name.lower())))


@pytest.mark.parametrize(
    ("query", "read"),
    [
        (
            'select * from "iceberg"."sales"."orders" o where "k" = 7 and o."K" < 8',
            "SELECT * FROM lake.sales.`or-ders` AS o WHERE `k` = 7 AND o.`K` < 8",
        ),
        (
            "select Iceberg.sales.Orders.id from iceberg.sales.orders",
            "SELECT lake.sales.`or-ders`.id FROM lake.sales.`or-ders`",
        ),
        (
            'select 1 from "iceberg"."sales"."orders_old"',
            "SELECT 1 FROM `iceberg`.`sales`.`orders_old`",
        ),
        ("""select '"iceberg"."sales"."orders"' """, """SELECT '"iceberg"."sales"."orders"'"""),
        ("select 1 where a = 'it''s' and b = '\\'", "SELECT 1 WHERE a = 'it\\'s' AND b = '\\\\'"),
        ("select 1 from t fetch first 3 rows only", "SELECT 1 FROM t LIMIT 3"),
        ("insert into t with a as (select 1 x) select x from a", "WITH a AS (SELECT 1 AS x) SELECT x FROM a"),
        ("select sum(x) from unnest(sequence(1, 3)) as t(x)", None),
        ("delete from t where k = 1", "DELETE FROM t WHERE k = 1"),
        ("use s; select 1; execute immediate 'select ?' using 2; select 3;", "SELECT 1; SELECT 3"),
    ],
)
def test_queries_of_trino_are_translated_and_not_logged(
    query: str, read: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert trino(query) == read or read is None
    assert not caplog.text  # it would quote the query


@pytest.mark.parametrize(
    ("query", "read"),
    [
        (
            "select sales.orders.id, sales.orders_old.id from sales.orders",
            "SELECT lake.sales.orders.id, sales.orders_old.id FROM lake.sales.orders",
        ),
        ("select sales.daily.* from `sales`.`daily`", "SELECT lake.sales.daily.* FROM lake.sales.daily"),
        ("with orders as (select 1) select * from orders", "WITH orders AS (SELECT 1) SELECT * FROM orders"),
        (  # the `import` of a dbt model: its own name is the table's within a definition, unless it is recursive
            "with daily as (select * from orders), orders as (select * from orders where 1 in (select 1 from orders)) "
            "select * from orders where 2 in (select 2 from daily)",
            "WITH daily AS (SELECT * FROM lake.o), "
            "orders AS (SELECT * FROM lake.o WHERE 1 IN (SELECT 1 FROM lake.o)) "
            "SELECT * FROM orders WHERE 2 IN (SELECT 2 FROM daily)",
        ),
        (
            "with recursive orders as (select 1 union all select * from orders) select * from orders",
            "WITH RECURSIVE orders AS (SELECT 1 UNION ALL SELECT * FROM orders) SELECT * FROM orders",
        ),
        ('select 1 where a = "sales.orders"', "SELECT 1 WHERE a = 'sales.orders'"),
        ("select * from old.sales.orders", "SELECT * FROM old.sales.orders"),
        ("select r'a\\d', 1e3, x'00'", "SELECT 'a\\\\d', 1e3, X'00'"),
    ],
)
def test_queries_of_spark_itself_are_translated_too(query: str, read: str) -> None:
    assert translate_to_spark(query, "spark", lambda name: SPARK.get(name.lower())) == [read]


def test_what_cannot_be_parsed_is_not_quoted() -> None:
    with pytest.raises(PredicateError, match="a command is no query"):
        trino("execute immediate 'select ?' using 'secret'")
    for query in ("select 'secret' from where", "select ((((", "select 'secret", "(" * 5000):
        with pytest.raises(PredicateError, match="sqlglot cannot parse it as trino") as caught:
            trino(query)
        assert "secret" not in str(caught.value)


def test_an_unknown_dialect_and_no_sqlglot_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"dialect: Unknown dialect 'trno'\. Did you mean trino"):
        translate_to_spark("select 1", "trno", str)
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(OptionError, match=r"pip install 'dbt-recluster\[dialects\]'"):
        trino("select 1")
