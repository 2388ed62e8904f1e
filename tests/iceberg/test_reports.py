"""The report of tables whose names and values would break a page, a figure or a formula."""

import re
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.report.html import write_report
from dbt_recluster.report.report_data import report_data

TAG = '`a"><img src=x onerror=alert(1)>`'


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        (f"id as {TAG}, id % 7 as `b$c$`", f"hilbert({TAG}, `b$c$`)"),
        ("concat('$', id, '$_{') as `$k^$`, id as v", "`$k^$`"),
        (r"concat('\u0001\u001b[31m', id) as `k" + "\x1b[31m`, id as v", "`k\x1b[31m`"),
        ("concat('鍵', id) as `鍵`, id as v", "`鍵`"),
    ],
)
def test_whatever_comes_from_a_table_is_text(
    spark: Any, schema: str, columns: str, key: str, tmp_path: Path, run: Any
) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} using iceberg as select {columns} from range(100)")
    for _ in range(3):
        spark.sql(f"insert into {name} select {columns} from range(100)")
    table = ClusteredTable(spark, name, key)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        write_report([report_data(table, table.options())], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    figures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(figures) >= 4
    for figure in figures:
        ElementTree.fromstring(figure)
    assert "<img" not in text
    assert re.sub(r"[\n\t]", "", text).isprintable()
    for command in ("information", "estimate"):
        _, out, _ = run(command, name, "--cluster-by", key)
        assert out.startswith(f"{name} by ")
        assert out.replace("\n", "").isprintable()
