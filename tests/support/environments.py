"""Programs and jars that are no part of this project's environment, each fetched once.

Packages are in ~/.cache/dbt-recluster-tests, jars in Maven's local repository.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CACHE = Path.home() / ".cache" / "dbt-recluster-tests"
_INSTALL = ["install", "--quiet", "--disable-pip-version-check", "--retries", "1"]


def program(name: str, environment: str, *requirements: str) -> Path:
    """Return a program of an environment with some packages; skip where it cannot be installed."""
    home = CACHE / environment
    _once(home, [sys.executable, "-m", "venv", str(home)], [str(home / "bin/pip"), *_INSTALL, *requirements])
    return home / "bin" / name


def packages(directory: str, *requirements: str) -> Path:
    """Return a directory for Python's path with some packages; skip where they cannot be installed."""
    home = CACHE / directory
    _once(home, [sys.executable, "-m", "pip", *_INSTALL, "--target", str(home), *requirements])
    return home


def from_maven(artifact: str) -> Path:
    """Return ``group:name:version[:extension]`` of Maven's local repository; skip where it cannot be fetched."""
    group, name, version, extension = (*artifact.split(":"), "jar")[:4]
    directory = Path.home() / ".m2/repository" / group.replace(".", "/") / name / version
    path = directory / f"{name}-{version}.{extension}"
    if not path.exists():
        get = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
        _call_or_skip(get, f"{name} {version} cannot be fetched")
    return path


def _once(home: Path, *commands: list[str]) -> None:
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        for command in commands:
            _call_or_skip(command, f"{home.name} cannot be installed")
        (home / "complete").touch()


def _call_or_skip(command: list[str], failure: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as e:
        pytest.skip(f"{failure} here: {e}")
    if done.returncode:
        pytest.skip(f"{failure} here: {(done.stderr or done.stdout).strip()[-300:]}")
