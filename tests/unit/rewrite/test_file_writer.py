import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest

from dbt_recluster.iceberg.rewrite.native_tasks import NativeJob, _FileWriter

PARQUET = {"data_page_size": 1 << 20, "max_rows_per_page": 20_000, "dictionary_pagesize_limit": 2 << 20}
MEMORY = 128 << 20
POOLS: list[Any] = []  # outlive their buffers, which Python 3.14 frees later


@pytest.mark.parametrize("wide_first", [True, False])
def test_a_file_of_wide_rows_takes_half_of_the_memory(tmp_path: Path, wide_first: bool) -> None:
    fields = [("k", pa.int64()), ("s", pa.binary())]
    schema = pa.schema([pa.field(*field, metadata={"PARQUET:field_id": str(n)}) for n, field in enumerate(fields)])
    job = NativeJob("id", schema, (), (), (), (), {}, PARQUET, MEMORY, bound_length=17)
    writer = _FileWriter(job, pyarrow.fs.LocalFileSystem(), str(tmp_path / "a.parquet"), 1000)

    def rows(start: int, size: int) -> Any:
        values = [None if number % 10 == 0 else os.urandom(8) * (size // 8) for number in range(100)]
        return pa.record_batch([pa.array(range(start, start + 100)), pa.array(values, pa.binary())], schema=schema)

    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        for number in range(50):
            writer.add(rows(100 * number, 30_000 if (number < 25) == wide_first else 8_000))
        file = writer.close()
        assert pool.max_memory() < 1.3 * MEMORY // 2
        assert [list(map(len, ends)) for ends in file.bounds.values()] == [[17, 17]]
    finally:
        pa.set_memory_pool(before)
    table = pa.parquet.read_table(tmp_path / "a.parquet")
    assert table["k"].to_pylist() == list(range(5000))
    assert (file.size, len(file.split_offsets)) == ((tmp_path / "a.parquet").stat().st_size, 5)
