"""Operations on tables, one after the other. The operation is a stub; what runs it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbt_recluster.adapter.operations import DbtContext, run_and_print
from dbt_recluster.advice.overview import Overview
from dbt_recluster.exceptions import BudgetSpentError, OptionError
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.operations.declaration import (
    FORMAT,
    METRICS,
    TABLE,
    Call,
    Operation,
    RunBudget,
    run_operation,
)
from dbt_recluster.operations.inspection import OPERATIONS, metrics_path, record_metrics
from dbt_recluster.operations.tables import ModelOptions, Target


def target(name: str, *, required: bool = False, error: str | None = None, **config: Any) -> Target:
    return Target(f"s.{name}", ModelOptions.of_config(config), required, error)


def never_opened(relation: str) -> Any:
    raise AssertionError(relation)


def context_of(open_table: Any, unbuilt: str = "unbuilt", **more: Any) -> DbtContext:
    adapter: Any = SimpleNamespace(
        get_relation=lambda *name: None if name[-1] == unbuilt else name,
        config=SimpleNamespace(credentials=SimpleNamespace(database=None)),
    )
    tables: Any = SimpleNamespace(session=SimpleNamespace(open=open_table))
    return DbtContext(adapter, tables, RunBudget(), **more)


CONTEXT = context_of(never_opened)


def work(call: Call) -> Mapping[str, Any]:
    relation = call.target.relation
    if relation == "s.broken":
        raise OptionError("it is broken")
    if relation == "s.speaks":
        raise OptionError("s.speaks for itself")
    if relation == "s.late":
        raise BudgetSpentError("all is spent")
    call.warnings.append("it is old")
    return {"table": relation, "is": relation}


@dataclass
class Lines:
    lines: list[str] = field(default_factory=list)
    error: str | None = None


def printed(operation: Operation, output: str = "text") -> Lines:
    told = Lines()
    macros = {
        "log": lambda line, **_: told.lines.append(line),
        "print": told.lines.append,
        "exceptions": {"warn": lambda warning: told.lines.append(f"! {warning}")},
    }
    try:
        run_and_print(
            operation, TARGETS, operation.read((TABLE, FORMAT), {"format": output}), CONTEXT, macros
        )
    except Exception as e:
        told.error = str(e)
    return told


TARGETS = [
    target("misconfigured", error="its model is wrong: so"),
    target("broken"),
    target("speaks"),
    target("unbuilt"),
    target("unbuilt", required=True),
    target("good"),
    target("late"),
]


def test_each_table_has_its_turn_and_every_failure_is_named_once() -> None:
    told = printed(Operation("look", "", "", work, lambda values, _: str(values["is"])))
    warnings = ["! s.unbuilt: it is old", "! s.good: it is old"]
    assert told.lines == [
        "s.unbuilt",
        warnings[0],
        "s.good",
        warnings[1],
        "s.late: not reclustered, all is spent",
    ]
    assert (
        told.error == "s.misconfigured: its model is wrong: so\ns.broken: it is broken\ns.speaks for itself"
    )


def test_texts_of_several_lines_are_kept_apart() -> None:
    told = printed(Operation("look", "", "", work, lambda values, _: f"{values['is']}\n  more"))
    assert [line for line in told.lines if not line.startswith("!")] == [
        "s.unbuilt\n  more",
        "\ns.good\n  more",
        "\ns.late: not reclustered, all is spent",
    ]


def test_a_rewrite_has_numbered_lines_and_its_plan_below() -> None:
    operation = Operation(
        "rewrite",
        "",
        "",
        work,
        lambda values, _: f"{values['is']}: would\n  because",
        detail=lambda _: "plan",
        is_rewrite=True,
    )
    told = printed(operation)
    assert told.lines == [
        "1 of 7 s.misconfigured: failed: its model is wrong: so",
        "2 of 7 s.broken: failed: it is broken",
        "3 of 7 s.speaks: failed: s.speaks for itself",
        "4 of 7 s.unbuilt: not built yet",
        "5 of 7 s.unbuilt: would\n  because",
        "plan",
        "! s.unbuilt: it is old",
        "6 of 7 s.good: would\n  because",
        "plan",
        "! s.good: it is old",
        "7 of 7 s.late: not reclustered, all is spent",
    ]
    assert told.error == "3 of 7 tables failed: s.misconfigured, s.broken, s.speaks"
    assert '"error": "it is broken"' in printed(operation, "json").lines[-1]


def test_a_key_of_the_operation_must_not_contradict_the_model() -> None:
    recluster = OPERATIONS["recluster"]
    arguments = recluster.read((TABLE,), {"table": "s.t", "cluster_by": "b"})

    class Table:
        key = parse_cluster_key("b")

        def under(self, _: Any) -> Table:
            return self

    contradicted = context_of(lambda _: Table())
    own = [target("t", required=True, cluster_by="a")]
    ((answer, _, _),) = run_operation(recluster, own, arguments, contradicted)
    assert answer.error == "the model of s.t has cluster_by a; change it there instead of naming b here"
    for table in (["s.t", "s.u"], None):
        with pytest.raises(OptionError, match="cluster_by is for a single table"):
            recluster.read((TABLE,), {"table": table, "cluster_by": "b"})


def test_a_budget_is_for_all_tables_of_a_run() -> None:
    with RunBudget().limit(5) as limit:
        assert limit == 5
    budget = RunBudget(100)
    with budget.limit(70) as limit:
        assert limit == 70
        budget.spend(60)
    with budget.limit(70) as limit:
        assert limit == 40
        budget.spend(45)
    with pytest.raises(BudgetSpentError, match="the 100 bytes"), budget.limit(None):
        pass


@pytest.mark.parametrize("names", [("fine", "silent"), ("silent", "fine")])
def test_metrics_are_written_whichever_table_is_passed_over(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, path = context_of(never_opened, "silent", absent=""), tmp_path / "r.prom"
    monkeypatch.setattr(
        "dbt_recluster.operations.inspection.clustering_overview",
        SimpleNamespace(run=lambda call: Overview(call.target.relation, "well clustered")),
    )
    operation = Operation("work", "work", "Work.", work, lambda values, _: values["is"], (METRICS,))
    targets, arguments = [target(name) for name in names], {"metrics": path}
    answers = [answer for answer, _, _ in run_operation(operation, targets, arguments, context)]
    assert [answer.table for answer in answers] == ["s.fine"]
    assert record_metrics(answers, metrics_path(operation, {**arguments, "dry_run": True})) == []
    assert not path.exists()
    assert record_metrics(answers, metrics_path(operation, arguments)) == []
    text = path.read_text()
    assert 'table="s.fine"' in text
    assert "s.silent" not in text
