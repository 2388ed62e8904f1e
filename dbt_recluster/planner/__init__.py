"""Planner: measures how well a table is clustered and plans which blocks to merge. Pure functions of arrays."""

from dbt_recluster.exceptions import BoundsError, PlannerError, PolicyError
from dbt_recluster.planner.blocks import Blocks
from dbt_recluster.planner.depth import block_depths, block_overlaps, depth_curve, read_depth
from dbt_recluster.planner.metrics import ClusteringInformation, clustering_information
from dbt_recluster.planner.planning import BlockSet, Plan, plan
from dbt_recluster.planner.policy import STRATEGIES, Policy
from dbt_recluster.planner.read_costs import ReadCosts, read_costs
from dbt_recluster.planner.reads import Reads
from dbt_recluster.planner.thresholds import best_threshold, costs_by_threshold, relative_rewriting

__all__ = [
    "STRATEGIES",
    "BlockSet",
    "Blocks",
    "BoundsError",
    "ClusteringInformation",
    "Plan",
    "PlannerError",
    "Policy",
    "PolicyError",
    "ReadCosts",
    "Reads",
    "best_threshold",
    "block_depths",
    "block_overlaps",
    "clustering_information",
    "costs_by_threshold",
    "depth_curve",
    "plan",
    "read_costs",
    "read_depth",
    "relative_rewriting",
]
