"""DuckDB's threads read one open file at once, and each gets the bytes at its own place."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from pyarrow import fs

from dbt_recluster.iceberg.rewrite.native_tasks import _for_duckdb

SIZE = 5_000_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "file.parquet"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    return str(path)


def test_threads_do_not_move_each_other(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        file, expected = _for_duckdb(fs.LocalFileSystem(), {path: SIZE}).open(path), Path(path).read_bytes()

        def read(seed: int) -> bool:
            chosen = random.Random(seed)
            for _ in range(300):
                place, count = chosen.randrange(SIZE), chosen.choice([1, 8, 4_000, 300_000, 2_500_000])
                file.seek(place)
                if file.read(count) != expected[place : place + count]:
                    return False
            return True

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(read, range(8)))
    finally:
        sys.setswitchinterval(before)


def test_the_end_is_read_once_and_neighbours_together(path: str) -> None:
    asked: list[tuple[int, int]] = []

    class Counted:
        def __init__(self, file: object) -> None:
            self._file = file

        def read_at(self, count: int, place: int) -> bytes:
            asked.append((place, count))
            return self._file.read_at(count, place)  # type: ignore[attr-defined, no-any-return]

    class Files(fs.PyFileSystem):
        def open_input_file(self, name: str) -> Counted:  # type: ignore[override]
            return Counted(fs.LocalFileSystem().open_input_file(name))

    files = _for_duckdb(Files(fs.FSSpecHandler(fsspec.filesystem("file"))), {path: SIZE})
    for _ in range(2):  # as for two blocks
        file = files.open(path)
        for place in (SIZE - 8, SIZE - 5_000, 0, 500_000, 1_500_000):
            file.seek(place)
            assert len(file.read(8)) == 8
        file.close()
    assert len(asked) == 2
