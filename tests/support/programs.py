"""Run programs: one to its end, a server while a test lasts, a benchmark for its figures."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ports import is_open

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# How a program says that something it needs cannot be had here.
_SKIPPED = 77


def run(*command: object, passes: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program that must succeed, or fail where it is not to pass; options are those of subprocess."""
    options = {"timeout": 900, "capture_output": True, "text": True, "check": False, **options}
    done: subprocess.CompletedProcess[str] = subprocess.run(list(map(str, command)), **options)
    assert (done.returncode == 0) == passes, done.stdout + done.stderr
    return done


def start(*command: object, **options: Any) -> subprocess.Popen[str]:
    """Start a program in a group of its own, which Ctrl-C ends as in the foreground of a terminal."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        list(map(str, command)),
        start_new_session=True,
        # A shell that starts the tests in the background has them ignore Ctrl-C, and programs would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **{**pipes, **options},
    )


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    """Read a program's output until a line has a text."""
    assert process.stdout is not None
    while text not in (line := process.stdout.readline()):
        assert line, f"it ended before {text!r}"


def interrupt(
    process: subprocess.Popen[str], text: str = "", after: float = 0, *, terminate: bool = False
) -> tuple[int, str, str]:
    """Press Ctrl-C some seconds after a line of output has a text; return the exit code and what is printed then.

    ``terminate`` sends SIGTERM in its place, to the program alone.
    """
    if text:
        wait_for(process, text)
    time.sleep(after)
    if terminate:
        process.terminate()
    else:
        os.killpg(process.pid, signal.SIGINT)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


@contextmanager
def serving(*command: object, log: Path, ports: list[int], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a server; yield its process once something listens on its ports, and end all that it has started."""
    with log.open("a") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
            **options,
        )
    deadline = time.monotonic() + 300
    try:
        while not all(map(is_open, ports)):
            assert process.poll() is None, f"{command[0]} ended: {log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"{command[0]} does not answer: {log.read_text()[-3000:]}"
            time.sleep(0.2)
        yield process
    finally:
        if (process.poll() or 0) > 0:  # a failing test shows it
            print(f"{command[0]} had ended by itself: {log.read_text()[-3000:]}")
        for kind in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, kind)
                try:
                    process.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    continue


def figures(program: Path, *options: str, json_file: Path) -> Any:
    """Run a program with ``--json`` and return what it wrote; skip the test, saying why, when the program does."""
    command = [sys.executable, str(program), *options, "--json", str(json_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode == _SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(json_file.read_text())
