from collections.abc import Iterable

import pytest
from dbt.adapters.spark.column import SparkColumn

from dbt_recluster.adapter.table_clustering import (
    SchemaChanges,
    TableClustering,
    lost_metrics,
    partition_columns,
)
from dbt_recluster.exceptions import OptionError
from dbt_recluster.key.columns import Columns


def columns(**types: str) -> list[SparkColumn]:
    return [SparkColumn(column=name, dtype=spark_type) for name, spark_type in types.items()]


def changes(model: list[SparkColumn], table: list[SparkColumn], *, exact: bool = False) -> SchemaChanges:
    return SchemaChanges.between(model, table, exact)


def names(some: Iterable[SparkColumn]) -> list[str]:
    return [column.name for column in some]


def test_names_are_compared_as_the_session_does() -> None:
    model, table = columns(K="int", new="int"), columns(k="int", old="int")
    loose = changes(model, table)
    assert (names(loose.added), names(loose.missing)) == (["new"], ["old"])
    assert loose.without_missing(["`k`", "OLD", "`old`"]) == ["`k`"]
    exact = changes(model, table, exact=True)
    assert (names(exact.added), names(exact.missing)) == (["K", "new"], ["k", "old"])
    assert exact.without_missing(["K", "k"]) == ["K"]


def test_types_are_compared_as_iceberg_stores_them() -> None:
    struct, stored = "struct<smallint:tinyint,c:map<char(1),smallint>>", "struct<smallint:int,c:map<string,int>>"
    assert not changes(columns(a="smallint", b=struct), columns(a="int", b=stored))


def test_only_widening_of_a_type_is_allowed() -> None:
    for old, new in (("int", "bigint"), ("float", "double"), ("decimal(5,2)", "decimal(7,2)")):
        changes(columns(a=new), columns(a=old)).check_types("s.t")
        for before, after in ((new, old), (f"array<{old}>", f"array<{new}>"), ("decimal(5,2)", "decimal(7,3)")):
            retyped = changes(columns(a=after), columns(a=before))
            with pytest.raises(OptionError, match=r"a of s\.t is .*, and the model now selects .*--full-refresh"):
                retyped.check_types("s.t")


def test_metrics_modes_of_lost_fields_are_removed() -> None:
    prefix = "write.metadata.metrics.column."
    lost = ("s.gone", "s.deep.gone.b", "r.a", "former")
    stay = ("k", "s.a", "s.deep.b", "l.element.gone", "m.value", "x.y", "wide.z")
    kinds = "struct<a:int,deep:struct<b:int>>", "array<struct<a:int>>", "map<int,int>"
    columns = {**dict(zip(("s", "l", "m"), kinds, strict=True)), "k": "int", "x.y": "int"}
    columns["wide"] = "struct<a:int,... 9 more fields>"
    table = TableClustering("", {f"{prefix}{name}": "full" for name in (*lost, *stay)})
    change = lost_metrics(table, Columns.parse(columns))
    assert change.unset_properties == [f"{prefix}{name}" for name in lost]


def test_the_columns_of_partitions_are_read_from_the_description() -> None:
    columns = [("p", "int", None), ("ts", "timestamp", None)]
    header = [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
    transforms = ["days(ts)", "p", "bucket(4, `x y`)", "truncate(3, v)", "s.f"]
    parts = [(f"Part {i}", text, "") for i, text in enumerate(transforms)]
    for rest, found in (
        ([], []),
        ([*header, ("p", "int", None)], ["p"]),
        ([("", "", ""), ("# Partitioning", "", ""), *parts], ["ts", "p", "x y", "v", "s.f"]),
    ):
        assert partition_columns([*columns, *rest]) == found
