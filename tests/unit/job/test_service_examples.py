"""The examples of docs/guides/job.md for a service, read by their own tools where these are installed."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from dbt_recluster.job.command_line import parse

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "job.md").read_text()


def example(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def check_stays(words: list[str], directory: Path) -> None:
    """Check that a command is the service's, with a properties file that is there."""
    (directory / "lake.conf").touch()
    words = [word.replace("/etc/recluster", str(directory)) for word in words]
    request = parse(words)
    assert (request.command, request.every, request.catalog) == ("recluster", 300, "lake")


def test_systemd_accepts_the_documented_unit(tmp_path: Path) -> None:
    unit = ConfigParser()
    unit.read_string(example("ini"))
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    check_stays(words, tmp_path)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian's package systemd)")
    file = tmp_path / "recluster.service"
    file.write_text(example("ini").replace(program, sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_kubernetes_accepts_the_documented_deployment(tmp_path: Path) -> None:
    """kubectl drops the fields that it does not know."""
    deployment = yaml.safe_load(example("yaml"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    check_stays(container["command"][1:], tmp_path)
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed (Debian's package kubernetes-client)")
    command = ["kubectl", "set", "env", "--local", "--kubeconfig=/dev/null", "-f", "-", "-o", "json", "A=b"]
    done = subprocess.run(command, input=example("yaml"), capture_output=True, text=True, check=True)
    assert_within(deployment, json.loads(done.stdout))


def assert_within(given: Any, known: Any) -> None:
    """Check that every value of an object is at its place in another one."""
    if isinstance(given, dict):
        for name, value in given.items():
            assert name in known, name
            assert_within(value, known[name])
    elif isinstance(given, list):
        for value, other in zip(given, known, strict=True):
            assert_within(value, other)
    else:
        assert given == known
