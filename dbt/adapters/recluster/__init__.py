"""What ``type: recluster`` imports. Everything lives in :mod:`dbt_recluster`."""

from dbt_recluster.adapter import Plugin

__all__ = ["Plugin"]
