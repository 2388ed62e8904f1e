"""Run the `dbt` command in processes of its own, as users do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml


class Project:
    """A dbt project in a directory, with a profile."""

    def __init__(self, root: Path, profile: dict[str, Any], models: dict[str, str]) -> None:
        self.root = root
        (root / "models").mkdir(parents=True)
        for name, text in models.items():
            (root / "models" / name).write_text(text)
        flags = {"send_anonymous_usage_stats": False}
        self.write("dbt_project.yml", {"name": "p", "version": "1.0", "profile": "p", "flags": flags})
        self._started: list[subprocess.Popen[str]] = []
        target = {"type": "recluster", "schema": "analytics", "threads": 1, **profile}
        self.write("profiles.yml", {"p": {"target": "dev", "outputs": {"dev": target}}})

    def write(self, name: str, content: Any) -> None:
        (self.root / name).write_text(yaml.safe_dump(content))

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        dbt = Path(sys.executable).with_name("dbt")
        process = subprocess.Popen(
            [str(dbt), "--no-use-colors", *arguments, "--profiles-dir", "."],
            cwd=self.root,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that starts the tests in the background has them ignore Ctrl-C, and dbt would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._started.append(process)
        return process

    def stop(self) -> None:
        """Kill what was started and has not ended, as after a test that failed: its Spark would work on."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def files(self) -> set[str]:
        return {path.name for path in self.root.iterdir()}
