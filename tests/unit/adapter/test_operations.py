from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.adapter.arguments import parse_arguments
from dbt_recluster.adapter.config import ClusteringConfig
from dbt_recluster.adapter.operation_runner import OperationRunner
from dbt_recluster.adapter.operations import ARGUMENTS
from dbt_recluster.adapter.reclustering import OperationArguments, RunBudget, TableReclusterer
from dbt_recluster.adapter.targets import Choice, Target
from dbt_recluster.cluster_key import parse_cluster_key
from dbt_recluster.exceptions import BudgetSpentError, ClusterKeyError, OptionError
from dbt_recluster.table_names import NameResolution


def never_opened(relation: str, key: Any) -> Any:
    raise AssertionError(relation)


def selected(select: list[str] | None, exclude: list[str] | None) -> frozenset[str]:
    return frozenset({*(select or []), *(f"not {word}" for word in exclude or [])})


NAMES = NameResolution(lambda: "spark_catalog", lambda _: False, lambda *_: False)
RUNNER = OperationRunner(never_opened, lambda relation: relation != "s.unbuilt", selected, NAMES)
RECLUSTERER = TableReclusterer(RUNNER, RunBudget())


def target(name: str, *, required: bool = False, error: str | None = None, **config: Any) -> Target:
    return Target(f"s.{name}", ClusteringConfig.parse(config.get, config), required, error)


def test_each_table_has_its_turn_and_every_failure_is_named_once() -> None:
    def work(selected: Target) -> str:
        if selected.relation == "s.broken":
            raise OptionError("it is broken")
        if selected.relation == "s.speaks":
            raise OptionError("s.speaks for itself")
        return selected.relation

    selected = [
        target("misconfigured", error="its model is wrong: so"),
        target("broken"),
        target("speaks"),
        target("unbuilt"),
        target("unbuilt", required=True),
        target("good"),
    ]
    results, failures = RUNNER.for_all(selected, work)
    assert results == ["s.unbuilt", "s.good"]
    assert failures == [
        "s.misconfigured: its model is wrong: so",
        "s.broken: it is broken",
        "s.speaks for itself",
    ]


def test_the_arguments_of_recluster() -> None:
    assert RECLUSTERER.parse({}) == OperationArguments()
    given = {
        "table": "a.t",
        "cluster_by": "to_date(ts)",
        "final": "true",
        "where": "a > 1",
        "max_bytes": "1 MB",
        "depth": 2,
        "strategy": "peak",
        "dry_run": True,
    }
    arguments = RECLUSTERER.parse(given)
    key = parse_cluster_key("days(ts)")
    assert arguments == OperationArguments(
        Choice("a.t"), key, True, "a > 1", 2**20, 2.0, "peak", True, "text"
    )
    options = arguments.options(ClusteringConfig(depth=7, block_rows=5))
    assert (options.depth, options.block_rows, options.dry_run) == (2.0, 5, True)
    assert OperationArguments().options(ClusteringConfig(depth=7, final=True)).final


@pytest.mark.parametrize(
    ("name", "value"),
    [("final", "perhaps"), ("where", 3), ("max_bytes", "lots"), ("depth", "deep"), ("dry_run", 7)],
)
def test_wrong_arguments_are_named_as_they_were_given(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"^{name} must be"):
        RECLUSTERER.parse({name: value})


@pytest.mark.parametrize("operation", sorted(ARGUMENTS))
def test_a_misspelled_argument_is_answered_with_those_there_are(operation: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_arguments(operation, ARGUMENTS[operation], {"tabel": "a.t"})
    assert str(raised.value) == (
        f"{operation} has no argument 'tabel'; it takes {', '.join(ARGUMENTS[operation])}"
    )


def test_a_key_of_the_operation_must_not_contradict_the_model() -> None:
    outcome = RECLUSTERER.by_hand(
        target("t", required=True, cluster_by="a"), OperationArguments(cluster_by=parse_cluster_key("b")), {}
    )
    assert outcome.error == "the model of s.t has cluster_by a; change it there instead of naming b here"
    with pytest.raises(OptionError, match="cluster_by is for a single table"):
        RECLUSTERER.targets([], OperationArguments(Choice(["s.t", "s.u"]), parse_cluster_key("b")), {})
    with pytest.raises(ClusterKeyError):
        RECLUSTERER.parse({"cluster_by": "lower(a)"})


def test_a_budget_is_for_all_tables_of_a_run() -> None:
    budget = RunBudget()
    with budget.limit(None, 5) as limit:
        assert limit == 5
    with budget.limit(100, 70) as limit:
        assert limit == 70
        budget.spend(60)
    with budget.limit(100, 70) as limit:
        assert limit == 40
        budget.spend(45)
    with pytest.raises(BudgetSpentError, match="the 100 bytes"), budget.limit(100, None):
        pass


def test_tables_are_named_or_selected() -> None:
    assert RECLUSTERER.parse({"select": "tag:a  +b", "exclude": ["c", "d e"]}).choice == Choice(
        selected=frozenset({"tag:a", "+b", "not c", "not d", "not e"})
    )
    with pytest.raises(OptionError, match="not both"):
        RECLUSTERER.parse({"table": "s.t", "exclude": "c"})
    for wrong in ("", " ", [], 7, [7], {"a": 1}):
        with pytest.raises(OptionError, match=r"^select must be a selector"):
            RECLUSTERER.parse({"select": wrong})
