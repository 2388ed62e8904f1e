"""Where the macros are: inside the wheel, or at the root of a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def include_path() -> Path:
    """Return the directory that holds this package's ``dbt_project.yml`` and ``macros``.

    A wheel carries both under ``dbt_recluster/include``. An editable install has no such directory beside
    this file and reads the checkout itself, so that an edited macro is the one that runs.
    """
    packaged = _PACKAGE / "include"
    return packaged if (packaged / "dbt_project.yml").is_file() else _PACKAGE.parent
