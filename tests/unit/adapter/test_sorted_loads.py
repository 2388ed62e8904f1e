"""Which loads are sorted along a curve, and by which query."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dbt_recluster.adapter.relations.relation_config import (
    LoadedInto,
    TableClustering,
    clustering_change,
    sorted_along_curve,
)
from dbt_recluster.clustering.curve_boundaries import as_properties
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import Columns
from dbt_recluster.key.curve import Curve
from dbt_recluster.operations.model_options import ModelOptions

TYPES = {"k": "bigint", "id": "bigint", "p": "int", "ts": "timestamp"}
COLUMNS = Columns.parse(TYPES)
MODE = "write.distribution-mode"
CURVE, LED = "hilbert(k, id)", "p, hilbert(k, id)"


def key(text: str = CURVE) -> ClusterKey:
    return parse_cluster_key(text).check(COLUMNS)


def boundaries() -> dict[str, str]:
    curve = Curve.of([pa.array(range(5000), pa.int64())] * 2)
    assert curve is not None
    return as_properties(key(), curve, {name: number for number, name in enumerate(TYPES, 1)})


@pytest.mark.parametrize(
    ("cluster_by", "partitions", "more", "order"),
    [
        (LED, None, {}, "`p`, place_0_of_load, `k`, `id`"),
        (CURVE, "days(ts)", {}, "cast(`ts` as date), place_0_of_load, `k`, `id`"),
        # A column may be named like the place.
        (CURVE, None, {"Place_0_states": "int", "place_1": "int"}, "place_2_of_load, `k`, `id`"),
    ],
)
def test_the_query_of_a_load_has_its_columns_and_an_order(
    cluster_by: str, partitions: str | None, more: dict[str, str], order: str
) -> None:
    columns = Columns.parse({**TYPES, **more})
    by_partition = parse_cluster_key(partitions) if partitions else None
    text = sorted_along_curve("select 1", key(cluster_by), boundaries(), columns, by_partition)
    assert text is not None
    selected = ", ".join(f"`{name}`" for name in columns.names)
    assert text.startswith(f"select {selected} from (")
    assert text.endswith(f"order by {order}")


@pytest.mark.parametrize(
    ("types", "properties"),
    [
        (TYPES, {}),
        (TYPES, {"recluster.curve.k": "tampered", "recluster.curve.id": "{}"}),
        *(({**TYPES, "k": kind}, boundaries()) for kind in ("string", "binary", "map<int,int>")),
        ({"k": "bigint"}, boundaries()),
    ],
)
def test_a_load_that_does_not_fit_the_boundaries_is_not_sorted(types: Any, properties: Any) -> None:
    assert sorted_along_curve("select 1", key(), properties, Columns.parse(types), None) is None


@pytest.mark.parametrize(
    ("cluster_by", "config", "before", "after"),
    [
        (CURVE, {}, None, None),
        (CURVE, {"partition_by": "p"}, None, "none"),
        (CURVE, {"partition_by": "bucket(4, p)"}, None, None),
        (LED, {}, "range", "none"),
        (LED, {"partition_by": ["p", "days(ts)"]}, "range", "none"),
        (LED, {"partition_by": ["bucket(4, p)"]}, "range", "range"),
        (LED, {"incremental_strategy": "insert_overwrite", "partition_by": "p"}, "range", "none"),
        (LED, {"incremental_strategy": "merge"}, "range", "range"),
        (LED, {"materialized": "table"}, "range", "range"),
        (LED, {"materialized": "snapshot"}, "range", "range"),
        (LED, {"sort_on_load": False}, "none", "none"),
        (CURVE, {"sort_on_load": False, "partition_by": "p"}, None, None),
    ],
)
def test_spark_distributes_no_load_that_its_query_sorts(
    cluster_by: str, config: dict[str, Any], before: str | None, after: str | None
) -> None:
    """Before boundaries are drawn, and after."""
    options = ModelOptions.of_config({"cluster_by": cluster_by, **config}).resolve(COLUMNS)
    order = "p ASC NULLS FIRST" if cluster_by == LED else ""
    into = LoadedInto.of_config({"materialized": "incremental", **config})
    for recorded, mode in (({}, before), (boundaries(), after)):
        change = clustering_change(options, TableClustering(order, {MODE: "hash", **recorded}), None, into)
        assert change.set_properties.get(MODE) == mode
        assert (MODE in change.unset_properties) is (mode is None)
