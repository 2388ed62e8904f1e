from typing import Any

import manifests
import pytest

from dbt_recluster.exceptions import OptionError
from dbt_recluster.names import NameResolution
from dbt_recluster.operations.arguments import TABLE
from dbt_recluster.operations.targets import MAINTAINED, Eligible, Target, choose


def node(name: str, materialized: str = "table", schema: str = "analytics", **config: Any) -> dict[str, Any]:
    place = {"database": config.pop("database", None), "schema": schema, "unique_id": f"model.{schema}.{name}"}
    return manifests.node(name, **place, config={"materialized": materialized, **config})


def version(number: int) -> dict[str, Any]:
    more = {"unique_id": f"model.analytics.ver.v{number}", "alias": f"ver_v{number}", "version": number}
    return {**node("ver"), **more}


NODES = [
    node("events", "incremental", cluster_by="ts", block_rows=500),
    node("users", cluster_by=["id"]),
    node("plain", file_format="ICEBERG"),
    node("files", file_format="parquet"),
    node("a_view", "view", cluster_by="id"),
    node("inline", "ephemeral", cluster_by="id"),
    node("days", "seed", cluster_by="day"),
    node("twin", schema="one"),
    node("twin", schema="two"),
    version(1),
    version(2),
]


# The session catalog is the current one, and there are two more. Upper and lower case are one.
NAMES = NameResolution(lambda: "spark_catalog", lambda name: name in ("spark_catalog", "arch", "lake"), lambda *_: True)


def find(table: Any, nodes: list[dict[str, Any]], *eligible: Eligible) -> list[Target]:
    return choose(nodes, TABLE.read(table), NAMES, *eligible)


def test_no_name_means_every_clustered_model() -> None:
    """One whose config is broken does not keep the others from their turn."""
    files = node("files", cluster_by="id", file_format="parquet")
    glue = node("days", cluster_by="id", file_format="s3tables")
    nodes = [each for each in NODES if each["name"] != "days"]
    broken, *found = find(None, [*nodes, files, glue, node("broken", cluster_by="bucket(3, id)")])
    assert (broken.relation, broken.required) == ("analytics.broken", False)
    assert "cluster_by item 'bucket(3, id)' is not supported" in str(broken.error)
    assert [target.relation for target in found] == ["analytics.days", "analytics.events", "analytics.users"]
    assert not any(target.error for target in found)
    with pytest.raises(OptionError, match="No model of this project is an Iceberg table with cluster_by"):
        find(None, [node("plain")])


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("events", ["analytics.events"]),
        (["plain", "elsewhere.t"], ["analytics.plain", "elsewhere.t"]),
        (["model.two.twin", "one.twin"], ["two.twin", "one.twin"]),
        (["ver.v1", "model.analytics.ver.v2"], ["analytics.ver_v1", "analytics.ver_v2"]),
        ("ver_v2", ["analytics.ver_v2"]),
    ],
)
def test_a_table_is_named_by_its_model_or_its_relation(table: Any, found: list[str]) -> None:
    targets = find(table, NODES)
    assert [target.relation for target in targets] == found
    assert all(target.required for target in targets)


def test_a_named_table_has_the_options_of_its_model() -> None:
    model, other = find(["analytics.events", "elsewhere.t"], NODES)
    assert model.options is not None
    assert (model.options.recluster.block_rows, other.options) == (500, None)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("nope", "nope is no model, seed or snapshot of this project"),
        ("a_view", "a_view is a view, which has no blocks of its own"),
        ("event", "event is no model, seed or snapshot of this project; did you mean events?"),
        ("model.analytics.inline", "model.analytics.inline is an ephemeral, which has no blocks of its own"),
        ("twin", r"twin may be model\.one\.twin or model\.two\.twin; give one of these"),
        ("ver", r"ver may be model\.analytics\.ver\.v1 or model\.analytics\.ver\.v2; give one"),
        ([], "table must be a relation"),
        (["  "], "table must be a relation"),
    ],
)
def test_a_name_of_no_table_is_refused(table: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        find(table, NODES)


@pytest.mark.parametrize(
    ("name", "relation"),
    [
        ("an.events", "an.events"),
        ("`an`.EVENTS", "an.events"),
        ("SPARK_CATALOG.an.events", "an.events"),
        ("arch.an.events", None),
        ("an.ev", None),  # of the current catalog, where the project has none
        ("arch.an.ev", "arch.an.ev"),
        ("sales.orders", "spark_catalog.sales.orders"),
        ("lake.sales.orders", "lake.sales.orders"),
        ("third.sales.orders", None),
        ("x.lake.sales.orders", None),
        ("odd name", "`my-schema`.`odd name`"),
        ("`my-schema`.`odd name`", "`my-schema`.`odd name`"),
    ],
)
def test_a_name_is_of_the_table_that_spark_resolves_it_to(name: str, relation: str | None) -> None:
    nodes = [
        node("events", "incremental", "an", cluster_by="ts"),
        node("ev", schema="an", database="arch", cluster_by="ts"),
        node("orders", schema="sales", database="lake", cluster_by="id"),
        node("orders", schema="sales", database="spark_catalog", cluster_by="id"),
        node("odd name", schema="my-schema", cluster_by="id"),
    ]
    (target,) = find(name, nodes)
    assert (target.relation if target.unique_id else None) == relation


def test_maintained_models_are_those_that_say_so() -> None:
    nodes = [
        node("on", recluster_maintain=True),
        node("word", recluster_maintain="True"),
        node("off", recluster_maintain="false"),
        node("unset"),
        node("wrong", recluster_maintain="perhaps"),
    ]
    found = find(None, nodes, MAINTAINED)
    assert [target.relation for target in found] == ["analytics.on", "analytics.word", "analytics.wrong"]
    assert "recluster_maintain must be true or false" in str(found[2].error)
