from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.maintenance import ReclusteringOptions, estimate_recluster, recluster
from dbt_recluster.operations.runner import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
MACROS = (ROOT / "macros" / "operations" / "operations.sql").read_text()


def test_the_reference_says_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_macro_of_its_name(name: str) -> None:
    (line,) = [line for line in MACROS.splitlines() if f"macro {name}(" in line]
    assert line.startswith(f"{{% macro {name}(table=none) %}}")
    assert f"adapter.operate('{name}', dict(kwargs, table=table), context)" in line


def test_the_python_functions_take_every_option_but_those_of_builds() -> None:
    of_builds = {name for name in RECLUSTER_OPTIONS if name in ("after", "when")}
    assert set(ReclusteringOptions.__annotations__) == set(RECLUSTER_OPTIONS) - of_builds
    assert set(ReclusteringOptions.__annotations__) < set(inspect.signature(recluster).parameters)


def test_a_python_function_refuses_an_option_that_it_does_not_take() -> None:
    unknown: dict[str, bool] = {"final": True}
    with pytest.raises(TypeError, match="unexpected keyword argument 'final'"):
        estimate_recluster(None, "a.t", **unknown)  # type: ignore[arg-type]
