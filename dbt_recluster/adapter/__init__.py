"""dbt's face of dbt-recluster: credentials, connections, configuration and the methods that macros call."""

from pathlib import Path

from dbt.adapters.base.plugin import AdapterPlugin

from dbt_recluster.adapter.connections import ReclusterCredentials
from dbt_recluster.adapter.impl import ReclusterAdapter

_PACKAGE = Path(__file__).resolve().parent.parent


def include_path() -> Path:
    """Return the directory of this package's ``dbt_project.yml`` and ``macros``.

    A wheel carries both under ``dbt_recluster/include``. An editable install has no such directory and uses the
    checkout itself, so that an edited macro takes effect.
    """
    packaged = _PACKAGE / "include"
    return packaged if (packaged / "dbt_project.yml").is_file() else _PACKAGE.parent


Plugin = AdapterPlugin(
    adapter=ReclusterAdapter,  # type: ignore[arg-type]
    credentials=ReclusterCredentials,
    include_path=str(include_path()),
    project_name="dbt_recluster",
    dependencies=["spark"],
)

__all__ = ["Plugin"]
