"""README's line for networks that reach PyPI and nothing else, in an empty environment (`make closed-network`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PYPI = ("pypi.org", "files.pythonhosted.org")
pytestmark = pytest.mark.network


def requirements() -> list[str]:
    """What README says to install where the network is closed."""
    text = " ".join((ROOT / "README.md").read_text().split())
    line = re.search(r"`pip install ('dbt-recluster\[embedded\]' 'dbt-core[^`]*)`", text)
    assert line is not None
    return [word.strip("'") for word in line[1].split()]


def test_our_own_constraints_are_among_them() -> None:
    given = {requirement.name: requirement for requirement in map(Requirement, requirements())}
    pinned = re.search(r"^dbt-core==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert pinned[1] in given["dbt-core"].specifier


def closed_network(pip: Path) -> dict[str, str]:
    """An environment in which what is not on PyPI, or on another index that pip has here, cannot be reached."""
    if any(name.lower() == "https_proxy" for name in os.environ):
        return dict(os.environ)  # without it, nothing may be reached
    settings = subprocess.run([str(pip), "config", "list"], capture_output=True, text=True, check=True).stdout
    indexes = re.findall(r"https?://(?:[^/@'\s]*@)?([^/:'\s]+)", settings)
    # There is no proxy at this address.
    closed = {"https_proxy": "http://127.0.0.1:9", "no_proxy": ",".join([*PYPI, *indexes])}
    return {**os.environ, **closed, **{name.upper(): value for name, value in closed.items()}}


def test_it_installs_from_pypi_alone(tmp_path: Path) -> None:
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    environment = closed_network(home / "bin" / "pip")

    def run(program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(home / "bin" / program), *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    ours, *others = requirements()
    run("pip", "install", "--quiet", ours.replace("dbt-recluster", str(ROOT)), *others)

    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "events.sql").write_text(
        "{{ config(materialized='incremental', cluster_by='id') }} select id from range(9)"
    )
    (tmp_path / "dbt_project.yml").write_text("{name: shop, version: 1.0.0, profile: shop}")
    (tmp_path / "profiles.yml").write_text(
        "shop: {target: dev, outputs: {dev: {type: recluster, method: embedded, path: lake, schema: s}}}"
    )
    assert "PASS=1" in run("dbt", "--no-use-colors", "run", "--profiles-dir", ".")
