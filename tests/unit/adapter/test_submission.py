"""`recluster_submit`: commands that end well and otherwise, in place of spark-submit."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dbt_recluster.adapter.connections import check_submit
from dbt_recluster.adapter.dbt_run import JOB, failure_of_build, run_job
from dbt_recluster.clustering.result import ReclusterResult, Round
from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitMismatchError,
    CommitStateUnknownError,
    OptionError,
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


def one(answers: Answers) -> Any:
    """The one answer of a submission; an error is raised."""
    (answer,) = answers
    if isinstance(answer, SubmitError):
        raise answer
    return answer


def answered(code: int, error: str | None, *tables: Any) -> Answers:
    """The answers of a job that prints what it did last, and ends with a code."""
    output = json.dumps({"command": "recluster", "exit_code": code, "error": error, "tables": tables})
    return submission(f"import sys; print('first'); print({output!r}); sys.exit({code})")


def test_several_tables_have_an_answer_each() -> None:
    whole = {**RESULT.as_dict(), "table": "lake.s.a"}
    c, b, a = answered(1, None, {"table": "lake.s.c"}, {"table": "lake.s.b", "error": "no such table"}, whole)
    assert isinstance(a, ReclusterResult)
    assert a.as_dict() == whole
    assert str(b).startswith("lake.s.b was built but not reclustered: recluster_submit: ")
    assert str(b).endswith("ended with code 1: no such table")
    assert str(c).endswith("is not a result: it lacks cluster_key")


def test_an_interrupted_job_has_the_results_of_the_tables_that_had_their_turn() -> None:
    a, error = answered(130, "interrupted", RESULT.as_dict())
    assert isinstance(a, ReclusterResult)
    assert str(error).endswith("ended with code 130: interrupted")


def test_the_job_prints_its_result_last() -> None:
    read = one(answered(0, None, RESULT.as_dict()))
    assert read.as_dict() == RESULT.as_dict()
    assert len(read.rounds) == 2


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    command = [sys.executable, "-c", "", f"; touch {touched}", f"$(touch {touched})"]
    assert run_job(command, ["t"], None) == []
    assert not touched.exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; print('no such master', file=sys.stderr); sys.exit(1)", "code 1: no such master"),
        ("import sys; sys.exit(3)", "code 3: it printed nothing"),
        # What the command is given.
        (
            "import sys, json; print(json.dumps({'error': sys.argv[1:]}))",
            str([str(JOB), "recluster", "--json"]),
        ),
        (
            'import sys; print(\'{"tables": [{"table": "t", "error": "no such table"}]}\'); sys.exit(1)',
            "code 1: no such table",
        ),
    ],
)
def test_a_command_that_fails(code: str, message: str) -> None:
    with pytest.raises(SubmitError, match=re.escape(message)):
        one(submission(code))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("spark-submitt", "spark-submitt cannot be started: No such file or directory"),
        ("a\0b", "cannot be started: embedded null byte"),
    ],
)
def test_a_command_that_does_not_start(command: str, message: str) -> None:
    with pytest.raises(SubmitError, match=message):
        run_job([command], ["t"], None)


@pytest.mark.parametrize("output", ["done", "[1]", "{}", "", "[" * 100_000])
def test_a_command_that_prints_no_result(output: str) -> None:
    assert submission(f"print({output!r})") == []


def test_the_job_starts_a_spark_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002")
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setenv("SPARK_CONF_DIR", "/conf")
    names = "[name for name in os.environ if name.startswith('SPARK_CON') or name == 'SPARK_REMOTE']"
    code = f"import json, os; print(json.dumps({{'error': str({names})}}))"
    with pytest.raises(SubmitError, match=re.escape("['SPARK_CONF_DIR']")):
        submission(code)


def test_a_command_that_hangs_is_ended_with_what_it_started() -> None:
    code = "import subprocess; subprocess.run(['sleep', '60'])"
    began = time.monotonic()
    with pytest.raises(SubmitError, match="did not end within recluster_submit_timeout, 1 s"):
        submission(code, timeout=1)
    assert time.monotonic() - began < 20


def test_a_command_that_leaves_something_behind_is_not_waited_for() -> None:
    began = time.monotonic()
    code = "import subprocess; subprocess.Popen(['sleep', '60']); print('submitted', flush=True)"
    assert submission(code, timeout=30) == []
    assert time.monotonic() - began < 25


@pytest.mark.parametrize(
    "figures",
    [
        {"rounds": 1},
        {"depth_after": "low"},
        {"rounds": [1]},
        {"reason": {"a": 1}},
        {"rounds": math.inf},
        {"rounds": 30_000_000},
        {"rows": -1},
        {"warnings": None},
        {"orphans": "a"},
    ],
)
def test_a_result_of_another_shape_is_an_error_that_shows_it(figures: Any) -> None:
    whole = {"table": "t", **figures} if figures == {"rounds": 1} else {**RESULT.as_dict(), **figures}
    output = json.dumps({"tables": [whole]})
    with pytest.raises(SubmitError, match="the last line of its output is not a result: "):
        one(submission(f"print({output!r})"))


@pytest.mark.parametrize(
    ("command", "timeout", "message"),
    [
        *(
            (words, None, " must be a list of words")
            for words in ("spark-submit --master yarn", [], [["a"]], {"a": 1})
        ),
        *((["a"], limit, "_timeout must be a number") for limit in (0, -1, "soon", True, math.nan, 10**400)),
    ],
)
def test_a_command_is_a_list_of_words_and_its_timeout_a_number_of_seconds(
    command: Any, timeout: Any, message: str
) -> None:
    with pytest.raises(OptionError, match=f"recluster_submit{message}"):
        check_submit(command, timeout)


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (CommitFailedError("no answer"), "was built but not reclustered"),
        (CommitMismatchError("9 rows"), "was built, and its recluster failed"),
        (CommitStateUnknownError("no answer"), "was built, and its recluster failed"),
    ],
)
def test_nobody_is_told_that_a_table_is_as_before_where_it_may_not_be(
    error: ReclusterError, what: str
) -> None:
    assert failure_of_build("s.t", error) == f"s.t {what}: {error}"
