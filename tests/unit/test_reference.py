"""What is made from the declarations says what they say: the reference, the schema for editors, macros, functions.

And the documentation has every reason that the tool gives for doing nothing.
"""

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from dbt_recluster import api
from dbt_recluster.adapter.operations import FIGURES
from dbt_recluster.api import OPERATIONS, ReclusterResult, estimate_recluster
from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, ReclusteringOptions
from dbt_recluster.clustering.verdict import VERDICTS, Verdict
from dbt_recluster.operations.arguments import documented_arguments
from dbt_recluster.operations.model_options import MODEL_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "recluster.schema.json").read_text())
MACROS = (ROOT / "macros" / "operations" / "operations.sql").read_text()


def test_the_reference_says_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_operation_has_a_macro_of_its_name() -> None:
    for name in OPERATIONS:
        (line,) = [line for line in MACROS.splitlines() if f"macro {name}(" in line]
        assert line.startswith(f"{{% macro {name}(table=none) %}}")
        assert f"adapter.operate('{name}', dict(kwargs, table=table), context)" in line


def test_every_operation_is_a_function_of_python_and_explains_what_it_takes() -> None:
    for name, operation in OPERATIONS.items():
        taken = inspect.signature(getattr(api, name)).parameters
        assert list(taken)[:2] == ["spark", "table"]
        assert set(documented_arguments(operation.function)) <= set(taken)
        for argument in operation.arguments:
            assert argument.meaning.endswith("."), f"{name}: {argument.name}"


def mistakes(text: str) -> list[list[Any]]:
    """Where the schema for editors finds mistakes in YAML."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    return [list(error.absolute_path) for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(yaml.safe_load(text))]


def test_an_editor_takes_the_example_of_every_option() -> None:
    for name, option in MODEL_OPTIONS.items():
        for config in (
            f"{option.config}: {option.example}",
            f"meta: {{recluster: {{{name}: {option.example}}}}}",
        ):
            assert not mistakes(f"models:\n- name: m\n  config: {{{config}}}"), config
        folder = f"{{p: {{staging: {{+{option.config}: {option.example}, +tags: [a]}}}}}}"
        assert not mistakes(f"models: {folder}"), folder


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
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    tests, wheels = (jobs[name]["strategy"]["matrix"] for name in ("test", "package"))
    named = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    assert {*named} == {*tests["python"], *(wheel["python"] for wheel in wheels["include"])}


def test_every_verdict_has_a_meaning() -> None:
    assert tuple(VERDICTS) == get_args(Verdict)


def test_the_python_functions_take_every_option_but_those_of_builds() -> None:
    assert set(ReclusteringOptions.__annotations__) == {
        name for name, of in RECLUSTER_OPTIONS.items() if of.metavar is not None
    }
    unknown: dict[str, bool] = {"final": True}
    with pytest.raises(TypeError, match="unexpected keyword argument 'final'"):
        estimate_recluster(None, "a.t", **unknown)  # type: ignore[arg-type]


def test_dbts_response_has_every_figure_of_a_recluster_but_those_left_out_by_name() -> None:
    known_to_dbt = {"table", "cluster_key", "branch"}
    texts = {
        "cause",
        "purpose",
        "held",
        "waits_for",
        "limited",
        "plan",
        "orphans",
        "warnings",
    }  # on the model's line or in warnings
    left_out = {*known_to_dbt, *texts, "blocks_before", "key_read_bytes"}
    every = {f.name for f in fields(ReclusterResult)} | ReclusterResult("t", "k").as_dict().keys()
    assert every - left_out == set(FIGURES.values())
    assert left_out <= every


PAGE = (ROOT / "docs" / "guides" / "not-reclustered.md").read_text()
# Reasons to do something, verdicts, and errors.
OTHER = (
    "unchanged since its last recluster",
    "1 block has",
    "or more of the rows deleted",
    "of them small",
    "saves reads of single columns more than it costs",
    "need the blocks' bytes",
    "the example query of recluster_when does not read",
    *VERDICTS.values(),
)


def literals(node: ast.AST) -> Iterator[str]:
    """Yield the string literals of a piece of code, and of templates the parts between the values."""
    owners = (ast.Module, ast.FunctionDef, ast.ClassDef)
    docstrings = {ast.get_docstring(each, clean=False) for each in ast.walk(node) if isinstance(each, owners)}
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value not in docstrings:
            yield from (" ".join(part.split()) for part in each.value.split("{}"))


def reasons() -> Iterator[str]:
    for name in ("verdict.py", "conditions.py"):
        yield from literals(ast.parse((ROOT / "dbt_recluster" / "clustering" / name).read_text()))


def test_every_reason_is_documented() -> None:
    page = re.sub(r"\s+", " ", PAGE)
    of_nothing = {
        reason.strip(" ,.")
        for reason in reasons()
        if reason not in VERDICTS and not any(other in reason for other in OTHER)
    }
    assert len(of_nothing) > 10
    assert [reason for reason in of_nothing if len(reason.split()) > 2 and reason not in page] == []
