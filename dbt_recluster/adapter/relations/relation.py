"""Relations whose name may have three parts: a catalog, a schema and a table."""

from __future__ import annotations

from dataclasses import dataclass, field

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import Policy
from dbt.adapters.spark.relation import SparkIncludePolicy, SparkRelation


@dataclass
class ReclusterIncludePolicy(SparkIncludePolicy):
    """A relation's name includes its catalog, if it has one."""

    database: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class ReclusterRelation(SparkRelation):
    """A relation whose ``database`` is a catalog, or None for the connection's current one.

    dbt-spark's relations have no database (dbt-adapters#495).
    """

    include_policy: Policy = field(default_factory=ReclusterIncludePolicy)

    def __post_init__(self) -> None:
        """Accept any database."""

    def render(self) -> str:
        """Return the name with the parts that it includes."""
        return BaseRelation.render(self)
