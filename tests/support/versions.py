"""Run a core of the tests on every Spark and Iceberg that docs/guides/connections.md names: `make versions`.

The pair that PyPI has is left to `make test-all`. Each Spark is in a folder of its own, before the project's
environment on Python's path; jars come from Maven's local repository, or from Maven Central.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

# Of each Spark the newest Iceberg first.
PAIRS = [
    ("4.1.4", "1.12.0"),
    ("4.0.5", "1.11.0"),
    ("3.5.9", "1.12.0"),
    ("4.1.4", "1.11.0"),
    ("4.0.5", "1.10.2"),
    ("3.5.9", "1.11.0"),
]
# What differs between versions, with merges of every format; and more for the newest pair, at night (NIGHTLY=1) for the
# newest Iceberg of each Spark.
SHORT = [
    *(
        f"tests/iceberg/test_{name}.py"
        for name in ("specs_and_versions", "manifest_entries", "orphans", "names")
    ),
    "tests/iceberg/test_unusual_tables.py::test_a_dropped_partition_source",
    "tests/iceberg/test_curve_merge.py::test_the_place_in_sql_is_that_of_the_curve",
]
CORE = [
    *SHORT,
    *(f"tests/iceberg/test_{name}.py" for name in ("merge", "conflicts", "commit_checks", "event_logs")),
    "tests/functional/test_clustering.py",
]
# For the newest pair of all, by S3FileIO.
STORAGE = ["tests/processes/test_s3.py"]
CENTRAL = "https://repo1.maven.org/maven2"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dbt-recluster-versions"
BUILD = Path("build")


def jar(spark: str, iceberg: str) -> Path:
    """Return Iceberg's runtime, fetched if no earlier run has."""
    minor = spark.rpartition(".")[0]
    artifact = f"iceberg-spark-runtime-{minor}_{'2.12' if minor == '3.5' else '2.13'}"
    place = f"org/apache/iceberg/{artifact}/{iceberg}/{artifact}-{iceberg}.jar"
    local = Path.home() / ".m2/repository" / place
    if not local.exists() and shutil.which("mvn"):
        coordinates = f"-Dartifact=org.apache.iceberg:{artifact}:{iceberg}"
        subprocess.run(["mvn", "-q", "dependency:get", coordinates, "-Dtransitive=false"], check=False)
    if local.exists():
        return local
    cached = CACHE / place
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(f"{CENTRAL}/{place}", timeout=60) as source,
            cached.with_suffix(".part").open("wb") as part,
        ):
            shutil.copyfileobj(source, part)
        cached.with_suffix(".part").rename(cached)
    return cached


def pyspark(version: str) -> Path | None:
    """Return the folder of a pyspark, installed if no earlier run has; None is the project's own."""
    if metadata.version("pyspark") == version:
        return None
    folder = CACHE / f"pyspark-{version}"
    if not folder.exists():
        print(f"installing pyspark {version} into {folder}", flush=True)
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--target", str(part), f"pyspark=={version}"], check=True)
        part.rename(folder)
    return folder


def run(pair: tuple[str, str]) -> bool:
    """Run the core on one pair, say what came of it, and return whether all passed."""
    spark, iceberg = pair
    name = f"Spark {spark} with Iceberg {iceberg}"
    log, summary = BUILD / f"versions-{spark}-{iceberg}.log", BUILD / f"versions-{spark}-{iceberg}.txt"
    summary.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "RECLUSTER_TEST_ICEBERG_JAR": str(jar(*pair)),
        "TEST_SUMMARY": str(summary),
        "TEST_NAME": name,
    }
    if folder := pyspark(spark):
        environment["PYTHONPATH"] = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(
            os.pathsep
        )
    newest = next(each for each in PAIRS if each[0] == spark) if os.environ.get("NIGHTLY") else PAIRS[0]
    tests = [*(CORE if pair == newest else SHORT), *(STORAGE if pair == PAIRS[0] else [])]
    command = [sys.executable, "-m", "pytest", *tests, "-m", "not exhaustive", *sys.argv[1:]]
    began = time.monotonic()
    with log.open("w") as output:
        code = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False).returncode
    result = summary.read_text().strip() if summary.exists() else f"{name}: no result"
    line = f"{result}, in {(time.monotonic() - began) / 60:.1f} minutes"
    say(line)
    if code:
        print(f"see {log}:\n{log.read_text()[-3000:]}", flush=True)
    return code == 0


def say(line: str) -> None:
    """Print a line, now and at the end of all tests."""
    print(line, flush=True)
    with (BUILD / "tests.txt").open("a") as tests:
        tests.write(line + "\n")


def main() -> int:
    """Run all pairs, two at a time: each is one process with a Spark of its own."""
    BUILD.mkdir(exist_ok=True)
    try:
        for pair in PAIRS:
            jar(*pair)
    except OSError as e:
        say(f"versions: SKIPPED, Iceberg's jars are not in ~/.m2 and Maven Central cannot be reached ({e})")
        return 0
    for spark in dict.fromkeys(spark for spark, _ in PAIRS):
        pyspark(spark)
    with ThreadPoolExecutor(int(os.environ.get("PROCESSES") or 2)) as pool:
        return 0 if all(list(pool.map(run, PAIRS))) else 1


if __name__ == "__main__":
    sys.exit(main())
