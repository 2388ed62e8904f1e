"""The operations that say what clustering a table would cost, and which key serves its queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbt_recluster.clustering.costs.cost_model import CostEstimate, CostModel
from dbt_recluster.clustering.costs.suggest import Suggestion, suggest_key
from dbt_recluster.clustering.values import parse_queries
from dbt_recluster.operations.arguments import PLANNING, key_argument
from dbt_recluster.operations.declaration import Argument, Operation
from dbt_recluster.report import operation_text

if TYPE_CHECKING:
    from dbt_recluster.operations.runner import Call


def _estimate(call: Call) -> CostEstimate:
    return CostModel.of(call.table, call.options()).estimate()


def _suggest(call: Call) -> Suggestion:
    return suggest_key(call.opened, call.arguments["queries"] or call.queries, call.options())


ESTIMATE = Operation(
    "estimate_clustering_cost",
    "estimate",
    "Print what clustering tables by their own key or any other would cost: bytes and seconds of the first clustering, "
    "and of each day of loads like those of the past seven days, played through by the planner on the bounds of the "
    "blocks. With reads also the balance: bytes that reclustering has rewritten each day, and bytes that the reads did "
    "not open because of it. Changes nothing.",
    _estimate,
    lambda cost, _: operation_text.cost(cost.as_dict()),
    (key_argument("The key to estimate for; the table keeps its own"), *PLANNING),
)
SUGGEST = Operation(
    "suggest_cluster_by",
    "suggest",
    "Suggest a cluster key, or that the table should not be clustered at all. Prints what share of a table's blocks "
    "queries skip now and would skip under other keys, by a sample of its rows, and what clustering by them costs: the "
    "bytes of the first clustering and those of each day after it. Changes nothing.",
    _suggest,
    lambda suggestion, _: operation_text.suggestion(suggestion.as_dict()),
    (
        Argument(
            "queries",
            lambda _, value: parse_queries(value),
            "Predicates of the table's queries or whole queries, a string or a list. Only columns that they restrict "
            "are tried, and pairs of them.",
            otherwise="the compiled SQL of the project that reads the table, else its most frequent reads, else every "
            "column with queries for one value of it",
            metavar="SQL",
            is_list=True,
        ),
        *PLANNING,
    ),
    needs_choice=True,
)
