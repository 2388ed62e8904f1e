from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.adapter.housekeeping_operations import MAINTAINED
from dbt_recluster.adapter.targets import EVERY_TABLE, Choice, Eligible, targets
from dbt_recluster.exceptions import OptionError


def node(name: str, materialized: str = "table", schema: str = "analytics", **config: Any) -> dict[str, Any]:
    return {
        "unique_id": f"model.{schema}.{name}",
        "name": name,
        "alias": config.pop("alias", name),
        "schema": schema,
        "relation_name": None,
        "config": {"materialized": materialized, **config},
    }


NODES = [
    node("events", "incremental", cluster_by="ts", block_rows=500),
    node("users", cluster_by=["id"]),
    node("plain"),
    node("a_view", "view", cluster_by="id"),
    node("inline", "ephemeral", cluster_by="id"),
    node("days", "seed", cluster_by="day"),
    node("twin", schema="one", alias="twin"),
    node("twin", schema="two", alias="twin"),
]


def relations(table: Any) -> list[str]:
    return [target.relation for target in targets(Choice(table), NODES)]


def test_none_means_every_clustered_model() -> None:
    assert relations(None) == ["analytics.days", "analytics.events", "analytics.users"]
    assert not any(target.required for target in targets(Choice(), NODES))


def test_names_and_relations() -> None:
    assert relations("events") == ["analytics.events"]
    assert relations(["plain", "elsewhere.t"]) == ["analytics.plain", "elsewhere.t"]
    found = targets(Choice("`Analytics`.EVENTS"), NODES)[0]
    assert (found.relation, found.config.block_rows, found.required) == ("analytics.events", 500, True)
    assert targets(Choice("elsewhere.t"), NODES)[0].config.cluster_by is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("nope", "nope is no model, seed or snapshot of this project"),
        ("a_view", "a_view is no model"),
        ("twin", r"twin may be one\.twin or two\.twin; name one of them"),
        ([], "table must be a relation"),
        ([3], "table must be a relation"),
        (3, "table must be a relation"),
        ({"a": "b"}, "table must be a relation"),
        (["  "], "table must be a relation"),
    ],
)
def test_names_that_cannot_be(table: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        targets(Choice(table), NODES)


def test_a_project_without_clustering() -> None:
    with pytest.raises(OptionError, match="No model of this project has cluster_by"):
        targets(Choice(), [node("plain")])


def test_a_broken_model_does_not_keep_the_others_from_their_turn() -> None:
    found = targets(Choice(), [*NODES, node("broken", cluster_by="bucket(3, id)")])
    assert [target.relation for target in found if target.error] == ["analytics.broken"]
    assert "cluster_by item 'bucket(3, id)' is not supported" in str(found[0].error)


def test_names_of_three_parts() -> None:
    nodes = [
        {**node("orders", cluster_by="id"), "relation_name": "lake.sales.orders"},
        {**node("orders", cluster_by="id"), "relation_name": "other.sales.orders"},
        {**node("events", cluster_by="ts"), "relation_name": "lake.sales.events"},
    ]

    def named(name: str) -> list[str]:
        return [target.relation for target in targets(Choice(name), nodes)]

    assert named("Other.sales.`orders`") == ["other.sales.orders"]
    assert named("sales.events") == ["lake.sales.events"]
    assert named("third.sales.events") == ["third.sales.events"]
    with pytest.raises(
        OptionError, match=r"may be lake\.sales\.orders or other\.sales\.orders; name one of them"
    ):
        named("sales.orders")


def test_selected_models_are_those_that_an_operation_is_for() -> None:
    chosen = Choice(selected=frozenset({"model.analytics.plain", "model.analytics.users"}))
    assert [target.relation for target in targets(chosen, NODES)] == ["analytics.users"]
    every = ["analytics.plain", "analytics.users"]
    assert [target.relation for target in targets(chosen, NODES, EVERY_TABLE)] == every
    old = Eligible(lambda node: bool(node["config"].get("old")), "is old", by_default=True)
    assert [target.relation for target in targets(chosen, NODES, old)] == every
    with pytest.raises(OptionError, match=r"No model of this project is old"):
        targets(Choice(), NODES, old)
    with pytest.raises(OptionError, match="nothing that is selected has cluster_by"):
        targets(Choice(selected=frozenset({"model.analytics.plain"})), NODES)
    with pytest.raises(OptionError, match="nothing that is selected is a table"):
        targets(Choice(selected=frozenset({"model.analytics.a_view"})), NODES, EVERY_TABLE)


def test_maintained_models_are_those_that_say_so() -> None:
    nodes = [
        node("on", recluster_maintain=True),
        node("word", recluster_maintain="True"),
        node("off", recluster_maintain="false"),
        node("unset"),
        node("wrong", recluster_maintain="perhaps"),
    ]
    found = targets(Choice(), nodes, MAINTAINED)
    assert [target.relation for target in found] == ["analytics.on", "analytics.word", "analytics.wrong"]
    assert "recluster_maintain must be true or false" in str(found[2].error)
