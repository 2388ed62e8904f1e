"""What the benchmarks share: arguments, a directory to work in, TPC-H, and the figures as JSON.

Import it first: it makes the helpers in tests/support importable.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the first line of a module's docstring, with ``--json``."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--json", help="also write the figures to this file")
    return made


@contextmanager
def own_directory(name: str) -> Iterator[Path]:
    """Yield an empty directory that goes away again."""
    with tempfile.TemporaryDirectory(prefix=f"recluster-{name}-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def tpch(directory: Path, scale: float, *tables: str) -> Path:
    """Return a directory with tables of TPC-H as Parquet files, which are made on the first call."""
    if not all((directory / f"{table}.parquet").exists() for table in tables):
        directory.mkdir(parents=True, exist_ok=True)
        made = ["parquet", "-s", f"{scale:g}", "--tables", ",".join(tables), "--output-dir", str(directory)]
        subprocess.run(
            [Path(sys.executable).with_name("tpchgen-cli"), *made], check=True, capture_output=True
        )
    return directory


def save(options: argparse.Namespace, figures: Mapping[str, Any]) -> None:
    """Write figures, and the options they were measured with, where ``--json`` says."""
    if options.json:
        path = Path(options.json)
        path.parent.mkdir(parents=True, exist_ok=True)
        asked = {name: value for name, value in vars(options).items() if name != "json"}
        path.write_text(json.dumps({"options": asked, **figures}, indent=2) + "\n")
