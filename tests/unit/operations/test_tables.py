from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.exceptions import OptionError
from dbt_recluster.names import NameResolution
from dbt_recluster.operations.declaration import TABLE
from dbt_recluster.operations.tables import MAINTAINED, Eligible, Target, choose


def node(
    name: str,
    materialized: str = "table",
    schema: str = "analytics",
    database: str | None = None,
    **config: Any,
) -> dict[str, Any]:
    return {
        "unique_id": f"model.{schema}.{name}",
        "name": name,
        "alias": config.pop("alias", name),
        "database": database,
        "schema": schema,
        "config": {"materialized": materialized, **config},
    }


NODES = [
    node("events", "incremental", cluster_by="ts", block_rows=500),
    node("users", cluster_by=["id"]),
    node("plain", file_format="ICEBERG"),
    node("files", file_format="parquet"),
    node("a_view", "view", cluster_by="id"),
    node("inline", "ephemeral", cluster_by="id"),
    node("days", "seed", cluster_by="day"),
    node("twin", schema="one", alias="twin"),
    node("twin", schema="two", alias="twin"),
    *(
        {**node("ver", alias=f"ver_v{number}"), "version": number, "unique_id": f"model.p.ver.v{number}"}
        for number in (1, 2)
    ),
]


# The session catalog is the current one, and there are two more. Upper and lower case are one.
NAMES = NameResolution(
    lambda: "spark_catalog", lambda name: name in ("spark_catalog", "arch", "lake"), lambda *_: True
)


def find(table: Any, nodes: list[dict[str, Any]], *eligible: Eligible) -> list[Target]:
    return choose(nodes, TABLE.read(table), NAMES, *eligible)


def relations(table: Any, nodes: list[dict[str, Any]] = NODES) -> list[str]:
    return [target.relation for target in find(table, nodes)]


def test_none_means_every_clustered_model() -> None:
    assert relations(None) == ["analytics.days", "analytics.events", "analytics.users"]
    assert not any(target.required for target in find(None, NODES))


def test_names_and_relations() -> None:
    assert relations("events") == ["analytics.events"]
    assert relations(["plain", "elsewhere.t"]) == ["analytics.plain", "elsewhere.t"]
    assert relations(["model.two.twin", "one.twin"]) == ["two.twin", "one.twin"]
    assert relations(["ver.v1", "model.p.ver.v2"]) == ["analytics.ver_v1", "analytics.ver_v2"]
    assert relations(["ver_v2", "analytics.ver_v1"]) == ["analytics.ver_v2", "analytics.ver_v1"]
    found = find("`Analytics`.EVENTS", NODES)[0]
    assert found.options is not None
    assert (found.relation, found.options.recluster.block_rows, found.required) == (
        "analytics.events",
        500,
        True,
    )
    assert find("elsewhere.t", NODES)[0].options is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("nope", "nope is no model, seed or snapshot of this project"),
        ("a_view", "a_view is a view, which has no blocks of its own"),
        ("event", "event is no model, seed or snapshot of this project; did you mean events?"),
        ("model.analytics.inline", "model.analytics.inline is an ephemeral, which has no blocks of its own"),
        ("twin", r"twin may be model\.one\.twin or model\.two\.twin; give one of these"),
        ("ver", r"ver may be model\.p\.ver\.v1 or model\.p\.ver\.v2; give one of these"),
        ([], "table must be a relation"),
        ([3], "table must be a relation"),
        (3, "table must be a relation"),
        ({"a": "b"}, "table must be a relation"),
        (["  "], "table must be a relation"),
        ("an.events; drop table an.other", "is not the name of a table"),
        (["events", "e v"], "is not the name of a table"),
    ],
)
def test_names_that_cannot_be(table: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        find(table, NODES)


def test_a_project_without_clustering() -> None:
    with pytest.raises(OptionError, match="No model of this project has cluster_by"):
        find(None, [node("plain")])


def test_a_broken_model_does_not_keep_the_others_from_their_turn() -> None:
    found = find(None, [*NODES, node("broken", cluster_by="bucket(3, id)")])
    assert [target.relation for target in found if target.error] == ["analytics.broken"]
    assert "cluster_by item 'bucket(3, id)' is not supported" in str(found[0].error)


def test_a_name_is_of_the_table_that_spark_resolves_it_to() -> None:
    nodes = [
        node("events", "incremental", "an", cluster_by="ts"),
        node("ev", schema="an", database="arch", cluster_by="ts"),
        node("orders", schema="sales", database="lake", cluster_by="id"),
        node("orders", schema="sales", database="spark_catalog", cluster_by="id"),
        node("odd name", schema="my-schema", cluster_by="id"),
    ]

    def of_project(name: str) -> str | None:
        (target,) = find(name, nodes)
        return target.unique_id and target.relation

    assert of_project("an.events") == of_project("`an`.EVENTS") == "an.events"
    assert of_project("spark_catalog.an.events") == of_project("SPARK_CATALOG.an.events") == "an.events"
    assert of_project("arch.an.events") is None
    assert of_project("an.ev") is None  # of the current catalog, where the project has none
    assert of_project("arch.an.ev") == "arch.an.ev"
    assert of_project("sales.orders") == "spark_catalog.sales.orders"
    assert of_project("lake.sales.orders") == "lake.sales.orders"
    assert of_project("third.sales.orders") is None
    assert of_project("x.lake.sales.orders") is None
    assert of_project("odd name") == "`my-schema`.`odd name`"
    assert of_project("`my-schema`.`odd name`") == of_project("`odd name`") == "`my-schema`.`odd name`"


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
