"""dbt's face of dbt-recluster: credentials, connections, configuration and the methods that macros call."""

from pathlib import Path

from dbt.adapters.base.plugin import AdapterPlugin

from dbt_recluster.adapter.connections.credentials import ReclusterCredentials
from dbt_recluster.adapter.impl import ReclusterAdapter

# A wheel has ``dbt_project.yml`` and ``macros`` under ``include``. An editable install has no such directory, and uses
# the checkout itself, so that an edited macro takes effect.
_PACKAGE = Path(__file__).resolve().parent.parent
_INCLUDED = _PACKAGE / "include" if (_PACKAGE / "include" / "dbt_project.yml").is_file() else _PACKAGE.parent

Plugin = AdapterPlugin(
    adapter=ReclusterAdapter,  # type: ignore[arg-type]
    credentials=ReclusterCredentials,
    include_path=str(_INCLUDED),
    project_name="dbt_recluster",
    dependencies=["spark"],
)

__all__ = ["Plugin"]
