"""Spark is started with settings from files, whatever characters they have, beside the user's own files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import run

from dbt_recluster.exceptions import SparkEnvironmentError
from dbt_recluster.iceberg.session.local_spark import find_java_home
from dbt_recluster.iceberg.session.starter import start_spark

ODD = {
    "spark.odd.value": " a=b: c#d !e \\ \\n \"f\" 'g' ü 😀 ${h} %i ",
    "spark.odd name:with=everything": "x",
    "spark.odd.lines": "one\ntwo",
    "spark.odd.empty": "",
    "spark.both": "of the settings",
    "not.of.spark": "y",
}
MORE = ("spark.of.defaults", "spark.of.file")
PROGRAM = """
import json, os, stat, sys
from pathlib import Path
from dbt_recluster.iceberg.session import starter

def look(path, text, write=starter._write):
    write(path, text)
    modes.append(stat.S_IMODE(path.stat().st_mode) | stat.S_IMODE(path.parent.stat().st_mode))
    paths.append(path)

modes, paths = [], []
starter._write = look
settings, more = map(json.loads, sys.argv[1:])
spark = starter.start_spark(settings)
System = spark._jvm.java.lang.System
print(json.dumps({
    "settings": {name: spark.conf.get(name, None) for name in [*settings, *more]},
    "early": {name: System.getProperty(name) for name in settings},
    "option": System.getProperty("a.b"),
    "command": Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/cmdline").read_text(),
    "modes": modes,
    "left": [str(path) for path in paths if path.exists() or path.parent.exists()],
    "environment": os.environ.get("PYSPARK_SUBMIT_ARGS"),
}))
"""
LOCAL = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-Xss4m \"-Da.b=c d \\\\ '#ü\" '-De={f}'",
}


def start(directory: Path, **environment: str) -> dict[str, Any]:
    """Start Spark in a process of its own, with its defaults in a directory; return what it then has."""
    (directory / "conf").mkdir()
    defaults = "spark.of.defaults yes\nspark.both=of the defaults\nspark.master local[7]\\"
    (directory / "conf" / "spark-defaults.conf").write_text(defaults)
    given = [json.dumps(each) for each in ({**ODD, **LOCAL}, MORE)]
    own = {"JAVA_HOME": str(find_java_home()), "SPARK_CONF_DIR": str(directory / "conf"), **environment}
    done = run(sys.executable, "-c", PROGRAM, *given, env={**os.environ, **own})
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_settings_come_from_files_beside_the_defaults(tmp_path: Path) -> None:
    seen = start(tmp_path)
    assert seen["settings"] == {**ODD, **LOCAL, "spark.of.defaults": "yes", "spark.of.file": None}
    # What spark-submit knows before there is a session: it takes spaces off, and takes Spark's settings only.
    of_spark = {name: value.strip() for name, value in ODD.items() if name.startswith("spark.")}
    assert {name: seen["early"][name] for name in of_spark} == of_spark
    assert seen["option"] == "c d \\ '#ü"
    assert (seen["modes"], seen["left"], seen["environment"]) == ([0o700, 0o700], [], None)


def test_settings_join_those_of_the_environment(tmp_path: Path) -> None:
    own = tmp_path / "own file.conf"
    own.write_text("spark.of.file yes\n")
    arguments = f"--conf spark.of.defaults=no '--properties-file={own}' pyspark-shell"
    seen = start(tmp_path, PYSPARK_SUBMIT_ARGS=arguments)
    assert seen["settings"] == {**ODD, **LOCAL, "spark.of.defaults": "no", "spark.of.file": "yes"}
    assert seen["environment"] == arguments
    # spark-submit still gets them, so that they come before those of a profile.
    assert "spark.of.defaults=no" in seen["command"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"spark.driver.memory": "1x"},  # Java refuses it
        {"spark.master": "locl[1]"},  # spark-submit does
        {"spark.serializer": "nope"},  # Spark does
        {"spark.local.dir": "/proc/nope"},  # Spark ends Java
    ],
)
def test_a_setting_with_which_spark_does_not_start_is_named(wrong: dict[str, str], tmp_path: Path) -> None:
    program = "import json, sys\nfrom dbt_recluster.iceberg.session.starter import start_spark\n"
    program += "start_spark(json.loads(sys.argv[1]))"
    own = {"JAVA_HOME": str(find_java_home()), "SPARK_CONF_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program, json.dumps({**LOCAL, **wrong})]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=300, check=False)
    ((name, value),) = wrong.items()
    assert f"{name}: {value}" in done.stderr.splitlines()[-1]


def test_a_running_spark_reads_no_file(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(SparkEnvironmentError, match="runs already: give --properties-file to spark-submit"):
        start_spark({}, properties_file=tmp_path)
