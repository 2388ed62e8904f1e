"""A pytest plugin: no module comes from the dbt-core of the project's environment, behind the one that is tested."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Any


def pytest_sessionfinish(session: Any) -> None:
    """Fail the run if another dbt-core than the first on the path was used."""
    used, *others = metadata.distributions(name="dbt-core")
    of_others = {Path(str(each.locate_file(file))) for each in others for file in each.files or ()}
    strangers = {
        module.__name__
        for module in list(sys.modules.values())
        if Path(getattr(module, "__file__", None) or "") in of_others
    }
    print(f"\ndbt-core {used.version}, beside {[each.version for each in others]}")
    if strangers:
        print(f"modules of another dbt-core: {sorted(strangers)}")
        session.exitstatus = 1
