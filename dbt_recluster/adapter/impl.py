"""The adapter."""

from __future__ import annotations

from dbt.adapters.spark.impl import SparkAdapter

from dbt_recluster.adapter.connections import ReclusterConnectionManager


class ReclusterAdapter(SparkAdapter):
    """dbt-spark, and clustering.

    The name is not free: dbt derives the module ``dbt.adapters.recluster`` from it after each model.
    """

    ConnectionManager = ReclusterConnectionManager
