"""dbt imports every top-level module called dbt_* in every command of the environment, whatever the adapter."""

from __future__ import annotations

import subprocess
import sys

import dbt_recluster


def test_import_brings_in_nothing() -> None:
    code = (
        "import sys; before = set(sys.modules); import dbt_recluster; "
        "print(sorted(set(sys.modules) - before - {'dbt_recluster'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_there_is_no_attribute_that_dbt_takes_for_plugins() -> None:
    assert not hasattr(dbt_recluster, "plugins")


def test_planner_knows_neither_spark_nor_iceberg_nor_dbt() -> None:
    code = (
        "import sys, dbt_recluster.planner; "
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j', 'dbt')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_maintenance_knows_no_dbt() -> None:
    code = (
        "import sys, dbt_recluster.maintenance; "
        "print([m for m in sys.modules if m.split('.')[0] in ('dbt', 'pyspark')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_dbt_parse_imports_nothing_that_works_on_tables() -> None:
    code = (
        "import sys, dbt.adapters.recluster; "
        "rooms = ('iceberg.rewrite', 'iceberg.iceberg_table', 'clustering.table', 'advice', 'report'); "
        "print([m for m in sys.modules if m.startswith(('pyspark', *(f'dbt_recluster.{room}' for room in rooms)))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
