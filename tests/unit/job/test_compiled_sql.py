"""The SQL of other dialects, with names that Spark understands."""

from __future__ import annotations

import pytest

from dbt_recluster.job.manifest import translate_to_spark

ATHENA = {
    '"awsdatacatalog"."sales"."orders"': "glue.sales.orders",
    '"awsdatacatalog"."sales"."a-b"': "glue.sales.`a-b`",
}
SPARK = {"sales.orders": "lake.sales.orders", "`sales`.`daily`": "lake.sales.daily"}


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ('select * from "awsdatacatalog"."sales"."orders" o', "select * from glue.sales.orders o"),
        ('from "awsdatacatalog"."sales"."a-b"', "from glue.sales.`a-b`"),
        ('"awsdatacatalog"."sales"."orders"."id" = 1', "glue.sales.orders.`id` = 1"),
        ('from "awsdatacatalog"."sales"."orders_old"', "from `awsdatacatalog`.`sales`.`orders_old`"),
        ('where "k" = 7 and o."K" < 8', "where `k` = 7 and o.`K` < 8"),
        (
            """select '"awsdatacatalog"."sales"."orders"' """,
            """select '"awsdatacatalog"."sales"."orders"' """,
        ),
        ("where a = 'it''s' and b = '\\' and c = ''", "where a = 'it\\'s' and b = '\\\\' and c = ''"),
        ('select 1 -- "a"\n, "a`b""c" /* "d" */', 'select 1 -- "a"\n, `a``b"c` /* "d" */'),
    ],
)
def test_names_between_double_quotes(query: str, read: str) -> None:
    assert translate_to_spark(query, ATHENA) == read


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("select orders.id from sales.orders", "select orders.id from lake.sales.orders"),
        ("select sales.orders.id, sales.orders_old.id", "select lake.sales.orders.id, sales.orders_old.id"),
        ("select sales.orders.* from `sales`.`daily`", "select lake.sales.orders.* from lake.sales.daily"),
        (
            "where a = \"sales.orders\" or a = 'it\\'s sales.orders'",
            "where a = \"sales.orders\" or a = 'it\\'s sales.orders'",
        ),
        ("from old.sales.orders -- sales.orders", "from old.sales.orders -- sales.orders"),
        ("select r'a\\d', 1e3, x'00'", "select r'a\\d', 1e3, x'00'"),
    ],
)
def test_names_as_spark_writes_them(query: str, read: str) -> None:
    assert translate_to_spark(query, SPARK) == read
