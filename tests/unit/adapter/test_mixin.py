from dbt_recluster.adapter.config import ClusteringConfig
from dbt_recluster.adapter.mixin import TableMixin
from dbt_recluster.adapter.operations import Target
from dbt_recluster.exceptions import OptionError


class Known(TableMixin):
    def _exists(self, relation: str) -> bool:
        return relation != "s.unbuilt"


def target(name: str, *, required: bool = False, error: str | None = None) -> Target:
    return Target(f"s.{name}", ClusteringConfig(), required, error)


def test_each_table_has_its_turn_and_every_failure_is_named_once() -> None:
    def work(each: Target) -> str:
        if each.relation == "s.broken":
            raise OptionError("it is broken")
        if each.relation == "s.speaks":
            raise OptionError("s.speaks for itself")
        return each.relation

    chosen = [
        target("misconfigured", error="its model is wrong: so"),
        target("broken"),
        target("speaks"),
        target("unbuilt"),
        target("unbuilt", required=True),
        target("good"),
    ]
    done, failures = Known()._each(chosen, work)
    assert done == ["s.unbuilt", "s.good"]
    assert failures == [
        "s.misconfigured: its model is wrong: so",
        "s.broken: it is broken",
        "s.speaks for itself",
    ]
