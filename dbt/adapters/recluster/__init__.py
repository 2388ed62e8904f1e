"""The door dbt knocks at: ``type: recluster`` imports this module and reads ``Plugin``. Everything lives in dbt_recluster."""

from dbt_recluster.adapter import Plugin

__all__ = ["Plugin"]
