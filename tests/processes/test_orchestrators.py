"""The examples for Airflow and Dagster, run once each on an embedded lake; they take minutes to install."""

import os
import sys
from pathlib import Path

import pytest
from dbt_command import EVENTS, Project
from environments import program
from nightly import NIGHTLY
from programs import run

pytestmark = pytest.mark.skipif(not NIGHTLY, reason="orchestrators are run at night: NIGHTLY=1")
EXAMPLES = Path(__file__).parents[2] / "integration_tests" / "orchestrators"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "p", {"method": "embedded", "path": "lake"}, {"events.sql": EVENTS})
    project.succeed("run")
    return project


def orchestrate(project: Project, *command: str | Path, **environment: str) -> str:
    """Run an orchestrator, which finds this project's dbt first; return what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, "DBT_PROJECT": str(project.root), **environment}
    done = run(*command, env=own, cwd=project.root)
    return done.stdout + done.stderr


def test_dagster_runs_the_example(project: Project) -> None:
    dagster = program("dagster", "dagster", "dagster", "dagster-dbt", "dbt-core<1.12")
    (project.root / "home").mkdir()
    assets = ("-f", str(EXAMPLES / "dagster_assets.py"), "--select", "*")
    out = orchestrate(project, dagster, "asset", "materialize", *assets, DAGSTER_HOME=str(project.root / "home"))
    assert "analytics.events: reclustered 2 blocks into" in out
    assert "RUN_SUCCESS" in out


def test_airflow_runs_the_example(project: Project) -> None:
    airflow = program("airflow", "airflow", "apache-airflow")
    settings = {
        "AIRFLOW_HOME": str(project.root / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
    }
    orchestrate(project, airflow, "db", "migrate", **settings)
    out = orchestrate(project, airflow, "dags", "test", "shop", **settings)
    assert "analytics.events: reclustered 2 blocks into" in out
    assert "1 table: 1 well clustered" in out
