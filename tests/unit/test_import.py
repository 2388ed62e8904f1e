"""dbt imports every top-level module called dbt_* in every command of the environment, whatever the adapter."""

import subprocess
import sys

import pytest

import dbt_recluster

OF_TABLES = ("iceberg.rewrite", "iceberg.iceberg_table", "clustering.table", "advice", "report")


def imported(module: str) -> list[str]:
    """Modules that an import brings into a new process."""
    code = f"import sys; before = set(sys.modules); import {module}; print(*set(sys.modules) - before)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_package_brings_in_nothing() -> None:
    assert imported("dbt_recluster") == ["dbt_recluster"]
    assert not hasattr(dbt_recluster, "plugins")  # which dbt takes for plugins of its own


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("dbt_recluster.planner", ("pyspark", "py4j", "dbt.", "dbt_recluster.text")),
        ("dbt_recluster.api", ("pyspark", "dbt.")),
        ("dbt_recluster.job.recluster_job", ("pyspark", "dbt.", "dbt_common", "dbt_recluster.adapter")),
        ("dbt.adapters.recluster", ("pyspark", *(f"dbt_recluster.{room}" for room in OF_TABLES))),
    ],
)
def test_an_import_brings_in_nothing_that_it_can_do_without(module: str, absent: tuple[str, ...]) -> None:
    assert not [name for name in imported(module) if f"{name}.".startswith(absent)]
