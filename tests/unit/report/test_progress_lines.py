from __future__ import annotations

import io
import time
from dataclasses import replace
from typing import Any

import pytest

from dbt_recluster.clustering.result import Progress
from dbt_recluster.report.recluster_text import ProgressLines

BEGINS = Progress("db.t", 2, 3, 40, 5 * 2**20, committed=False, seconds=12.4)
ENDS = replace(BEGINS, committed=True, seconds=11.06, bytes_before=2**20, max_bytes=10 * 2**20)


UNDER_WAY = replace(BEGINS, merged=0.456, merged_sets=1, seconds=7.7, max_bytes=10 * 2**20)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(terminal: Any = None) -> list[str]:
    logged: list[str] = []
    show = ProgressLines(lambda message, *facts: logged.append(message.format(*facts)), terminal)
    for progress in (replace(BEGINS, seconds=None), BEGINS, ENDS):
        show(progress)
    return logged


def test_plain_lines() -> None:
    assert lines(io.StringIO()) == [
        "db.t: round 2 merges 40 blocks in 3 sets, 5.0 MB",
        "db.t: round 2 merges 40 blocks in 3 sets, 5.0 MB, about 12 s by this table's history",
        "db.t: round 2 merged 40 blocks in 3 sets, 5.0 MB, in 11.1 s, 60 % of the bytes allowed",
    ]


def test_plain_lines_of_a_round_under_way_come_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    show = ProgressLines(lambda message, *facts: logged.append(message.format(*facts)))
    show(BEGINS)
    for now in (101.0, 109.9, 110.0, 110.5, 119.9, 120.0):  # the clock reads it
        show(replace(UNDER_WAY, merged=(now - 100) / 20))
    show(replace(BEGINS, failed=True))
    assert logged == [
        "db.t: round 2 merges 40 blocks in 3 sets, 5.0 MB, about 12 s by this table's history",
        "db.t: round 2, 50 % done (1 of 3 sets), about 8 s left: 40 blocks, 5.0 MB",
        "db.t: round 2, 100 % done (1 of 3 sets), about 8 s left: 40 blocks, 5.0 MB",
    ]


def test_on_a_terminal_a_round_under_way_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    terminal, logged = Terminal(), list[str]()
    show = ProgressLines(logged.append, terminal)
    for progress in (UNDER_WAY, replace(UNDER_WAY, blocks=1, sets=1), replace(BEGINS, failed=True)):
        show(progress)
    assert terminal.getvalue().split("\r\x1b[K") == [
        "",
        "db.t: round 2, 45 % done (1 of 3 sets), about 8 s",
        "db.t: round 2, 45 % done, about 8 s left: 1 block",
        "",
    ]
    assert logged == []


def test_on_a_terminal_the_round_under_way_goes_away_again() -> None:
    terminal = Terminal()
    assert lines(terminal) == [
        "db.t: round 2 merged 40 blocks in 3 sets, 5.0 MB, in 11.1 s, 60 % of the bytes allowed"
    ]
    assert terminal.getvalue().endswith("\r\x1b[K")
