"""README's line for networks that reach PyPI and nothing else, in an empty environment (`make closed-network`)."""

import os
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from dbt_command import Project
from packaging.requirements import Requirement
from programs import run
from versions import DBTS

from dbt_recluster.iceberg.session.environment import ICEBERG_RELEASES

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
MODEL = """{{ config(materialized='incremental', cluster_by='hilbert(a, b)', recluster_depth=1) }}
select rand() as a, id as b from range(99)"""
PYPI = ("pypi.org", "files.pythonhosted.org")
pytestmark = pytest.mark.network


def requirements() -> list[str]:
    """What README says to install where the network is closed."""
    text = " ".join((ROOT / "README.md").read_text().split())
    line = re.search(r"`pip install ('dbt-recluster\[embedded\]' 'dbt-core[^`]*)`", text)
    assert line is not None
    return [word.strip("'") for word in line[1].split()]


def extra(name: str) -> dict[str, Requirement]:
    """What an extra brings on Python 3.12, by name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    python = {"python_version": "3.12"}
    declared = map(Requirement, extras[name])
    return {each.name: each for each in declared if each.marker is None or each.marker.evaluate(python)}


def test_the_readme_installs_a_tested_dbt_core() -> None:
    """On closed networks the older one of `make versions`, for which there is no Python 3.14."""
    given = {requirement.name: requirement for requirement in map(Requirement, requirements())}
    assert list(given["dbt-core"].specifier.filter(DBTS)) == [list(DBTS)[-1]]


@pytest.mark.parametrize(
    ("name", "heading"),
    [("session", "`session`"), ("thrift", "`recluster_session`"), ("connect", "Spark Connect")],
)
def test_an_extra_brings_the_spark_of_the_jar_beside_it(name: str, heading: str) -> None:
    section = (ROOT / "docs/guides/connections.md").read_text().partition(f"## {heading}")[2]
    assert f"pip install 'dbt-recluster[{name}]'" in section
    spark, release = re.findall(r"iceberg-spark-runtime-([\d.]+)_[\d.]+:([\d.]+)", section)[0]
    assert ICEBERG_RELEASES[spark] == release
    brought = extra(name)
    pyspark = (brought if "pyspark" in brought else extra("embedded"))["pyspark"]
    versions = [f"{major}.{minor}.5" for major in (3, 4) for minor in range(10)]
    assert list(pyspark.specifier.filter(versions)) == [f"{spark}.5"]


def closed_network(pip: Path) -> dict[str, str]:
    """An environment in which what is not on PyPI, or on another index that pip has here, cannot be reached."""
    if any(name.lower() == "https_proxy" for name in os.environ):
        return dict(os.environ)  # without it, nothing may be reached
    settings = run(pip, "config", "list").stdout
    indexes = re.findall(r"https?://(?:[^/@'\s]*@)?([^/:'\s]+)", settings)
    # There is no proxy at this address.
    closed = {"https_proxy": "http://127.0.0.1:9", "no_proxy": ",".join([*PYPI, *indexes])}
    return {**os.environ, **closed, **{name.upper(): value for name, value in closed.items()}}


class Installation:
    """An empty environment, and a project of one model with a profile for ``method: embedded``."""

    def __init__(self, directory: Path) -> None:
        run(sys.executable, "-m", "venv", directory / "venv")
        self._programs = directory / "venv" / "bin"
        self.environment = closed_network(self._programs / "pip")
        profile = {"method": "embedded", "path": "lake"}
        self._project = Project(directory / "p", profile, {"events.sql": MODEL}, dbt=[self._programs / "dbt"])

    def dbt(self, command: str, *, passes: bool = True) -> str:
        code, out, err = self._project.run(command, **self.environment)
        assert (code == 0) == passes, out + err
        return out + err

    def install(self, *requirements: str) -> None:
        run(self._programs / "pip", "install", "--quiet", *requirements, env=self.environment)


def test_the_package_installs_from_pypi_alone(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    ours, *others = requirements()
    installation.install(ours.replace("dbt-recluster", str(ROOT)), *others)
    assert "PASS=1" in installation.dbt("run")


def test_the_lowest_versions_run_and_what_is_missing_beside_them_is_named(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    declared = map(Requirement, metadata.requires("dbt-recluster") or ())
    lowest = [
        f"{each.name}=={each.specifier}".replace(">=", "")
        for each in declared
        if each.name in ("numpy", "pyarrow") and (each.marker is None or each.marker.evaluate())
    ]
    ours, *others = requirements()
    installation.install(str(ROOT), *others, *lowest)
    installation.dbt("parse")
    for command in ("debug", "run"):
        said = installation.dbt(command, passes=False)
        assert "pip install 'dbt-recluster[embedded]' brings Spark, Iceberg and Java" in said
        assert "Traceback" not in said
    installation.install(ours.replace("dbt-recluster", str(ROOT)), *others, *lowest)
    installation.dbt("run")
    assert ", 2 blocks into 1" in installation.dbt("run")


def test_the_newest_dbt_core_where_it_can_be_installed(tmp_path: Path) -> None:
    """dbt-core 1.12 needs a package that downloads a binary from outside PyPI when it is built."""
    installation = Installation(tmp_path)
    installation.environment = dict(os.environ)
    try:
        installation.install(f"{ROOT}[embedded]", "dbt-core>=1.12")
    except AssertionError as e:
        if "dbt-core-experimental-parser" not in str(e):
            raise
        pytest.skip("dbt-core 1.12 cannot be installed here: its parser comes from outside PyPI")
    installation.dbt("run")
    assert ", 2 blocks into 1" in installation.dbt("run")
