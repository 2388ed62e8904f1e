from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from dbt_recluster.progress import Progress
from dbt_recluster.report.progress import ProgressLines

BEGINS = Progress("db.t", 2, 3, 40, 5 * 2**20, committed=False, seconds=12.4)
ENDS = replace(BEGINS, committed=True, seconds=11.06, bytes_before=2**20, max_bytes=10 * 2**20)


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


def test_on_a_terminal_the_round_under_way_goes_away_again() -> None:
    terminal = Terminal()
    assert lines(terminal) == [
        "db.t: round 2 merged 40 blocks in 3 sets, 5.0 MB, in 11.1 s, 60 % of the bytes allowed"
    ]
    assert terminal.getvalue().endswith("by this table's history\r\x1b[K")
