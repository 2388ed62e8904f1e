"""The Iceberg runtime that the tests run with."""

from __future__ import annotations

import os
from pathlib import Path

from dbt_recluster.adapter import embedded

VARIABLE = "RECLUSTER_TEST_ICEBERG_JAR"


def iceberg_jar() -> Path:
    """Return the jar that the environment names, to try another Spark and Iceberg, or the one of the package."""
    return Path(jar).resolve() if (jar := os.environ.get(VARIABLE)) else embedded.iceberg_jar()
