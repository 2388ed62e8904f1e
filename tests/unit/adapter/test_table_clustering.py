"""What is altered so that a table has the clustering of its model, and which loads are sorted along its curve."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.adapter.table_clustering import (
    ClusteringChange,
    LoadedInto,
    TableClustering,
    clustering_change,
    creation_properties,
    restored_order,
    sorted_along_curve,
)
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.table_curve import as_properties
from dbt_recluster.iceberg.sort_order import recorded_key
from dbt_recluster.key.cluster_key import ClusterKey, parse_cluster_key
from dbt_recluster.key.columns import Columns
from dbt_recluster.key.curve import Curve
from dbt_recluster.operations.model_options import ModelOptions

TYPES = {"id": "bigint", "name": "string", "ts": "timestamp"}
MODE = "write.distribution-mode"
METRICS = "write.metadata.metrics.column."
ROW_GROUPS = "write.parquet.row-group-size-bytes"


def desired(**config: Any) -> ModelOptions:
    return ModelOptions.from_config(config).resolve(Columns.parse(TYPES))


def apply(table: TableClustering, change: ClusteringChange) -> TableClustering:
    """What Iceberg does with a change, as seen in a session: `write ordered by` sets the distribution mode to range."""
    properties = dict(table.properties)
    order = table.sort_order
    if change.order == "unordered":
        order, properties[MODE] = "", "none"
    elif change.order:
        items = change.order.removeprefix("locally ").removeprefix("ordered by ").replace("`", "")
        order = ", ".join(item if "ASC" in item else f"{item} ASC NULLS FIRST" for item in items.split(", "))
        if not change.order.startswith("locally"):
            properties[MODE] = "range"
    properties.update(change.set_properties)
    for name in change.unset_properties:
        properties.pop(name, None)
    return TableClustering(order, properties)


PLAIN = ("name", ["id", "name"], "to_date(ts)")
CURVES = ("hilbert(id, name)", "hilbert(id, ts)", ["name", "hilbert(days(ts), id)"])
MODELS = st.fixed_dictionaries(
    {"cluster_by": st.sampled_from([None, *PLAIN, *CURVES])},
    optional={
        "sort_on_load": st.booleans(),
        "recluster_depth": st.sampled_from([0.5, 2, "auto"]),
        "recluster_final": st.just(True),
        "recluster_max_bytes": st.just("1 GB"),
        "recluster_where": st.just("name = 'it''s'"),
        "recluster_strategy": st.just("peak"),
        "recluster_reads": st.just(["name = 'it''s'", {"where": "id > 5", "weight": 3}]),
        "block_rows": st.just(500),
        "automatic_clustering": st.just(False),
    },
)


@given(st.lists(st.tuples(MODELS, st.booleans()), min_size=1, max_size=5))
def test_a_change_of_configs_converges_in_one_alter(models: list[tuple[dict[str, Any], bool]]) -> None:
    """After one change, which nothing follows: no ALTER when nothing changed. A key taken away leaves nothing."""
    table = TableClustering("", {"owner": "Ann"})
    for config, is_replaced in models:
        model, boundaries = desired(**config), {n for n in table.properties if ".curve." in n}
        key = model.cluster_by
        if is_replaced:
            table, boundaries = TableClustering("", {"owner": "Ann", **creation_properties(model)}), set()
        table = apply(table, clustering_change(model, table))
        assert not clustering_change(model, table)
        mode = "range" if model.sort_on_load else "none"
        assert table.properties.get(MODE) == (mode if key and key.leading else None)
        recorded = {name for name in table.properties if name.startswith("recluster.")}
        if key is None:
            assert (table.sort_order, recorded) == ("", set())
            continue
        assert table.sort_order == ", ".join(f"{f.transform.text(f.column)} ASC NULLS FIRST" for f in key.leading)
        assert (recorded_key(table.properties), table.properties["owner"]) == (key, "Ann")
        assert ReclusterOptions.from_properties(table.properties) == model.recluster
        options = {name for name in recorded if name.startswith("recluster.option.")}
        assert len(options) == len(config.keys() - {"cluster_by", "sort_on_load"})
        assert {table.properties[f"{METRICS}{field.column}"] for field in key.fields} == {"full"}
        # What merges record stays as long as it is of the key: the boundaries of columns that are still on the curve.
        on_curve = {f"recluster.curve.{field.column}" for field in key.on_curve}
        assert {name for name in recorded if ".curve." in name} == boundaries & on_curve
        merged = {**dict.fromkeys(on_curve, "x"), "recluster.levels": "{}"}
        merged |= {"recluster.settled": "{}"} if key.curve else {}
        table = TableClustering(table.sort_order, {**table.properties, **merged})
        assert not clustering_change(model, table)


def test_the_statements_of_a_new_key_and_of_a_changed_one() -> None:
    first = clustering_change(desired(cluster_by="name"), TableClustering())
    own = {"recluster.cluster_by": "name", f"{METRICS}name": "full", ROW_GROUPS: str(4 * 2**20)}
    assert (first.order, first.set_properties) == ("ordered by `name`", own)
    config = desired(cluster_by=["id", "name"], sort_on_load=False)
    change = clustering_change(config, apply(TableClustering(), first))
    assert change.order == "locally ordered by `id`, `name`"
    changed = {"recluster.cluster_by": "id, name", f"{METRICS}id": "full", MODE: "none"}
    assert change.set_properties == changed


def test_row_groups_of_wide_tables_are_larger() -> None:
    types = {f"c{i}": "int" for i in range(200)}
    config = ModelOptions.from_config({"cluster_by": "c7"}).resolve(Columns.parse(types))
    assert creation_properties(config)[ROW_GROUPS] == str(200 * 128 * 2**10)


@pytest.mark.parametrize(
    "own",
    [
        {f"{METRICS}name": "truncate(64)"},
        {ROW_GROUPS: "1048576"},
        {"recluster.option.depth": "3"},
        {MODE: "hash"},
    ],
)
@pytest.mark.parametrize("key", ["name", CURVES[0]])
def test_a_property_of_the_model_s_own_wins(own: dict[str, str], key: str) -> None:
    config = desired(cluster_by=key, recluster_depth=8)
    table = apply(TableClustering("", own), clustering_change(config, TableClustering("", own), own))
    assert own.items() <= table.properties.items()
    assert not clustering_change(config, table, own)
    assert not own.keys() & set(clustering_change(desired(), table, own).unset_properties)
    sorted_table = TableClustering("id ASC NULLS FIRST", {MODE: "range", **own})
    assert own.items() <= apply(sorted_table, clustering_change(config, sorted_table, own)).properties.items()


def test_metrics_and_row_groups_that_somebody_set_by_hand_stay() -> None:
    own = {f"{METRICS}name": "truncate(64)", ROW_GROUPS: "1048576"}
    change = clustering_change(desired(cluster_by="name"), TableClustering("", own))
    assert not own.keys() & change.set_properties.keys()


def test_an_order_that_somebody_set_by_hand_stays() -> None:
    by_hand = TableClustering("id DESC NULLS LAST", {MODE: "none"})
    assert not clustering_change(desired(), by_hand)


def test_a_replaced_table_gets_its_order_back() -> None:
    before = TableClustering("id DESC NULLS LAST, days(ts) ASC NULLS FIRST", {MODE: "range"})
    after = TableClustering("", {MODE: "range"})
    assert restored_order(before, after) == ClusteringChange(
        "locally ordered by `id` DESC NULLS LAST, days(`ts`) ASC NULLS FIRST"
    )
    assert restored_order(before, TableClustering()).set_properties == {MODE: "range"}
    odd = TableClustering("order date ASC NULLS FIRST, truncate(a`b, 4) DESC NULLS LAST, s.f ASC NULLS LAST")
    assert restored_order(odd, TableClustering()).order == (
        "locally ordered by `order date` ASC NULLS FIRST, truncate(4, `a``b`) DESC NULLS LAST, `s`.`f` ASC NULLS LAST"
    )
    assert not restored_order(TableClustering(), after)
    assert not restored_order(before, before)


def test_redacted_properties_that_are_read_are_detected() -> None:
    hidden = "*********(redacted)"
    for name in ("recluster.cluster_by", "recluster.option.where", "recluster.curve.k", f"{METRICS}url"):
        assert TableClustering("", {name: hidden}).is_redacted
    assert TableClustering(hidden).is_redacted
    assert not TableClustering("", {"recluster.levels": hidden, "owner": hidden}).is_redacted


LOADED_TYPES = {"k": "bigint", "id": "bigint", "p": "int", "name": "string"}
LOADED = Columns.parse(LOADED_TYPES)
CURVE, LED = "hilbert(k, id)", "p, hilbert(k, id)"


def key(text: str = CURVE) -> ClusterKey:
    return parse_cluster_key(text).check(LOADED)


def boundaries() -> dict[str, str]:
    curve = Curve.from_columns([pa.array(range(5000), pa.int64())] * 2)
    assert curve is not None
    return as_properties(key(), curve, {name: number for number, name in enumerate(LOADED_TYPES, 1)})


@pytest.mark.parametrize(
    ("cluster_by", "partitions", "more", "order"),
    [
        (LED, None, {}, "`p`, place_0_of_load, `k`, `id`"),
        (CURVE, "left(name, 2)", {}, "substr(`name`, 1, 2), place_0_of_load, `k`, `id`"),
        # A column may be named like the place.
        (CURVE, None, {"Place_0_states": "int", "place_1": "int"}, "place_2_of_load, `k`, `id`"),
    ],
)
def test_the_query_of_a_load_has_its_columns_and_an_order(
    cluster_by: str, partitions: str | None, more: dict[str, str], order: str
) -> None:
    columns = Columns.parse({**LOADED_TYPES, **more})
    by_partition = parse_cluster_key(partitions) if partitions else None
    text = sorted_along_curve("select 1", key(cluster_by), boundaries(), columns, by_partition)
    assert text is not None
    selected = ", ".join(f"`{name}`" for name in columns.names)
    assert text.startswith(f"select {selected} from (")
    assert text.endswith(f"order by {order}")


@pytest.mark.parametrize(
    ("types", "properties"),
    [
        (LOADED_TYPES, {}),
        (LOADED_TYPES, {"recluster.curve.k": "tampered", "recluster.curve.id": "{}"}),
        *(({**LOADED_TYPES, "k": kind}, boundaries()) for kind in ("string", "binary", "map<int,int>")),
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
    options = ModelOptions.from_config({"cluster_by": cluster_by, **config}).resolve(LOADED)
    order = "p ASC NULLS FIRST" if cluster_by == LED else ""
    into = LoadedInto.from_config({"materialized": "incremental", **config})
    for recorded, mode in (({}, before), (boundaries(), after)):
        change = clustering_change(options, TableClustering(order, {MODE: "hash", **recorded}), None, into)
        assert change.set_properties.get(MODE) == mode
        assert (MODE in change.unset_properties) is (mode is None)
