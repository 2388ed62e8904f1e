"""How DuckDB's threads read remote files: each the bytes at its own place, in few requests."""

import random
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from dbt_recluster.iceberg.rewrite.native_tasks import _for_duckdb


class Store:
    """A store that counts the requests, each of which takes time."""

    type_name = "s3"

    def __init__(self, seconds: float) -> None:
        self.requests = Counter[tuple[int, int]]()
        self._seconds = seconds

    def open_input_file(self, path: str) -> Any:
        file, requests, seconds = fs.LocalFileSystem().open_input_file(path), self.requests, self._seconds

        class Slow:
            def read_at(self, count: int, place: int) -> Any:
                requests[place, count] += 1
                time.sleep(seconds)
                return file.read_at(count, place)

        return Slow()


def test_threads_do_not_move_each_other(tmp_path: Path) -> None:
    path, values = tmp_path / "a.parquet", random.Random(1)
    table = pa.table({"v": [values.randbytes(1000) for _ in range(15_000)]})
    with pq.ParquetWriter(path, table.schema, use_dictionary=False) as writer:
        for start, rows in ((0, 2_000), (2_000, 2_000), (4_000, 11_000)):  # the last is too large to be read whole
            writer.write_table(table.slice(start, rows), row_group_size=rows)
    expected, before = path.read_bytes(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        file = _for_duckdb(Store(0), {str(path): len(expected)}, 8 << 20).open(str(path))

        def read(seed: int) -> bool:
            chosen = random.Random(seed)
            for _ in range(100):
                place, count = chosen.randrange(len(expected)), chosen.choice([1, 8, 4_000, 300_000, 2_500_000])
                file.seek(place)
                if file.read(count) != expected[place : place + count]:
                    return False
            return True

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(read, range(8)))
    finally:
        sys.setswitchinterval(before)


# Two row groups of 6, 6 and 18 MB; the footer of 900 columns is a large one.
@pytest.mark.parametrize(
    ("columns", "values", "requests"), [(8, 1_500_000, 2), (900, 1_500_000, 2), (900, 4_500_000, 6)]
)
def test_neighbours_are_one_request_and_a_footer_at_most_two(
    tmp_path: Path, columns: int, values: int, requests: int
) -> None:
    """DuckDB asks for columns one by one, several at the same time."""
    rows = values // columns
    numbers = np.random.default_rng(1).permutation(rows)
    table = pa.table({f"c{place}": numbers + place for place in range(columns)})
    file, store = tmp_path / "a.parquet", Store(0.02)
    pq.write_table(table, file, row_group_size=rows // 2 + 1, use_dictionary=False, compression="none")
    size = file.stat().st_size
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.register_filesystem(_for_duckdb(store, {str(file): size}, 64 << 20))
        for _ in range(2):  # as for two blocks
            read = connection.sql(f"select * from read_parquet('s3://{file}') where c0 >= 0").to_arrow_table()
            assert read.sort_by("c0").equals(table.sort_by("c0").cast(read.schema))
    at_the_end = [request for request in store.requests if sum(request) == size]
    assert len(store.requests) - len(at_the_end) == requests
    assert len(at_the_end) <= 2
    assert set(store.requests.values()) == {1}
