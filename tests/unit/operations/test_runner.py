"""Operations on tables, one after the other. The operation is a stub; what runs it is not."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbt_recluster.adapter.operations import DbtContext, run_and_print
from dbt_recluster.advice.overview import Overview
from dbt_recluster.exceptions import BudgetSpentError, OptionError
from dbt_recluster.operations.arguments import FORMAT, METRICS, TABLE
from dbt_recluster.operations.declaration import Call, Operation, RunBudget, record_metrics, run_operation
from dbt_recluster.operations.targets import Target

FAILURES = {
    "s.broken": OptionError("it is broken"),
    "s.speaks": OptionError("s.speaks for itself"),
    "s.late": BudgetSpentError("all is spent"),
}
TARGETS = [
    Target("s.misconfigured", required=False, error="its model is wrong: so"),
    *(Target(f"s.{name}", required=False) for name in ("broken", "speaks", "unbuilt")),
    Target("s.unbuilt", required=True),
    *(Target(f"s.{name}", required=False) for name in ("good", "late")),
]


def context(unbuilt: str = "unbuilt", **more: Any) -> DbtContext:
    table = SimpleNamespace(is_view=False, is_iceberg=None)
    adapter: Any = SimpleNamespace(
        get_relation=lambda *name: None if name[-1] == unbuilt else table,
        config=SimpleNamespace(credentials=SimpleNamespace(database=None)),
    )
    no_tables: Any = None
    return DbtContext(adapter, no_tables, RunBudget(), **more)


def work(call: Call) -> Mapping[str, Any]:
    if call.target.relation in FAILURES:
        raise FAILURES[call.target.relation]
    call.warnings.append("it is old")
    return {"table": call.target.relation}


def printed(operation: Operation, output: str = "text") -> tuple[list[str], str]:
    """Run an operation; return the lines that are printed, and the error at the end."""
    lines: list[str] = []
    macros = {
        "graph": {"nodes": {}},
        "target": {"name": "dev", "schema": "s"},
        "log": lambda line, **_: lines.append(line),
        "print": lines.append,
        "exceptions": {"warn": lambda warning: lines.append(f"! {warning}")},
        "flags": SimpleNamespace(QUIET=False),
    }
    arguments = operation.read((TABLE, FORMAT), {"format": output})
    with pytest.raises(Exception) as e:  # noqa: PT011
        run_and_print(operation, TARGETS, arguments, context(), macros)
    return lines, str(e.value)


def test_each_table_has_its_turn_and_every_failure_is_named_once() -> None:
    lines, error = printed(Operation("look", work, lambda values, _: f"{values['table']}\n  more"))
    assert lines == [
        "s.unbuilt\n  more",
        "! s.unbuilt: it is old",
        "\ns.good\n  more",
        "! s.good: it is old",
        "\ns.late: not reclustered, all is spent",
    ]
    assert error == "s.misconfigured: its model is wrong: so\ns.broken: it is broken\ns.speaks for itself"


def test_a_rewrite_has_numbered_lines_and_its_plan_below() -> None:
    facts: dict[str, Any] = {"detail": lambda _: "plan", "is_rewrite": True}
    operation = Operation("rewrite", work, lambda values, _: f"{values['table']}: would", **facts)
    lines, error = printed(operation)
    assert lines == [
        "1 of 7 s.misconfigured: failed: its model is wrong: so",
        "2 of 7 s.broken: failed: it is broken",
        "3 of 7 s.speaks: failed: s.speaks for itself",
        "4 of 7 s.unbuilt: not built yet as an Iceberg table",
        *("5 of 7 s.unbuilt: would", "plan", "! s.unbuilt: it is old"),
        *("6 of 7 s.good: would", "plan", "! s.good: it is old"),
        "7 of 7 s.late: not reclustered, all is spent",
    ]
    assert error == "3 of 7 tables failed: s.misconfigured, s.broken, s.speaks"
    assert '"error": "it is broken"' in printed(operation, "json")[0][-1]


def test_a_budget_is_for_all_tables_of_a_run() -> None:
    with RunBudget().limit(5) as limit:
        assert limit == 5
    budget = RunBudget(100)
    for spent, left in ((60, 70), (45, 40)):
        with budget.limit(70) as limit:
            assert limit == left
            budget.spend(spent)
    with pytest.raises(BudgetSpentError, match="the 100 bytes"), budget.limit(None):
        pass


@pytest.mark.parametrize("names", [("fine", "silent"), ("silent", "fine")])
def test_metrics_are_written_whichever_table_is_passed_over(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Call, "table", property(lambda call: call.target.relation))
    monkeypatch.setattr(Call, "options", lambda call: None)
    line = lambda table, *_, **__: Overview(table, "well clustered")  # noqa: E731
    monkeypatch.setattr("dbt_recluster.operations.declaration.table_overview", line)
    operation = Operation("work", work, lambda values, _: values["table"], (METRICS,))
    path = tmp_path / "r.prom"
    targets, arguments = [Target(f"s.{name}", required=False) for name in names], {"metrics": path}
    run = run_operation(operation, targets, arguments, context("silent", absent=""))
    answers = [answer for answer, _, _ in run]
    assert [answer.table for answer in answers] == ["s.fine"]
    for is_dry_run in (True, False):
        written = operation.metrics_path({**arguments, "dry_run": is_dry_run})
        assert record_metrics(answers, written) == []
        assert path.exists() is not is_dry_run
    assert 'table="s.fine"' in path.read_text()
    assert "s.silent" not in path.read_text()
