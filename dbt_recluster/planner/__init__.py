"""Planner: measures how well a table is clustered and plans which blocks to merge. Pure functions of arrays."""

from dbt_recluster.exceptions import BoundsError, PlannerError, PolicyError
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.merges import BlockSet, Plan, Reason, Why
from dbt_recluster.planner.metrics import (
    ClusteringInformation,
    CurveInformation,
    ReadCosts,
    clustering_information,
    curve_information,
    read_costs,
    read_depth,
)
from dbt_recluster.planner.planning import plan
from dbt_recluster.planner.policy import Policy
from dbt_recluster.planner.reads import Reads
from dbt_recluster.planner.strategies.strategy import STRATEGIES

__all__ = [
    "STRATEGIES",
    "BlockSet",
    "Blocks",
    "BoundsError",
    "ClusteringInformation",
    "CurveInformation",
    "Plan",
    "PlannerError",
    "Policy",
    "PolicyError",
    "ReadCosts",
    "Reads",
    "Reason",
    "Why",
    "clustering_information",
    "curve_information",
    "plan",
    "read_costs",
    "read_depth",
]
