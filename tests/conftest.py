"""One Spark session per test process, in a lake of its own, shared by the Iceberg tests and dbt's.

What tests/processes and tests/package hold starts processes of its own, and is marked `processes`. tests/official is
dbt's own suite for adapters, marked `official`. `make more` runs these, `make spark` all else, in two processes with a
Spark each, without those marked `thorough` unless THOROUGH=1. `exhaustive` tests are more cases of another test, and so
is all but the first case of a test marked `alike`: they run at night, by `NIGHTLY=1 make more`.
"""

import gc
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime import JAVA_OPTIONS, iceberg_jar, spark_environment
from tables import add_catalog

pytest_plugins = ["dbt.tests.fixtures.project"]

SPARK_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    # The metastore of a test need not survive a power cut.
    "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dderby.system.durability=test",
}
SPARK_SETTINGS["spark.driver.extraClassPath"] = str(iceberg_jar())
if "PYTEST_XDIST_WORKER" in os.environ:
    SPARK_SETTINGS["spark.master"] = "local[2]"


def _declared(name: str) -> Any:
    """Make a fixture of dbt's that is a constant of the test class, of the same name."""

    @pytest.fixture(scope="class", name=name)
    def declared(request: pytest.FixtureRequest) -> dict[str, Any]:
        return dict(getattr(request.cls, name.upper(), {}))

    return declared


models, seeds, snapshots, macros = map(_declared, ("models", "seeds", "snapshots", "macros"))
tests, functions, packages = map(_declared, ("tests", "functions", "packages"))
project_config_update = _declared("project_config_update")


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("the lake")


@pytest.fixture(scope="session")
def spark(lake: Path) -> Any:
    """The embedded Spark. dbt, with the same path in its profile, gets this very session."""
    from dbt_recluster.iceberg.session import embedded

    return embedded.start(str(lake), SPARK_SETTINGS)


@pytest.fixture
def schema(spark: Any) -> Iterator[str]:
    """A schema of the test's own."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    spark.sql(f"create schema {name}")
    yield name
    spark.sql(f"drop schema {name} cascade")


@pytest.fixture
def hadoop_catalog(spark: Any, tmp_path: Path) -> str:
    """A catalog beside the session's, on a directory: it keeps names as they are, where Hive's are lower case."""
    name = f"c_{uuid.uuid4().hex[:12]}"
    add_catalog(spark, name, type="hadoop", warehouse=tmp_path.as_uri())
    return name


@pytest.fixture
def uncached_catalog(spark: Any, hadoop_catalog: str) -> str:
    """A catalog of the test's own that keeps no table in memory."""
    spark.conf.set(f"spark.sql.catalog.{hadoop_catalog}.cache-enabled", "false")
    return hadoop_catalog


@pytest.fixture
def broken_catalog(spark: Any) -> Iterator[str]:
    """A catalog that does not start."""
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "nonsense"}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.broken{name}", value)
    yield "broken"
    for name in settings:
        spark.conf.unset(f"spark.sql.catalog.broken{name}")


@pytest.fixture
def run(spark: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command of ``dbt-recluster``; returns its exit code, standard output and standard error."""
    from dbt_recluster.job.command_line import main

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def run_json(run: Any) -> Any:
    """Runs a command with ``--json``; returns its exit code, its object and standard error."""

    def run_json(*arguments: str) -> tuple[int, Any, str]:
        code, out, err = run(*arguments, "--json")
        answer = json.loads(out)
        assert answer["exit_code"] == code
        return code, answer, err

    return run_json


@pytest.fixture(scope="session")
def dbt_profile_target(spark: Any, lake: Path) -> dict[str, Any]:
    return {
        "type": "recluster",
        "method": "embedded",
        "path": str(lake),
        "threads": 2,
        "server_side_parameters": SPARK_SETTINGS,
    }


def pytest_configure() -> None:
    """Spare Python and Java what only tests notice: each has many commands, or many processes."""
    for variable, value in {**spark_environment(), "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS}.items():
        os.environ.setdefault(variable, value)
    # dbt makes many objects that stay for the whole command; each is looked at again and again.
    gc.set_threshold(200_000, 50, 100)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start processes, dbt's own, and all but the first of cases that are alike."""
    seen: set[str] = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if item.get_closest_marker("alike") and test in seen:
            item.add_marker("exhaustive")
        seen.add(test)
        if item.path.parent.name in ("processes", "package"):
            item.add_marker("processes")
        elif not item.get_closest_marker("xdist_group"):
            # A module or class may share fixtures; what starts processes runs wherever there is room.
            item.add_marker(pytest.mark.xdist_group(test.rpartition("::")[0]))
        if item.path.parent.name == "official":
            item.add_marker("official")
    # The longest first, the integration project before all: the short ones fill the end.
    items.sort(key=lambda item: (not item.get_closest_marker("processes"), "integration_project" not in item.nodeid))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """End with one line of what ran, what was skipped, and why."""
    stats = terminalreporter.stats
    parts = [f"{len(stats[name])} {name}" for name in ("passed", "failed", "error") if stats.get(name)]
    reasons: Counter[str] = Counter()
    for report in stats.get("skipped", []):
        own = "test_dbt_adapter" not in report.nodeid
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        reasons[
            reason if own else "dbt's own tests of what Spark lacks (reasons in tests/official/test_dbt_adapter.py)"
        ] += 1
    parts += [f"{count} skipped: {reason}" for reason, count in reasons.items()]
    line = "; ".join(parts)
    terminalreporter.write_line(line)
    file = os.environ.get("TEST_SUMMARY")
    if file and "PYTEST_XDIST_WORKER" not in os.environ:  # each worker has a summary of its own
        with Path(file).open("a") as summary:
            summary.write(f"{os.environ.get('TEST_NAME', 'tests')}: {line}\n")
