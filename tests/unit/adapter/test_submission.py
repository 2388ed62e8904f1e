"""`recluster_submit`: commands that end well and otherwise, in place of spark-submit."""

import json
import math
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dbt_recluster.adapter.dbt_run import JOB, failure_of_build, run_job
from dbt_recluster.clustering.result import ReclusterResult, Round
from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitMismatchError,
    CommitStateUnknownError,
    ReclusterError,
    SubmitError,
)

RESULT = ReclusterResult(
    "lake.sales.orders",
    "k",
    rounds=[Round(1, 4, 2, 400, 390, 1000, 1.0, (7,)), Round(1, 2, 1, 100, 90, 500, 0.5, (8,))],
    blocks_before=9,
    blocks_after=6,
    depth_before=3.5,
    depth_after=1.0,
    seconds=1.5,
    reason="well clustered",
)

Answers = list[ReclusterResult | SubmitError]


def submission(code: str, timeout: float | None = None) -> Answers:
    return run_job([sys.executable, "-c", code], ["recluster", "--json"], timeout)


def answered(code: int, error: str | None, *tables: Any) -> Answers:
    """The answers of a job that prints what it did last, and ends with a code."""
    output = json.dumps({"command": "recluster", "exit_code": code, "error": error, "tables": tables})
    return submission(f"import sys; print('first'); print({output!r}); sys.exit({code})")


def test_several_tables_have_an_answer_each() -> None:
    whole = {**RESULT.as_dict(), "table": "lake.s.a"}
    c, b, a = answered(1, None, {"table": "lake.s.c"}, {"table": "lake.s.b", "error": "no such table"}, whole)
    assert isinstance(a, ReclusterResult)
    assert (a.as_dict(), len(a.rounds)) == (whole, 2)
    assert str(b).startswith("lake.s.b was built but not reclustered: recluster_submit: ")
    assert str(b).endswith("ended with code 1: no such table")
    assert str(c).endswith("is not a result: it lacks cluster_key")
    first, error = answered(130, "interrupted", whole)
    assert isinstance(first, ReclusterResult)
    assert str(error).endswith("ended with code 130: interrupted")


GIVEN = "import sys, json; print(json.dumps({'error': sys.argv[1:]}))"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["-c", "import sys; sys.exit('no such master')"], "code 1: no such master"),
        (["-c", "import sys; sys.exit(3)"], "code 3: it printed nothing"),
        (["-c", GIVEN, "--own"], str(["--own", str(JOB), "recluster", "--json"])),
        ("spark-submitt", "spark-submitt cannot be started: No such file or directory"),
        ("a\0b", "cannot be started: embedded null byte"),
    ],
)
def test_a_command_that_fails_is_an_error(command: str | list[str], message: str) -> None:
    words = [command] if isinstance(command, str) else [sys.executable, *command]
    with pytest.raises(SubmitError, match=re.escape(message)):
        run_job(words, ["recluster", "--json"], None)


def test_no_shell_reads_the_command_and_it_need_not_print_a_result(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    for output in ("done", "[1]", "{}", "", "[" * 100_000):
        command = [sys.executable, "-c", f"print({output!r})", f"; touch {touched}", f"$(touch {touched})"]
        assert run_job(command, ["t"], None) == []
    assert not touched.exists()


def test_the_job_starts_a_spark_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002")
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setenv("SPARK_CONF_DIR", "/conf")
    names = "[name for name in os.environ if name.startswith('SPARK_CON') or name == 'SPARK_REMOTE']"
    code = f"import json, os; print(json.dumps({{'error': str({names})}}))"
    with pytest.raises(SubmitError, match=re.escape("['SPARK_CONF_DIR']")):
        submission(code)


def test_a_command_that_hangs_is_ended_and_what_it_leaves_behind_is_not_waited_for() -> None:
    began, start = time.monotonic(), "import subprocess; subprocess."
    with pytest.raises(SubmitError, match="did not end within recluster_submit_timeout, 1 s"):
        submission(f"{start}run(['sleep', '60'])", timeout=1)
    assert submission(f"{start}Popen(['sleep', '60']); print('submitted', flush=True)", timeout=30) == []
    assert time.monotonic() - began < 40


@pytest.mark.parametrize(
    "figures",
    [
        *({"rounds": rounds} for rounds in ([1], math.inf, 30_000_000)),
        *({"depth_after": "low"}, {"reason": {"a": 1}}, {"rows": -1}, {"warnings": None}, {"orphans": "a"}),
    ],
)
def test_a_result_of_another_shape_is_an_error_that_shows_it(figures: dict[str, Any]) -> None:
    (error,) = answered(0, None, {**RESULT.as_dict(), **figures})
    assert isinstance(error, SubmitError)
    assert "the last line of its output is not a result: " in str(error)


@pytest.mark.parametrize("error", [CommitMismatchError("9 rows"), CommitStateUnknownError("no answer")])
def test_nobody_is_told_that_a_table_is_as_before_where_it_may_not_be(error: ReclusterError) -> None:
    assert failure_of_build("s.t", error) == f"s.t was built, and its recluster failed: {error}"
    failed = CommitFailedError("no answer")
    assert failure_of_build("s.t", failed) == f"s.t was built but not reclustered: {failed}"
