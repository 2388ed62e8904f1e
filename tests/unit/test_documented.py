"""The documentation has every reason that the tool gives for doing nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "not-reclustered.md").read_text()
# Modules whose texts are reasons, and one that has others too.
WHOLE = ("planner/planning.py", "clustering/conditions.py")
ASSIGNED = ("clustering/recluster.py", "clustering/checkpoint.py")
# Reasons to do something, and errors.
OTHER = (
    "1 block has",
    "or more of the rows deleted",
    "of them small",
    "saves reads of single columns more than it costs",
    "need the blocks' bytes",
    "the example query of recluster_when does not read",
)


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the string literals of a piece of code, and of f-strings the parts between the values."""
    docstrings = {
        id(each.body[0].value)
        for each in ast.walk(node)
        if isinstance(each, (ast.Module, ast.FunctionDef, ast.ClassDef))
        and isinstance(each.body[0], ast.Expr)
    }
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in docstrings:
            yield each.value


def reasons() -> Iterator[str]:
    for name in (*WHOLE, *ASSIGNED):
        tree = ast.parse((ROOT / "dbt_recluster" / name).read_text())
        nodes: list[ast.AST] = [tree]
        if name in ASSIGNED:
            nodes = [
                each
                for each in ast.walk(tree)
                if isinstance(each, ast.Assign) and "reason" in ast.unparse(each.targets[0])
            ]
        for node in nodes:
            yield from (" ".join(text.split()) for text in texts(node))


def test_every_reason_is_documented() -> None:
    page = re.sub(r"\s+", " ", PAGE)
    of_nothing = {reason.strip(" ,.") for reason in reasons() if not any(other in reason for other in OTHER)}
    assert len(of_nothing) > 10
    assert [reason for reason in of_nothing if len(reason.split()) > 2 and reason not in page] == []
