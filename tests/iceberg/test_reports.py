"""The report of tables whose names and values would break a page, a figure or a formula."""

import re
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dbt_recluster.advice.report_data import report_data
from dbt_recluster.clustering.table import ClusteredTable
from dbt_recluster.report.html import overview_png, write_report

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
        page, picture = write_report([report_data(table, table.options())], tmp_path / "report.html")
    text = page.read_text(encoding="utf-8")
    figures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(figures) >= 4
    for figure in figures:
        ElementTree.fromstring(figure)
    assert "<img" not in text
    assert re.sub(r"[\n\t]", "", text).isprintable()
    assert picture.read_bytes()[:4] == b"\x89PNG"
    for command in ("information", "estimate"):
        _, out, _ = run(command, name, "--cluster-by", key)
        assert out.startswith(f"{name} by ")
        assert out.replace("\n", "").isprintable()


def test_the_picture_leaves_out_tables_of_one_block(spark: Any, schema: str) -> None:
    reports = []
    for name, loads in (("several", 3), ("one", 1)):
        spark.sql(f"create table {schema}.{name} (k bigint) using iceberg")
        for load in range(loads):
            spark.sql(f"insert into {schema}.{name} select id + {load} from range(0, 100, 1, 1)")
        table = ClusteredTable(spark, f"{schema}.{name}", "k")
        reports.append(report_data(table, table.options()))
    assert overview_png(reports) == overview_png(reports[:1]) != overview_png(reports[1:])
