"""What dbt's vars and the environment say for a whole run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dbt_recluster.clustering.values import parse_boolean, parse_bytes

AUTOMATIC_CLUSTERING_VAR = "automatic_clustering"
AUTOMATIC_CLUSTERING_ENV = "DBT_RECLUSTER_AUTOMATIC_CLUSTERING"
BUDGET_VAR = "recluster_max_bytes"


def clustering_turned_off(
    variables: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return the setting that turns automatic clustering off for this run, or None."""
    value = variables.get(AUTOMATIC_CLUSTERING_VAR)
    if value is not None and not parse_boolean(f"var {AUTOMATIC_CLUSTERING_VAR}", value):
        return f"var {AUTOMATIC_CLUSTERING_VAR}"
    value = environment.get(AUTOMATIC_CLUSTERING_ENV)
    if value and not parse_boolean(AUTOMATIC_CLUSTERING_ENV, value):
        return f"environment variable {AUTOMATIC_CLUSTERING_ENV}"
    return None


def run_budget(variables: Mapping[str, Any]) -> int | None:
    """Return the bytes that reclustering may rewrite in this run over all tables, or None for no limit.

    Raises:
        OptionError: The var is not a number of bytes.
    """
    value = variables.get(BUDGET_VAR)
    return None if value is None else parse_bytes(f"var {BUDGET_VAR}", value)
