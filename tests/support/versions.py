"""Run a core of the tests on every Spark, Iceberg and dbt that docs/guides/connections.md names: `make versions`.

The pair that PyPI has is left to `make test-all`. Each Spark and dbt is in a folder of its own, before the project's
environment on Python's path; jars come from Maven's local repository, or from Maven Central.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from environments import from_maven, packages
from nightly import NIGHTLY

# Of each Spark the newest Iceberg first.
PAIRS = [
    ("4.1.4", "1.12.0"),
    ("4.0.5", "1.11.0"),
    ("3.5.9", "1.12.0"),
    ("4.1.4", "1.11.0"),
    ("4.0.5", "1.10.2"),
    ("3.5.9", "1.11.0"),
]
# What differs between versions, with a merge of format version 3, and of all at night (NIGHTLY=1). More for the newest
# pair, at night for the newest Iceberg of each Spark.
SHORT = [
    *(
        f"tests/iceberg/test_{name}.py"
        for name in ("internals", "specs_and_versions", "manifest_entries", "orphans", "names")
    ),
    "tests/iceberg/test_native.py::test_other_readers_see_the_same_rows",
    "tests/iceberg/test_unusual_tables.py::test_a_dropped_partition_column_is_refused_with_its_repair",
    "tests/iceberg/test_curve_merge.py::test_the_place_in_sql_is_that_of_the_curve",
]
LONG = [
    *(f"tests/iceberg/test_{name}.py" for name in ("merge", "conflicts", "commit_checks", "event_logs")),
    "tests/functional/test_clustering.py",
]
QUICK = [] if NIGHTLY else ["-m", "not exhaustive and not thorough"]
# For the newest pair of all, by S3FileIO.
STORAGE = ["tests/processes/test_s3.py"]
# The newest dbt-core, without its parser, which downloads a binary from outside PyPI, and which no command here needs;
# and the last one for networks that block the download, with the package that 1.12 does without.
DBTS = {"1.12.6": (), "1.11.16": ("dbt-semantic-interfaces==0.9.0",)}
TESTS_OF_DBT = ["tests/functional/test_clustering.py", "tests/functional/test_operations.py"]
DEMO = ("loads.py", "--loads=5", "--scale=0.01", "--block-rows=2000", "--lakehouse=lakehouse-test")
BUILD = Path("build")
# Seconds since 1970 after which no further version is started (.ci/run).
LATEST_START = float(os.environ.get("LATEST_START", "inf"))


def fetched(spark: str, iceberg: str) -> dict[str, str]:
    """Return the environment that names Iceberg's jar and a pyspark other than the project's own."""
    minor = spark.rpartition(".")[0]
    scala = "2.12" if minor == "3.5" else "2.13"
    jar = from_maven(f"org.apache.iceberg:iceberg-spark-runtime-{minor}_{scala}:{iceberg}")
    environment = {"RECLUSTER_TEST_ICEBERG_JAR": str(jar)}
    if metadata.version("pyspark") != spark:
        environment["PYTHONPATH"] = before_path(packages(f"pyspark-{spark}", "--no-deps", f"pyspark=={spark}"))
    return environment


def before_path(folder: Path) -> str:
    """Return Python's path with a folder before it."""
    return f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)


def tests_of_pairs() -> Iterator[tuple[tuple[str, str], str, list[str]]]:
    """Yield a pair, a name and the tests of each process to start."""
    for pair in PAIRS:
        newest = next(each for each in PAIRS if each[0] == pair[0]) if NIGHTLY else PAIRS[0]
        if pair == newest:
            yield pair, "long", LONG
        yield pair, "short", [*([] if pair == newest else QUICK), *SHORT, *(STORAGE if pair == PAIRS[0] else [])]


def run_pair(pair: tuple[str, str], which: str, tests: list[str]) -> bool:
    """Run tests on one pair, and return whether all passed."""
    spark, iceberg = pair
    name = f"Spark {spark} with Iceberg {iceberg}, {which} tests"
    return run(name, f"{spark}-{iceberg}-{which}", fetched(*pair), tests)


def fetched_dbt(version: str) -> Path:
    """Return the folder of another dbt."""
    more = DBTS[version]
    return packages("-".join(["dbt-core", version, *more]), "--no-deps", f"dbt-core=={version}", *more)


def run_dbt(version: str) -> bool:
    """Run tests on another dbt, and five loads of the demo on the newest; return whether all passed."""
    folder = fetched_dbt(version)
    tests = ["-p", "other_dbt", *QUICK, *TESTS_OF_DBT]
    demo = [sys.executable, *DEMO] if version == next(iter(DBTS)) else []  # its lakehouse serves one at a time
    return run(f"dbt-core {version}", f"dbt-{version}", {"PYTHONPATH": before_path(folder)}, tests, demo)


def run(name: str, file: str, environment: dict[str, str], tests: list[str], demo: Sequence[str] = ()) -> bool:
    """Run tests, and the demo if they pass; say what came of it, and return whether all passed."""
    if time.time() > LATEST_START:
        say(f"{name}: SKIPPED, no time is left on this machine")
        return True
    log, summary = BUILD / f"versions-{file}.log", BUILD / f"versions-{file}.txt"
    summary.unlink(missing_ok=True)
    environment = {**os.environ, **environment, "TEST_SUMMARY": str(summary), "TEST_NAME": name}
    command = [sys.executable, "-m", "pytest", "-m", "not exhaustive", *tests, *sys.argv[1:]]
    began = time.monotonic()
    with log.open("w") as output:
        given: dict[str, Any] = {"env": environment, "stdout": output, "stderr": output, "check": False}
        code = subprocess.run(command, **given).returncode
        if demo and not code:
            code = subprocess.run(demo, cwd="integration_tests", **given).returncode
    result = summary.read_text().strip() if summary.exists() else f"{name}: no result"
    say(f"{result}, in {(time.monotonic() - began) / 60:.1f} minutes")
    if code:
        print(f"see {log}:\n{log.read_text()[-3000:]}", flush=True)
    return code == 0


def say(line: str) -> None:
    """Print a line, now and at the end of all tests."""
    print(line, flush=True)
    with (BUILD / "tests.txt").open("a") as tests:
        tests.write(line + "\n")


def main() -> int:
    """Run all, two at a time: each is one process with a Spark of its own."""
    BUILD.mkdir(exist_ok=True)
    try:
        for pair in PAIRS:
            fetched(*pair)
        for version in DBTS:
            fetched_dbt(version)
    except pytest.skip.Exception as e:
        say(f"versions: SKIPPED, {e}")
        return 0
    with ThreadPoolExecutor(int(os.environ.get("PROCESSES") or 2)) as pool:
        runs = [
            *(pool.submit(run_dbt, version) for version in DBTS),
            *(pool.submit(run_pair, *of_pair) for of_pair in tests_of_pairs()),
        ]
        return 0 if all(list(map(Future.result, runs))) else 1


if __name__ == "__main__":
    sys.exit(main())
