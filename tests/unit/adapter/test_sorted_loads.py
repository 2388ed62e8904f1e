"""Which loads are sorted along a curve, and by which query."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dbt_recluster.adapter.relation_config import (
    LoadedInto,
    TableClustering,
    clustering_change,
    sorted_along_curve,
)
from dbt_recluster.clustering.curve_boundaries import as_properties
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import Columns
from dbt_recluster.key.curve import Curve
from dbt_recluster.operations.tables import ModelOptions

TYPES = {"k": "bigint", "id": "bigint", "p": "int", "ts": "timestamp"}
COLUMNS = Columns.parse(TYPES)
MODE = "write.distribution-mode"


def key(text: str = "hilbert(k, id)") -> ClusterKey:
    return parse_cluster_key(text).check(COLUMNS)


def boundaries(key: ClusterKey) -> dict[str, str]:
    numbers = pa.array(range(5000), pa.int64())
    curve = Curve.of([numbers] * key.curve)
    assert curve is not None
    return as_properties(key, curve, {name: number for number, name in enumerate(TYPES, 1)})


def loaded(**config: Any) -> LoadedInto:
    return LoadedInto.of_config({"materialized": "incremental", **config})


def test_the_query_has_the_columns_of_the_query() -> None:
    text = sorted_along_curve("select 1", key("p, hilbert(k, id)"), boundaries(key()), COLUMNS, None)
    assert text is not None
    assert text.startswith("select `k`, `id`, `p`, `ts` from (")
    assert text.endswith("order by `p`, place_0_of_load, `k`, `id`")
    partitions = parse_cluster_key("days(ts)")
    text = sorted_along_curve("select 1", key(), boundaries(key()), COLUMNS, partitions)
    assert text is not None
    assert text.endswith("order by cast(`ts` as date), place_0_of_load, `k`, `id`")


def test_a_column_may_be_named_like_the_place() -> None:
    columns = Columns.parse({**TYPES, "Place_0_states": "int", "place_1": "int"})
    text = sorted_along_curve("select 1", key(), boundaries(key()), columns, None)
    assert text is not None
    assert text.endswith("order by place_2_of_load, `k`, `id`")


@pytest.mark.parametrize(
    ("types", "properties"),
    [
        (TYPES, {}),
        (TYPES, {"recluster.curve.k": "tampered", "recluster.curve.id": "{}"}),
        ({**TYPES, "k": "string"}, boundaries(key())),
        ({**TYPES, "k": "binary"}, boundaries(key())),
        ({**TYPES, "k": "timestamp"}, {}),
        ({**TYPES, "k": "map<int,int>"}, boundaries(key())),
        ({"k": "bigint"}, boundaries(key())),
    ],
)
def test_what_does_not_fit_is_loaded_unsorted(types: dict[str, str], properties: dict[str, str]) -> None:
    assert sorted_along_curve("select 1", key(), properties, Columns.parse(types), None) is None


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, True),
        ({"incremental_strategy": "append"}, True),
        ({"incremental_strategy": "merge"}, False),
        ({"materialized": "table"}, False),
        ({"materialized": "snapshot"}, False),
        ({"partition_by": "p"}, True),
        ({"partition_by": ["p", "days(ts)"]}, True),
        ({"partition_by": ["bucket(4, p)"]}, False),
        ({"partition_by": []}, True),
        ({"incremental_strategy": "insert_overwrite", "partition_by": "p"}, True),
    ],
)
def test_loads_that_can_be_sorted(config: dict[str, Any], expected: bool) -> None:
    assert loaded(**config).can_be_sorted is expected


@pytest.mark.parametrize(
    ("cluster_by", "config", "before", "after"),
    [
        ("hilbert(k, id)", {}, None, None),
        ("hilbert(k, id)", {"partition_by": "p"}, None, "none"),
        ("hilbert(k, id)", {"partition_by": "bucket(4, p)"}, None, None),
        ("p, hilbert(k, id)", {}, "range", "none"),
        ("p, hilbert(k, id)", {"incremental_strategy": "merge"}, "range", "range"),
        ("p, hilbert(k, id)", {"materialized": "table"}, "range", "range"),
        ("p, hilbert(k, id)", {"sort_on_load": False}, "none", "none"),
        ("hilbert(k, id)", {"sort_on_load": False, "partition_by": "p"}, None, None),
    ],
)
def test_the_mode_before_and_after_boundaries_are_drawn(
    cluster_by: str, config: dict[str, Any], before: str | None, after: str | None
) -> None:
    options = ModelOptions.of_config({"cluster_by": cluster_by, **config}).resolve(COLUMNS)
    order = "p ASC NULLS FIRST" if cluster_by.startswith("p") else ""
    table = TableClustering(order, {MODE: "hash"})
    for recorded, mode in (({}, before), (boundaries(key()), after)):
        change = clustering_change(
            options, TableClustering(order, {**table.properties, **recorded}), None, loaded(**config)
        )
        assert change.set_properties.get(MODE) == mode
        assert (MODE in change.unset_properties) is (mode is None)
