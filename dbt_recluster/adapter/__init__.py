"""dbt's face of dbt-recluster: credentials, connections, configuration and the methods that macros call."""

from dbt.adapters.base.plugin import AdapterPlugin

from dbt_recluster.adapter.credentials import ReclusterCredentials
from dbt_recluster.adapter.impl import ReclusterAdapter
from dbt_recluster.adapter.include import include_path

Plugin = AdapterPlugin(
    adapter=ReclusterAdapter,  # type: ignore[arg-type]
    credentials=ReclusterCredentials,
    include_path=str(include_path()),
    project_name="dbt_recluster",
    dependencies=["spark"],
)

__all__ = ["Plugin"]
