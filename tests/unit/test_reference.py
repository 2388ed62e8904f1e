from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from dbt_recluster.clustering.options import RECLUSTER_OPTIONS
from dbt_recluster.maintenance import PlanningOptions, ReclusteringOptions, estimate_recluster
from dbt_recluster.operations.declaration import PLANNING
from dbt_recluster.operations.inspection import OPERATIONS
from dbt_recluster.operations.tables import MODEL_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "recluster.schema.json").read_text())
MACROS = (ROOT / "macros" / "operations" / "operations.sql").read_text()


def test_the_reference_says_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_macro_of_its_name(name: str) -> None:
    (line,) = [line for line in MACROS.splitlines() if f"macro {name}(" in line]
    assert line.startswith(f"{{% macro {name}(table=none) %}}")
    assert f"adapter.operate('{name}', dict(kwargs, table=table), context)" in line


def mistakes(text: str) -> list[list[Any]]:
    """Where the schema for editors finds mistakes in YAML."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    return [
        list(error.absolute_path)
        for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(yaml.safe_load(text))
    ]


@pytest.mark.parametrize("option", MODEL_OPTIONS.values(), ids=MODEL_OPTIONS)
def test_an_editor_takes_the_example_of_every_option(option: Any) -> None:
    for config in (
        f"{option.config}: {option.example}",
        f"meta: {{recluster: {{{option.name}: {option.example}}}}}",
    ):
        assert not mistakes(f"models:\n- name: m\n  config: {{{config}}}")
    assert not mistakes(f"models: {{p: {{staging: {{+{option.config}: {option.example}, +tags: [a]}}}}}}")


def test_an_editor_marks_mistakes() -> None:
    good = """
models:
- name: events
  columns: [{name: id, data_tests: [unique]}]
  config:
    materialized: incremental
    cluster_by: [to_date(ts), id]
    recluster_depth: "{{ var('depth') }}"
    recluster_max_bytes: 1.5 GB
    recluster_reads: [{query: select 1, weight: 3}, id = 1]
    recluster_when: {skipped: 0.9}
    recluster_where: null
"""
    assert not mistakes(good)
    for right, wrong in (
        ("1.5 GB", "lots"),
        ("recluster_depth:", "recluster_deph:"),
        ("{skipped: 0.9}", "{skips: 0.9}"),
        ("{query: select 1, weight: 3}", "{weight: 3}"),
        ("[to_date(ts), id]", "1"),
    ):
        assert mistakes(good.replace(right, wrong)), wrong
    assert mistakes("models: [{name: m, meta: {recluster: {recluster_depth: 2}}}]")
    assert mistakes("models: {p: {+recluster_strategy: best}}") == [["models", "p", "+recluster_strategy"]]


def test_the_package_names_the_pythons_that_ci_runs() -> None:
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    named = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    assert named == ci["jobs"]["test"]["strategy"]["matrix"]["python"]


def test_the_python_functions_take_every_option_but_those_of_builds() -> None:
    of_builds = {name for name in RECLUSTER_OPTIONS if name in ("after", "when")}
    assert set(ReclusteringOptions.__annotations__) == set(RECLUSTER_OPTIONS) - of_builds
    assert list(PlanningOptions.__annotations__) == [argument.name for argument in PLANNING]


def test_a_python_function_refuses_an_option_that_it_does_not_take() -> None:
    unknown: dict[str, bool] = {"final": True}
    with pytest.raises(TypeError, match="unexpected keyword argument 'final'"):
        estimate_recluster(None, "a.t", **unknown)  # type: ignore[arg-type]
