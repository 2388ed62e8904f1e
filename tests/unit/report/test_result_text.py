"""What is said of a recluster: the line of its result, the plan of a dry run, and the progress of a round."""

import io
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dbt_recluster.advice.overview import Overview, totals
from dbt_recluster.clustering.result import PlannedSet, Progress, ReclusterResult, RewritePlan, Round
from dbt_recluster.planner import Blocks, clustering_information
from dbt_recluster.report.result_text import (
    ProgressLines,
    depths,
    information,
    model_line,
    overview,
    recluster_line,
    standing,
)
from dbt_recluster.text import size

ROUND = Round(1, 40, 10, 3 * 2**30, 2 * 2**30, 500, 2.0, (1,))
DONE = ReclusterResult(
    "db.t",
    "ts",
    [ROUND],
    depth_before=8.25,
    depth_after=1.375,
    seconds=6.08,
    threshold=4.0,
    verdict="well clustered",
)
NOTHING = replace(DONE, rounds=[])


def test_the_line_says_what_happened_beside_the_threshold_as_set() -> None:
    assert model_line(DONE) == "depth 8.2 -> 1.4, 40 blocks into 10"
    assert model_line(NOTHING) == "depth 1.4, at most 4"
    assert (
        model_line(replace(NOTHING, waits_for="2 more commits"))
        == "depth 1.4, at most 4; next recluster after 2 more commits"
    )
    assert recluster_line(replace(DONE, rounds=[ROUND, ROUND])).splitlines() == [
        "db.t: reclustered 80 blocks into 20, depth 8.2 -> 1.4, 6.0 GB rewritten in 2 rounds in 6.1s",
        "  depth 1.4, at most 4, well clustered",
    ]


def test_the_line_has_the_reason_that_the_depth_does_not_explain() -> None:
    spent = replace(DONE, depth_after=6.0, verdict="deep", cause="budget used; 10 blocks left")
    assert model_line(spent) == "depth 8.2 -> 6.0, above 4, 40 blocks into 10: budget used; 10 blocks left"
    stuck = replace(NOTHING, depth_after=9.0, verdict="stuck", cause="no merge would lower it")
    assert model_line(stuck) == "depth 9.0, above 4: no merge would lower it"
    assert recluster_line(stuck) == "db.t: nothing to do, depth 9.0, above 4, stuck: no merge would lower it"
    merged = replace(DONE, depth_before=4.0, depth_after=4.0, threshold=6.0, purpose="6 small blocks make 1 full one")
    assert model_line(merged) == "depth 4.0 -> 4.0, 40 blocks into 10: 6 small blocks make 1 full one"
    assert "reclustered 40 blocks into 10 (6 small blocks make 1 full one), depth 4.0 -> 4.0, " in recluster_line(
        merged
    )
    unchanged = replace(NOTHING, depth_after=None, threshold=None, verdict="", cause="nothing has changed")
    assert model_line(unchanged) == "nothing has changed"


def test_the_line_of_a_dry_run_says_what_keeps_a_build_from_it() -> None:
    sets = (PlannedSet(0, 1, 4, 2, 10, 2**20, "1", "9", 4, 1),)
    plan = replace(NOTHING, plan=RewritePlan(sets, 2**20, 10, 1.0, None), depth_after=5.0, verdict="waiting")
    waits = replace(plan, held="no condition met: 2 of 3 commits; next recluster after 1 more commit")
    would = "would recluster 4 blocks (1.0 MB) in 1 set; depth 5.0, above 4, waiting"
    assert recluster_line(waits) == (
        "db.t: a build would recluster nothing now: no condition met: 2 of 3 commits; next recluster after 1 more "
        f"commit; by hand, it {would}"
    )
    assert recluster_line(replace(plan, held="suspended since Monday", suspended="2026-11-23")).startswith(
        "db.t: a build would recluster nothing now: suspended since Monday; once resumed, it would recluster 4 blocks"
    )
    nothing = replace(waits, plan=RewritePlan((), 0, 0, 1.0, None), depth_after=1.0, verdict="well clustered")
    assert recluster_line(nothing) == (
        "db.t: nothing to do, depth 1.0, at most 4, well clustered; besides, no condition met: 2 of 3 commits; next "
        "recluster after 1 more commit"
    )


def test_a_depth_and_its_threshold_are_told_apart_however_close() -> None:
    assert (standing(4.02, 4), standing(3.98, 4)) == ("depth 4.02, above 4", "depth 3.98, at most 4")
    assert (standing(4, 4), standing(1.375, None), standing(None, 4)) == (
        "depth 4.0, at most 4",
        "depth 1.4",
        "",
    )


