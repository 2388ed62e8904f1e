"""Spark is started with settings from files, whatever characters they have, beside the user's own files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from dbt_recluster.java import find_java_home

ODD = {
    "spark.odd.value": " a=b: c#d !e \\ \\n \"f\" 'g' ü 😀 ${h} %i ",
    "spark.odd name:with=everything": "x",
    "spark.odd.lines": "one\ntwo",
    "spark.odd.empty": "",
    "spark.both": "of the settings",
    "not.of.spark": "y",
}
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
settings = json.loads(sys.argv[1])
spark = starter.start_spark(settings)
System = spark._jvm.java.lang.System
print(json.dumps({
    "settings": {name: spark.conf.get(name, None) for name in [*settings, "spark.of.defaults", "spark.of.file"]},
    "early": {name: System.getProperty(name) for name in settings},
    "option": System.getProperty("a.b"),
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


def start(directory: Path, **environment: str) -> dict[str, object]:
    """Start Spark in a process of its own, with its defaults in a directory; return what it then has."""
    (directory / "conf").mkdir()
    defaults = "spark.of.defaults yes\nspark.both=of the defaults\nspark.master local[7]\\"
    (directory / "conf" / "spark-defaults.conf").write_text(defaults)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps({**ODD, **LOCAL})],
        env={
            **os.environ,
            "JAVA_HOME": str(find_java_home()),
            "SPARK_CONF_DIR": str(directory / "conf"),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_settings_from_files_beside_the_defaults(tmp_path: Path) -> None:
    seen = start(tmp_path)
    settings, early = seen["settings"], seen["early"]
    assert isinstance(settings, dict)
    assert isinstance(early, dict)
    assert settings == {**ODD, **LOCAL, "spark.of.defaults": "yes", "spark.of.file": None}
    # What spark-submit knows before there is a session: it takes spaces off, and takes Spark's settings only.
    of_spark = {name: value.strip() for name, value in ODD.items() if name.startswith("spark.")}
    assert {name: early[name] for name in of_spark} == of_spark
    assert seen["option"] == "c d \\ '#ü"
    assert (seen["modes"], seen["left"], seen["environment"]) == ([0o700, 0o700], [], None)


def test_settings_beside_those_of_the_environment(tmp_path: Path) -> None:
    own = tmp_path / "own file.conf"
    own.write_text("spark.of.file yes\n")
    arguments = f"--conf spark.of.defaults=no '--properties-file={own}' pyspark-shell"
    seen = start(tmp_path, PYSPARK_SUBMIT_ARGS=arguments)
    settings = seen["settings"]
    assert isinstance(settings, dict)
    assert settings == {**ODD, **LOCAL, "spark.of.defaults": "no", "spark.of.file": "yes"}
    assert seen["environment"] == arguments
