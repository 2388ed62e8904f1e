"""The tables that a pass of ``recluster --every`` works on, in the session that is there."""

from types import SimpleNamespace
from typing import Any

import pytest
from tables import append, keyed

from dbt_recluster.exceptions import CatalogError
from dbt_recluster.job import service
from dbt_recluster.operations.declaration import Answer
from dbt_recluster.operations.targets import Target


class Passes:
    """Passes over some tables, an interval of five minutes apart."""

    def __init__(self, spark: Any, monkeypatch: pytest.MonkeyPatch, *names: str):
        self.now = 0.0
        monkeypatch.setattr(service, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.changed = service.ChangedTables(spark, 300.0)
        self.targets = list(map(Target, names))

    def __call__(self, error: str | None = None) -> list[str]:
        """Do nothing to the tables of a pass, or fail; return their names."""
        self.changed.begin()
        targets = self.changed.of(self.targets)
        names = [target.relation.rpartition(".")[2] for target in targets]
        self.changed.record(targets, [Answer(t.relation, error=error) for t in targets] if error else [])
        self.now += 300
        return names


def test_a_table_is_due_when_it_has_changed(spark: Any, uncached_catalog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sales = f"{uncached_catalog}.sales"
    names = [keyed(spark, sales, name) for name in ("a", "b")]
    passes = Passes(spark, monkeypatch, *names, f"{sales}.c")
    assert passes() == ["a", "b", "c"]
    assert passes() == []
    append(spark, names[1], 600, 10)
    assert passes() == ["b"]
    spark.sql(f"alter table {names[0]} set tblproperties ('recluster.option.depth' = '2')")
    keyed(spark, sales, "c")
    assert passes() == ["a", "c"]
    spark.sql(f"drop table {names[0]}")
    assert passes() == ["a"]
    keyed(spark, sales, "a")
    assert passes() == ["a"]
    assert [passes() for _ in range(12)] == [*([[]] * 8), ["b"], ["c"], [], ["a"]]  # after an hour


def test_pauses_after_failures_grow(
    spark: Any, uncached_catalog: str, broken_catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that succeeds begins anew, and one whose catalog does not answer ends the passes."""
    passes = Passes(spark, monkeypatch, keyed(spark, f"{uncached_catalog}.sales"))
    tried = [number for number in range(52) if passes("wrong")]
    assert tried == [0, 1, 3, 7, 15, 27, 39, 51]  # 5, 10, 20 and 40 minutes, then an hour
    passes.now += 3600
    assert passes() == ["t"]
    append(spark, passes.targets[0].relation, 600, 10)
    assert [bool(passes("wrong")) for _ in range(3)] == [True, True, False]
    with pytest.raises(CatalogError, match="catalog broken does not start"):
        passes.changed.of([Target(f"{broken_catalog}.s.t")])
