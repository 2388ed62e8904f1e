"""The wheel, installed outside the repository: it holds everything, and dbt works with it."""

import hashlib
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from dbt_command import EVENTS, Project
from jobs import Jobs
from programs import run

from dbt_recluster.iceberg.session.environment import RUNTIMES

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.xdist_group("the wheel")


# The command `dbt` of an environment that has no scripts.
DBT = "import sys; from dbt.cli.main import cli; sys.argv[0] = 'dbt'; cli()"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel made from the source distribution, as PyPI's users who build it themselves would."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    assert len(list(out.glob("*.tar.gz"))) == 1
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it, beside links to the dependencies of the one that runs the tests."""
    home = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", home)
    python = home / "bin" / "python"
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").stdout.strip()
    mirror(Path(sysconfig.get_paths()["purelib"]), Path(packages))
    # A wheel without compiled parts is installed by unpacking it; pip's --target would not join the directory dbt.
    zipfile.ZipFile(wheel).extractall(packages)
    return python


def mirror(source: Path, target: Path) -> None:
    """Link every installed package but our own. dbt and dbt.adapters are directories of their own, for us to join."""
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if "dbt_recluster" in entry.name or entry.name in ("__pycache__", "recluster"):
            continue
        if entry.is_dir() and (entry.name == "dbt" or (entry.name == "adapters" and source.name == "dbt")):
            mirror(entry, target / entry.name)
        else:
            (target / entry.name).symlink_to(entry)


def test_the_wheel_has_the_package_and_its_macros(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if name.startswith("dbt/")} == {
        "dbt/adapters/recluster/__init__.py",
        "dbt/adapters/recluster/__version__.py",
    }
    macros = {str(path.relative_to(ROOT)) for path in (ROOT / "macros").rglob("*") if path.is_file()}
    assert {f"dbt_recluster/include/{macro}" for macro in macros} <= names
    assert {"dbt_recluster/include/dbt_project.yml", "dbt_recluster/include/profile_template.yml"} <= names
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"dbt", "dbt_recluster"}


def test_spark_submit_takes_the_job_file_and_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """Nothing else of ours is on the driver, and no dbt."""
    archive = zipfile.ZipFile(wheel)
    entry_points = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert b"dbt-recluster = dbt_recluster.job.command_line:main" in archive.read(entry_points)
    file = Path(archive.extract("dbt_recluster/job/recluster_job.py", tmp_path))
    jobs = Jobs(tmp_path, tmp_path / "warehouse", wheel=wheel)
    done = jobs.submit("recluster", "lake.sales.nowhere", "--json", code=2, file=file)
    assert done.answer["tables"][0]["error"].startswith("lake.sales.nowhere cannot be loaded: ")


def test_wheel_and_changelog_have_the_version_of_the_adapter(wheel: Path) -> None:
    from dbt.adapters.recluster.__version__ import version

    assert "version" not in yaml.safe_load((ROOT / "dbt_project.yml").read_text())
    assert wheel.name.startswith(f"dbt_recluster-{version}-")
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_dbt_runs_with_the_installed_wheel(python: Path, tmp_path: Path) -> None:
    profile = {"method": "embedded", "path": "lakehouse"}
    project = Project(tmp_path / "p", profile, {"events.sql": EVENTS}, dbt=[python, "-c", DBT])
    where = "import dbt_recluster, dbt.adapters.recluster as a; print(dbt_recluster.__file__, a.__file__)"
    assert str(ROOT) not in run(python, "-c", where, cwd=tmp_path).stdout
    for result in ("OK created", " blocks into "):
        assert result in project.succeed("run", PYTHONPATH="")


@pytest.mark.parametrize(
    ("answers", "written"),
    [
        (["1", "", "analytics", ""], {"method": "embedded", "path": "lakehouse"}),
        (
            ["3", "spark", "", "dbt", "lake", "https://catalog:8181", "analytics", ""],
            {
                **{"method": "thrift", "host": "spark", "port": 10000, "user": "dbt", "catalog": "lake"},
                "recluster_session": "https://catalog:8181",
            },
        ),
    ],
)
def test_dbt_init_knows_the_adapter(answers: list[str], written: dict[str, Any], python: Path, tmp_path: Path) -> None:
    """Asked for the adapter by its number, then for a method and what it needs; Enter takes each default."""
    command = [python, "-c", DBT, "--no-use-colors", "init", "shop", "--profiles-dir", tmp_path]
    listed = run(*command, cwd=tmp_path, input="x\n", passes=False).stdout
    line = next(line for line in listed.splitlines() if line.endswith("] recluster"))
    shutil.rmtree(tmp_path / "shop", ignore_errors=True)
    (tmp_path / "profiles.yml").unlink(missing_ok=True)
    run(*command, cwd=tmp_path, input="\n".join([line.split("]")[0].strip("["), *answers, ""]))
    profile = yaml.safe_load((tmp_path / "profiles.yml").read_text())["shop"]["outputs"]["dev"]
    assert profile == {"type": "recluster", **written, "schema": "analytics", "threads": 2}


def test_the_iceberg_jar_is_the_one_that_was_tried() -> None:
    """The package that carries it is not Iceberg's own; another file under the same name must not pass unseen."""
    package = pytest.importorskip("snowpark_connect_deps_iceberg", reason="not for Python 3.13")
    name = next(iter(RUNTIMES))
    assert hashlib.sha256(Path(package.get_jar_path(f"{name}.jar")).read_bytes()).hexdigest() == RUNTIMES[name]
