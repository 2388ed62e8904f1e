from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.adapter.relation_config import (
    ClusteringChange,
    TableClustering,
    clustering_change,
    creation_properties,
    restored_order,
)
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.key.columns import Columns
from dbt_recluster.operations.tables import ModelOptions, recorded_key

TYPES = {"id": "bigint", "name": "string", "ts": "timestamp"}
METRICS = "write.metadata.metrics.column."
ROW_GROUPS = "write.parquet.row-group-size-bytes"


def desired(**config: Any) -> ModelOptions:
    return ModelOptions.of_config(config).resolve(Columns.parse(TYPES))


def apply(table: TableClustering, change: ClusteringChange) -> TableClustering:
    """What Iceberg does with a change, as seen in a session: `write ordered by` sets the distribution mode to range."""
    properties = dict(table.properties)
    order = table.sort_order
    if change.order == "unordered":
        order, properties["write.distribution-mode"] = "", "none"
    elif change.order:
        items = change.order.removeprefix("locally ").removeprefix("ordered by ").replace("`", "")
        order = ", ".join(item if "ASC" in item else f"{item} ASC NULLS FIRST" for item in items.split(", "))
        if not change.order.startswith("locally"):
            properties["write.distribution-mode"] = "range"
    properties.update(change.set_properties)
    for name in change.unset_properties:
        properties.pop(name, None)
    return TableClustering(order, properties)


def clustered(config: ModelOptions) -> TableClustering:
    """What a table that was not clustered becomes."""
    return apply(TableClustering(), clustering_change(config, TableClustering()))


def test_nothing_is_altered_twice() -> None:
    for more in ({"cluster_by": "name"}, {"cluster_by": ["name", "id"], "sort_on_load": False}, {}):
        config = desired(**more)
        created = TableClustering("", creation_properties(config))
        for table in (clustered(config), apply(created, clustering_change(config, created))):
            assert not clustering_change(config, table)


def test_a_table_that_was_not_clustered_gets_the_same_properties() -> None:
    change = clustering_change(desired(cluster_by="name"), TableClustering())
    assert change.set_properties == {
        "recluster.cluster_by": "name",
        f"{METRICS}name": "full",
        ROW_GROUPS: str(4 * 2**20),
    }


@pytest.mark.parametrize("own", [{f"{METRICS}name": "truncate(64)"}, {ROW_GROUPS: "1048576"}])
def test_metrics_and_row_groups_that_somebody_set_stay(own: dict[str, str]) -> None:
    config, table = desired(cluster_by="name"), TableClustering("", own)
    for change in (clustering_change(config, table), clustering_change(config, TableClustering(), own)):
        assert not own.keys() & change.set_properties.keys()


def test_row_groups_of_wide_tables_are_larger() -> None:
    types = {f"c{i}": "int" for i in range(200)}
    config = ModelOptions.of_config({"cluster_by": "c7"}).resolve(Columns.parse(types))
    assert creation_properties(config)[ROW_GROUPS] == str(200 * 128 * 2**10)


def test_a_changed_key() -> None:
    change = clustering_change(desired(cluster_by=["id", "name"]), clustered(desired(cluster_by="name")))
    assert change.order == "ordered by `id`, `name`"
    assert change.set_properties == {"recluster.cluster_by": "id, name", f"{METRICS}id": "full"}


def test_loads_are_not_distributed_without_sort_on_load() -> None:
    change = clustering_change(desired(cluster_by="id", sort_on_load=False), TableClustering())
    assert change.order == "locally ordered by `id`"
    assert change.set_properties["write.distribution-mode"] == "none"
    back = clustering_change(desired(cluster_by="id"), apply(TableClustering(), change))
    assert back == ClusteringChange(set_properties={"write.distribution-mode": "range"})


