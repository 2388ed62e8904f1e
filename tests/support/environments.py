"""Environments for programs that cannot live beside this project, made once, in ~/.cache/dbt-recluster-tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CACHE = Path.home() / ".cache" / "dbt-recluster-tests"


def program(name: str, environment: str, *requirements: str) -> Path:
    """Return a program of an environment with some packages; skip where it cannot be installed."""
    home = CACHE / environment
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        call_or_skip([sys.executable, "-m", "venv", str(home)], f"a venv for {environment} cannot be made")
        pip = [str(home / "bin" / "pip"), "install", "--quiet", "--retries", "1", *requirements]
        call_or_skip(pip, f"{environment} cannot be installed")
        (home / "complete").touch()
    return home / "bin" / name


def call_or_skip(command: list[str], failure: str) -> None:
    """Run a command; skip where it fails, with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        pytest.skip(f"{failure} here: {(done.stderr or done.stdout).strip()[-300:]}")
