"""Dagster: every model is an asset, and reclustering one more that follows them.

DBT_PROJECT is the directory of the project, with a manifest that `dbt parse` wrote.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dagster import AssetExecutionContext, Definitions, asset
from dagster_dbt import DbtCliResource, dbt_assets

PROJECT = Path(os.environ["DBT_PROJECT"])


@dbt_assets(manifest=PROJECT / "target" / "manifest.json")
def models(context: AssetExecutionContext, dbt: DbtCliResource) -> Iterator[Any]:
    """Build the models, and leave reclustering to the asset below."""
    yield from dbt.cli(["build", "--vars", "automatic_clustering: false"], context=context).stream()


@asset(deps=[models])
def reclustered(dbt: DbtCliResource) -> None:
    """Recluster every table with a key; fails, after trying the others, if one failed."""
    dbt.cli(["run-operation", "recluster"], manifest=PROJECT / "target" / "manifest.json").wait()


defs = Definitions(
    assets=[models, reclustered],
    resources={"dbt": DbtCliResource(project_dir=str(PROJECT), profiles_dir=str(PROJECT))},
)