def test_a_gain_is_seen_however_small_it_is() -> None:
    assert depths(4.04, 3.98) == "4.04 -> 3.98"
    assert depths(20.0001, 20) == "20.0001 -> 20.0000"
    assert (depths(4, 4), depths(4, 1, "about ")) == ("4.0 -> 4.0", "4.0 -> about 1.0")
    assert depths(None, 1) == "unknown -> 1.0"
    sizes = ["0 bytes", "1023 bytes", "1.0 KB", "1.5 GB", "1024.0 PB"]
    assert [size(n) for n in (0, 1023, 1024, 1536 * 2**20, 2**60)] == sizes


BEGINS = Progress("db.t", 2, 3, 40, 5 * 2**20, committed=False, seconds=12.4)
ENDS = replace(BEGINS, committed=True, seconds=11.06, bytes_before=2**20, max_bytes=10 * 2**20)
FAILS = replace(BEGINS, failed=True)
UNDER_WAY = replace(BEGINS, merged=0.456, merged_sets=1, seconds=7.7, max_bytes=10 * 2**20)
BEGUN = "db.t: round 2 merges 40 blocks in 3 sets, 5.0 MB, about 12 s by this table's history"
ENDED = "db.t: round 2 merged 40 blocks in 3 sets, 5.0 MB, in 11.1 s, 60 % of the bytes allowed"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test sets."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def logged(rounds: Sequence[Progress], clock: list[float], step: float, terminal: Any = None) -> list[str]:
    """Show the progress of rounds at even steps of time; return the lines that are logged."""
    lines: list[str] = []
    show = ProgressLines(lambda message, *facts: lines.append(message.format(*facts)), terminal)
    for progress in rounds:
        show(progress)
        clock[0] += step
    return lines


def test_plain_lines_of_a_round_under_way_come_seldom(clock: list[float]) -> None:
    under_way = [replace(UNDER_WAY, merged=share / 100) for share in range(0, 100, 12)]
    assert logged([BEGINS, *under_way, ENDS, BEGINS, FAILS], clock, 3) == [
        BEGUN,
        "db.t: round 2, 36 % done (1 of 3 sets), about 8 s left: 40 blocks, 5.0 MB",
        "db.t: round 2, 84 % done (1 of 3 sets), about 8 s left: 40 blocks, 5.0 MB",
        ENDED,
        BEGUN,
    ]


def test_on_a_terminal_a_round_is_one_line_that_goes_away(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    terminal = Terminal()
    one_block = replace(UNDER_WAY, blocks=1, sets=1)
    assert logged([UNDER_WAY, one_block, ENDS, UNDER_WAY, FAILS], clock, 60, terminal) == [ENDED]
    first, second = (
        "db.t: round 2, 45 % done (1 of 3 sets), about 8 s",
        "db.t: round 2, 45 % done, about 8 s left: 1 block",
    )
    assert terminal.getvalue().split("\r\x1b[K") == ["", first, second, "", first, ""]


def test_the_text_of_a_table_has_the_depth_of_each_level():
    measured = clustering_information(
        Blocks.build([0, 0, 0, 9], [5, 5, 5, 12], rows=[100] * 4, level=[0, 3, 3, 3]), block_rows=100
    )
    found = dict.fromkeys(("where", "branch", "suspended", "suspension", "reason", "depth"))
    found["options"] = {}
    found |= {"table": "t", "cluster_key": "k", "snapshot_id": 1, "snapshot_at": "2026-11-28T00:00:00+00:00"}
    text = information({**found, "threshold": 4, "verdict": "well clustered", "rows_undone": 0, **measured.as_dict()})
    lines = [line.split() for line in text.splitlines()]
    assert lines[-5:-2] == [
        ["level", "blocks", "rows", "depth"],
        ["0", "1", "100", "1.0"],
        ["3", "3", "300", "1.7"],
    ]


def test_the_overview_begins_with_the_verdicts_and_fits_120_columns() -> None:
    name = "analytics.lineitem_not_reclustered"
    figures: dict[str, Any] = {
        "depth": 20.0,
        "threshold": 4.0,
        "loaded_bytes_week": 10**9,
        "rewritten_bytes_week": 10**8,
    }
    tables = [
        Overview(name, "well clustered", gain_per_gigabyte=12345.67, **figures),
        Overview(name, "stuck", cause="no merge would lower it", last_recluster="2026-11-20T10:00:00+00:00", **figures),
    ]
    lines = overview(tables, totals(tables)).splitlines()
    assert lines[0] == "2 tables: 1 stuck, 1 well clustered"
    assert max(map(len, lines)) <= 120
    assert "953.7 MB" in lines[2]
    assert lines[-1] == f"  {name}: no merge would lower it"
