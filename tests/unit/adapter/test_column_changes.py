from __future__ import annotations

import pytest
from dbt.adapters.spark.column import SparkColumn

from dbt_recluster.adapter.relation_config import (
    SchemaChanges,
    TableClustering,
    lost_metrics,
    partition_columns,
)
from dbt_recluster.exceptions import OptionError
from dbt_recluster.key.columns import Columns


def columns(**types: str) -> list[SparkColumn]:
    return [SparkColumn(column=name, dtype=spark_type) for name, spark_type in types.items()]


def changes(
    model: list[SparkColumn], table: list[SparkColumn], *, case_sensitive: bool = False
) -> SchemaChanges:
    return SchemaChanges.between(model, table, case_sensitive)


def names(some: object) -> list[str]:
    return [column.name for column in some]  # type: ignore[attr-defined]


def test_names_are_compared_as_the_session_does() -> None:
    model, table = columns(K="int", new="int"), columns(k="int", old="int")
    loose = changes(model, table)
    assert (names(loose.added), names(loose.missing)) == (["new"], ["old"])
    assert loose.without_missing(["`k`", "OLD", "`old`"]) == ["`k`"]
    exact = changes(model, table, case_sensitive=True)
    assert (names(exact.added), names(exact.missing)) == (["K", "new"], ["k", "old"])
    assert exact.without_missing(["K", "k"]) == ["K"]


@pytest.mark.parametrize(
    ("model", "table"),
    [
        ("smallint", "int"),
        ("char(3)", "string"),
        ("array<varchar(10)>", "array<string>"),
        ("struct<smallint:tinyint,c:map<char(1),smallint>>", "struct<smallint:int,c:map<string,int>>"),
    ],
)
def test_types_are_compared_as_iceberg_stores_them(model: str, table: str) -> None:
    assert not changes(columns(a=model), columns(a=table))


@pytest.mark.parametrize(
    ("old", "new", "widened"),
    [
        ("int", "bigint", True),
        ("float", "double", True),
        ("decimal(5,2)", "decimal(7,2)", True),
        ("decimal(5,2)", "decimal(7,3)", False),
        ("decimal(5,2)", "decimal(4,2)", False),
        ("bigint", "int", False),
        ("int", "decimal(20,0)", False),
        ("int", "string", False),
        ("array<int>", "array<bigint>", False),
    ],
)
def test_only_widening_is_allowed(old: str, new: str, widened: bool) -> None:
    retyped = changes(columns(a=new), columns(a=old))
    if widened:
        retyped.check_types("s.t")
    else:
        with pytest.raises(OptionError, match=r"a of s\.t is .*, and the model now selects .*--full-refresh"):
            retyped.check_types("s.t")


def test_what_lost_fields_leave_behind_goes() -> None:
    prefix = "write.metadata.metrics.column."
    lost = ("s.gone", "s.deep.gone.b", "r.a", "former")
    stay = ("k", "s.a", "s.deep.b", "l.element.gone", "m.value", "x.y", "wide.z")
    kinds = "struct<a:int,deep:struct<b:int>>", "array<struct<a:int>>", "map<int,int>"
    columns = {**dict(zip(("s", "l", "m"), kinds, strict=True)), "k": "int", "x.y": "int"}
    columns["wide"] = "struct<a:int,... 9 more fields>"
    table = TableClustering("", {f"{prefix}{name}": "full" for name in (*lost, *stay)})
    change = lost_metrics(table, Columns.parse(columns))
    assert change.unset_properties == tuple(f"{prefix}{name}" for name in lost)


def test_the_columns_of_partitions_are_read_from_the_description() -> None:
    columns = [("p", "int", None), ("ts", "timestamp", None)]
    assert partition_columns(columns) == []
    header = [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
    assert partition_columns([*columns, *header, ("p", "int", None)]) == ["p"]
    transforms = ["days(ts)", "p", "bucket(4, `x y`)", "truncate(3, v)", "s.f"]
    parts = [(f"Part {i}", text, "") for i, text in enumerate(transforms)]
    description = [*columns, ("", "", ""), ("# Partitioning", "", ""), *parts]
    assert partition_columns(description) == ["ts", "p", "x y", "v", "s.f"]
