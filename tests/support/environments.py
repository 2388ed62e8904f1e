"""Programs and jars that are no part of this project's environment, each fetched once.

Environments are in ~/.cache/dbt-recluster-tests, jars in Maven's local repository.
"""

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


def from_maven(artifact: str) -> Path:
    """Return ``group:name:version[:extension]`` of Maven's local repository; skip where it cannot be fetched."""
    group, name, version, extension = (*artifact.split(":"), "jar")[:4]
    path = (
        Path.home()
        / ".m2/repository"
        / group.replace(".", "/")
        / name
        / version
        / f"{name}-{version}.{extension}"
    )
    if not path.exists():
        get = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
        call_or_skip(get, f"{name} {version} cannot be fetched")
    return path


def call_or_skip(command: list[str], failure: str) -> None:
    """Run a command; skip where it fails, with what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as e:
        pytest.skip(f"{failure} here: {e}")
    if done.returncode:
        pytest.skip(f"{failure} here: {(done.stderr or done.stdout).strip()[-300:]}")
