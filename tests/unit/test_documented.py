"""The documentation has every reason that the tool gives for doing nothing, and figures as they were measured."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def is_for_nothing(reason: str) -> bool:
    return len(reason.split()) > 2 and not any(other in reason for other in OTHER)


@pytest.mark.parametrize("reason", sorted(filter(is_for_nothing, set(reasons()))))
def test_a_reason_is_documented(reason: str) -> None:
    words = re.sub(r"\s+", " ", PAGE)
    assert reason.strip(" ,.") in words


# What benchmarks/other_writers.py measured of commits that a recluster made fail.
SHARED = json.loads((ROOT / "benchmarks" / "results" / "other_writers.json").read_text())["shared"]


def of(*kinds: str) -> tuple[int, int]:
    """How many statements of some kinds failed, and how many there were."""
    failed, done = (sum(SHARED[name].get(kind, 0) for kind in kinds) for name in ("failed", "done"))
    return failed, failed + done


def test_the_commits_of_others_that_failed() -> None:
    counts = [
        of("update", "update_range", "delete", "merge"),
        of("compact"),
        of("rewrite_manifests"),
        of("append", "expire", "evolve"),
    ]
    assert sum(failed for failed, _ in counts) == SHARED["failures"]
    changes, compactions, manifests, others = ("{} of {}".format(*count) for count in counts)
    told = f"{changes} updates, deletes and merges, 1 of 33 compactions"
    assert compactions == "1 of 33"
    assert others == "0 of 252"
    for page in ("concepts/how-it-works", "design/measurements"):
        text = " ".join((ROOT / "docs" / f"{page}.md").read_text().split())
        assert told in text
        assert f"{manifests} rewrites of manifests" in text
    assert (
        f"{SHARED['failures']} of {SHARED['attempts']} commits"
        in (ROOT / "docs" / "concepts" / "how-it-works.md").read_text()
    )
