from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.adapter.targets import targets
from dbt_recluster.exceptions import OptionError


def node(name: str, materialized: str = "table", schema: str = "analytics", **config: Any) -> dict[str, Any]:
    return {
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
    return [target.relation for target in targets(table, NODES)]


def test_none_means_every_clustered_model() -> None:
    assert relations(None) == ["analytics.days", "analytics.events", "analytics.users"]
    assert not any(target.required for target in targets(None, NODES))


def test_names_and_relations() -> None:
    assert relations("events") == ["analytics.events"]
    assert relations(["plain", "elsewhere.t"]) == ["analytics.plain", "elsewhere.t"]
    found = targets("`Analytics`.EVENTS", NODES)[0]
    assert (found.relation, found.config.block_rows, found.required) == ("analytics.events", 500, True)
    assert targets("elsewhere.t", NODES)[0].config.cluster_by is None


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
        targets(table, NODES)


def test_a_project_without_clustering() -> None:
    with pytest.raises(OptionError, match="No model of this project has cluster_by"):
        targets(None, [node("plain")])


def test_a_broken_model_does_not_keep_the_others_from_their_turn() -> None:
    found = targets(None, [*NODES, node("broken", cluster_by="bucket(3, id)")])
    assert [target.relation for target in found if target.error] == ["analytics.broken"]
    assert "cluster_by item 'bucket(3, id)' is not supported" in str(found[0].error)


def test_names_of_three_parts() -> None:
    nodes = [
        {**node("orders", cluster_by="id"), "relation_name": "lake.sales.orders"},
        {**node("orders", cluster_by="id"), "relation_name": "other.sales.orders"},
        {**node("events", cluster_by="ts"), "relation_name": "lake.sales.events"},
    ]

    def named(name: str) -> list[str]:
        return [target.relation for target in targets(name, nodes)]

    assert named("Other.sales.`orders`") == ["other.sales.orders"]
    assert named("sales.events") == ["lake.sales.events"]
    assert named("third.sales.events") == ["third.sales.events"]
    with pytest.raises(
        OptionError, match=r"may be lake\.sales\.orders or other\.sales\.orders; name one of them"
    ):
        named("sales.orders")