def test_a_distribution_mode_of_the_model_wins() -> None:
    own = {"write.distribution-mode": "hash"}
    change = clustering_change(desired(cluster_by="id"), TableClustering("", own), own)
    assert change.order == "locally ordered by `id`"
    assert "write.distribution-mode" not in change.set_properties


def test_options_that_differ_from_the_defaults_are_recorded() -> None:
    config = desired(
        cluster_by="id",
        recluster_depth=2,
        recluster_final=True,
        recluster_max_bytes="1 GB",
        recluster_where="name = 'it''s'",
        recluster_strategy="peak",
        recluster_reads=["name = 'it''s'", {"where": "id > 5", "weight": 3}],
        block_rows=500,
        automatic_clustering=False,
    )
    recorded = {
        "recluster.option.reads": """["name = 'it''s'",{"where":"id > 5","weight":3.0}]""",
        "recluster.option.depth": "2",
        "recluster.option.final": "true",
        "recluster.option.max_bytes": str(2**30),
        "recluster.option.where": "name = 'it''s'",
        "recluster.option.strategy": "peak",
        "recluster.option.block_rows": "500",
        "recluster.option.automatic_clustering": "false",
    }
    assert recorded.items() <= creation_properties(config).items()
    table = clustered(config)
    assert recorded.items() <= table.properties.items()
    assert not clustering_change(config, table)
    assert ReclusterOptions.of_table(table.properties) == config.recluster
    assert recorded_key(table.properties) == config.cluster_by
    change = clustering_change(desired(cluster_by="id", recluster_depth=0.5), table)
    assert (change.order, change.set_properties) == (None, {"recluster.option.depth": "0.5"})
    assert {"recluster.option.depth", *change.unset_properties} == set(recorded)
    assert set(recorded) <= set(clustering_change(desired(), table).unset_properties)


def test_an_option_among_the_model_s_own_properties_stays() -> None:
    own = {"recluster.option.depth": "3"}
    table = apply(
        TableClustering("", own), clustering_change(desired(cluster_by="id"), TableClustering("", own), own)
    )
    assert table.properties["recluster.option.depth"] == "3"
    assert not clustering_change(desired(cluster_by="id", recluster_depth=8), table, own)
    assert "recluster.option.depth" not in clustering_change(desired(), table, own).unset_properties


CURVES = ("hilbert(id, name)", ["name", "hilbert(days(ts), id)"], ["hilbert(name, id)"])


@pytest.mark.parametrize("key", CURVES)
def test_a_curve_is_in_the_property_and_what_leads_it_in_the_order(key: Any) -> None:
    config = desired(cluster_by=key)
    assert config.cluster_by is not None
    created = TableClustering("", creation_properties(config))
    table = apply(created, clustering_change(config, created))
    assert table.sort_order == ("name ASC NULLS FIRST" if key[0] == "name" else "")
    assert table.properties["recluster.cluster_by"] == str(config.cluster_by)
    for field in config.cluster_by.fields:
        assert table.properties[f"{METRICS}{field.column}"] == "full"
    assert ("write.distribution-mode" in table.properties) is bool(table.sort_order)
    assert not clustering_change(config, table)


@pytest.mark.parametrize("key", CURVES)
@pytest.mark.parametrize("plain", ["name", ["id", "name"]])
def test_from_a_plain_key_to_a_curve_and_back(key: Any, plain: Any) -> None:
    """Boundaries go with the curve; nothing else differs from the table before."""
    curve, back = desired(cluster_by=key), desired(cluster_by=plain)
    table = clustered(back)
    turned = apply(table, clustering_change(curve, table))
    assert not clustering_change(curve, turned)
    recorded = {"recluster.curve.id": "x", "recluster.curve.ts": "x", "recluster.rest": "{}"}
    turned = TableClustering(turned.sort_order, {**turned.properties, **recorded})
    returned = apply(turned, clustering_change(back, turned))
    assert returned.sort_order == table.sort_order
    assert table.properties.items() <= returned.properties.items()
    assert not recorded.keys() & returned.properties.keys()


