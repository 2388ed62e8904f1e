from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_says_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "path", sorted((ROOT / "macros" / "operations").glob("*.yml")), ids=lambda path: path.stem
)
def test_every_argument_of_an_operation_is_described(path: Path) -> None:
    (macro,) = yaml.safe_load(path.read_text())["macros"]
    _, _, signature = path.with_suffix(".sql").read_text().partition(f"{{% macro {macro['name']}(")
    listed, _, _ = signature.partition(") %}")
    assert [each["name"] for each in macro["arguments"]] == [
        each.partition("=")[0].strip() for each in listed.split(",")
    ]
