from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