def test_boundaries_of_columns_that_stay_on_the_curve_stay() -> None:
    table = TableClustering("", creation_properties(desired(cluster_by="hilbert(id, name)")))
    recorded = {"recluster.curve.id": "x", "recluster.curve.name": "x", "recluster.rest": "{}"}
    table = TableClustering("", {**table.properties, **recorded})
    assert clustering_change(desired(cluster_by="hilbert(id, ts)"), table).unset_properties == (
        "recluster.curve.name",
    )
    assert not clustering_change(desired(cluster_by="hilbert(id, name)"), table)


@pytest.mark.parametrize("key", ["id", *CURVES])
def test_a_key_taken_away_is_cleared(key: Any) -> None:
    table = clustered(desired(cluster_by=key))
    recorded = {"recluster.curve.id": "x", "recluster.rest": "{}", "recluster.levels": "{}"}
    table = TableClustering(table.sort_order, {**table.properties, **recorded})
    change = clustering_change(desired(), table)
    assert change.order == ("unordered" if table.sort_order else None)
    cleared = apply(table, change)
    assert not [name for name in cleared.properties if name.startswith("recluster.") or name.endswith("mode")]
    assert not clustering_change(desired(), cleared)


def test_a_distribution_mode_of_the_model_is_kept_under_a_curve() -> None:
    own = {"write.distribution-mode": "hash"}
    config = desired(cluster_by="hilbert(id, name)")
    sorted_table = TableClustering("id ASC NULLS FIRST", {"write.distribution-mode": "range"})
    change = clustering_change(config, sorted_table, own)
    assert (change.order, change.set_properties["write.distribution-mode"]) == ("unordered", "hash")
    assert "write.distribution-mode" not in change.unset_properties
    by_hand = TableClustering("", {**creation_properties(config), **own})
    assert not clustering_change(config, by_hand, own)
    assert clustering_change(config, by_hand).unset_properties == ("write.distribution-mode",)


def test_an_order_that_somebody_set_by_hand_stays() -> None:
    by_hand = TableClustering("id DESC NULLS LAST", {"write.distribution-mode": "none"})
    assert not clustering_change(desired(), by_hand)


def test_a_replaced_table_gets_its_order_back() -> None:
    before = TableClustering(
        "id DESC NULLS LAST, days(ts) ASC NULLS FIRST", {"write.distribution-mode": "range"}
    )
    after = TableClustering("", {"write.distribution-mode": "range"})
    assert restored_order(before, after) == ClusteringChange(
        "locally ordered by `id` DESC NULLS LAST, days(`ts`) ASC NULLS FIRST"
    )
    assert restored_order(before, TableClustering()).set_properties == {"write.distribution-mode": "range"}
    odd = TableClustering("order date ASC NULLS FIRST, truncate(a`b, 4) DESC NULLS LAST, s.f ASC NULLS LAST")
    assert restored_order(odd, TableClustering()).order == (
        "locally ordered by `order date` ASC NULLS FIRST, truncate(4, `a``b`) DESC NULLS LAST, `s`.`f` ASC NULLS LAST"
    )
    assert not restored_order(TableClustering(), after)
    assert not restored_order(before, before)


def test_what_spark_hides_is_noticed_where_it_matters() -> None:
    hidden = "*********(redacted)"
    for name in ("recluster.cluster_by", "recluster.option.where", "recluster.curve.k", f"{METRICS}url"):
        assert TableClustering("", {name: hidden}).is_redacted
    assert TableClustering(hidden).is_redacted
    assert not TableClustering("", {"recluster.levels": hidden, "owner": hidden}).is_redacted


def test_reading_show_tblproperties() -> None:
    table = TableClustering.from_properties(
        [("format", "iceberg/parquet"), ("sort-order", "id ASC NULLS FIRST")]
    )
    assert table == TableClustering("id ASC NULLS FIRST", {"format": "iceberg/parquet"})
