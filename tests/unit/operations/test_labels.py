"""The tags, group and owner of a model, by which the overview adds up."""

from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.advice.overview import Overview, totals, totals_by
from dbt_recluster.operations.tables import labelled
from dbt_recluster.report.operation_text import overview

GROUPS = {"group.shop.finance": {"name": "finance", "package_name": "shop", "owner": {"email": "fin@shop"}}}


@pytest.mark.parametrize(
    ("more", "owner"),
    [
        ({}, []),
        ({"group": "finance"}, ["fin@shop"]),
        ({"group": "finance", "package_name": "other"}, []),
        ({"group": "finance", "config": {"meta": {"owner": "Bob"}}}, ["Bob"]),
        ({"config": {"group": "finance", "meta": {"owner": ["Bob", "Ann", "Bob"]}}}, ["Bob", "Ann"]),
    ],
)
def test_owner(more: dict[str, Any], owner: list[str]) -> None:
    node = {"package_name": "shop", "config": {}, "tags": ["b", "a", "b"], **more}
    labels = labelled({"model.shop.t": node}, GROUPS)["model.shop.t"]["labels"]
    assert (labels["tag"], labels["owner"]) == (["b", "a"], owner)


def test_a_tag_may_be_named_as_the_total_is() -> None:
    tables = [
        Overview("a", "deep", conflicts=1, labels={"tag": ["total"]}),
        Overview("b", "deep", conflicts=2),
    ]
    lines = overview(tables, {**totals(tables), "by": totals_by(tables, "tag")}).splitlines()
    sums = [line.split()[0:1] + line.split()[-1:] for line in lines if line.split()[0] in ("total", "(none)")]
    assert sums == [["total", "3"], ["(none)", "2"], ["total", "1"]]
