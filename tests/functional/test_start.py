"""The transcripts of docs/start.md are what the operations print: the same lines, with other numbers."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dbt.tests.util import run_dbt
from operations import operate

START = (Path(__file__).resolve().parents[2] / "docs" / "start.md").read_text()
LINEITEM = """
{{ config(materialized='incremental', cluster_by='l_shipdate', sort_on_load=false, block_rows=300,
          automatic_clustering=this.name == 'lineitem') }}
select id as l_orderkey, pmod(hash(id, 1), 2000) as l_partkey,
    date_add(date'1992-01-02', pmod(hash(id), 2500)) as l_shipdate
from range({{ var('load', 0) * 1000 }}, {{ var('load', 0) * 1000 + 1000 }})
"""
# A command of the page, and the transcript right after it.
STEP = re.compile(r"```\ndbt run-operation (\w+) --args (.*?)\n```\n\n```text\n(.*?)```", re.DOTALL)
STEPS = STEP.findall(START)


def shape(line: str) -> str:
    """Return a line without its numbers, times, sizes and lengths of columns."""
    line = re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?", "T", line)
    line = re.sub(r"[+-]?\d[\d,.]*( (bytes|KB|MB))?", "N", line)
    line = re.sub(r"█+", "█", line.replace("N to N", "N"))
    return " ".join(re.sub(r"(block|set|load|day|snapshot|manifest|file|group|round)s\b", r"\1", line).split())


def shapes(text: str) -> set[str]:
    return {shape(line) for line in text.splitlines() if line.strip()}


class TestStart:
    MODELS = {"lineitem_not_reclustered.sql": LINEITEM, "lineitem.sql": LINEITEM}

    @pytest.fixture(scope="class", autouse=True)
    def loaded(self, project: Any) -> None:
        for load in range(6):
            run_dbt(["run", "--vars", json.dumps({"load": load})])

    def test_the_guide_has_six_transcripts(self) -> None:
        assert len(STEPS) == 6

    @pytest.mark.parametrize("step", STEPS, ids=[f"{number} {step[0]}" for number, step in enumerate(STEPS)])
    def test_a_transcript_of_the_guide_is_what_is_printed(self, project: Any, step: tuple[str, str, str]) -> None:
        name, arguments, text = step
        given = yaml.safe_load(re.sub(r"\\(.)", r"\1", arguments[1:-1]))
        if "where" in given:
            given["where"] = "l_shipdate >= date'1998-01-01'"
        printed = operate(name, json.dumps(given))
        printed = re.sub(r"^\d\d:\d\d:\d\d  ", "", re.sub(r"\x1b\[\d*m", "", printed), flags=re.MULTILINE)
        printed = printed.replace(f"{project.test_schema}.", "analytics.")
        missing = shapes(text) - shapes(printed) - {"..."}
        assert not missing, printed
