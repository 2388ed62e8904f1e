from __future__ import annotations

import re

import pytest

from dbt_recluster.adapter.operations import note_of
from dbt_recluster.clustering.result import PlannedSet, ReclusterResult, RewritePlan, Round
from dbt_recluster.report.recluster_text import depths, plan_table, recluster_line, summary
from dbt_recluster.text import size


def result(rounds: int) -> ReclusterResult:
    done = [Round(1, 40, 10, 3 * 2**30, 2 * 2**30, 500, 2.0, (1,)) for _ in range(rounds)]
    return ReclusterResult(
        "db.t",
        "ts",
        done,
        depth_before=8.25,
        depth_after=1.375,
        seconds=6.08,
        reason="reducible depth 1 is at most 4",
        threshold=4.0,
        verdict="well clustered",
    )


def test_lines() -> None:
    assert summary(result(1)) == "1.4 of 4, reclustered 40 blocks into 10"
    assert recluster_line(result(0)) == "db.t: nothing to do, depth 1.4 of 4, well clustered"
    assert recluster_line(result(1)) == (
        "db.t: reclustered 40 blocks into 10, depth 1.4 of 4, 8.2 before, 3.0 GB rewritten in 6.1s\n"
        "  well clustered"
    )
    assert recluster_line(result(2)).endswith("6.0 GB rewritten in 2 rounds in 6.1s\n  well clustered")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("reducible read depth 12.5 of one level's blocks in the worst partition is above 4.2", "deep"),
        ("reducible depth 8 is above 4, but no merge would lower it", "deep: no merge would lower it"),
        ("reducible depth 2 is at most 4, and a depth of 1 would merge further", "deep: a depth of 1 would"),
        ("reducible depth 2 is at most 4, and merging ends at level 64", "deep: merging ends at level 64"),
        ("stopped after 100 rounds", "deep: stopped after 100 rounds"),
        (
            "reducible depth 9 is above 4; blocks that arrived meanwhile, 3, are left",
            "deep: blocks that arrived",
        ),
    ],
)
def test_what_the_verdict_does_not_say_stays(reason: str, said: str) -> None:
    of = result(1)
    of.depth_after, of.verdict, of.reason = 9.0, "deep", reason
    assert recluster_line(of).splitlines()[1].strip().startswith(said)


def test_a_verdict_that_the_depth_contradicts_is_explained() -> None:
    of = result(0)
    of.depth_after, of.reason = 9.25, "reducible depth 1 is at most 4"
    assert (
        recluster_line(of)
        == "db.t: nothing to do, depth 9.2 of 4, well clustered: reducible depth 1 is at most 4"
    )
    of.depth_after, of.reason = (
        2.0,
        "reducible depth 8 in the worst partition is above 4, and no block set fits",
    )
    of.verdict, of.limited = "deep", True
    assert recluster_line(of) == f"db.t: not reclustered: {of.reason}, depth 2.0 of 4"


def test_a_build_that_waits_says_for_what() -> None:
    waiting = ReclusterResult(
        "db.t", "ts", depth_after=None, reason="no condition met", waits_for="2 more commits"
    )
    assert note_of(waiting) == "next recluster after 2 more commits"
    waiting.depth_after, waiting.threshold = 3.14, 4
    assert note_of(waiting) == "depth 3.1 of 4; next recluster after 2 more commits"
    assert note_of(result(0)) == "depth 1.4 of 4"


def test_the_result_says_what_a_read_of_one_key_opens() -> None:
    done = result(1)
    done.key_read_bytes, done.key_read_row_groups = 9 * 2**20, 2.5
    assert recluster_line(done).splitlines()[1:] == [
        "  well clustered",
        "  a read of one key opens about 9.0 MB in 2.5 row groups",
    ]


def test_where_read_depth_decides_the_line_says_read_depth() -> None:
    by_reads = result(1)
    by_reads.read_depth_before, by_reads.read_depth_after = 4.0, 1.25
    assert summary(by_reads) == "read depth 1.2 of 4, reclustered 40 blocks into 10"


def test_a_gain_is_seen_however_small_it_is() -> None:
    assert depths(4.04, 3.98) == "4.04 -> 3.98"
    assert depths(20.0001, 20) == "20.0001 -> 20.0000"
    assert (depths(4, 4), depths(4, 1, "about ")) == ("4.0 -> 4.0", "4.0 -> about 1.0")
    assert depths(None, 1) == "unknown -> 1.0"


def test_sizes() -> None:
    assert [size(n) for n in (0, 1023, 1024, 1536 * 2**20, 2**60)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 KB",
        "1.5 GB",
        "1024.0 PB",
    ]


def test_a_plan_is_a_table_with_a_line_for_each_set() -> None:
    planned = result(0)
    sets = (PlannedSet(0, 2, 6, 3, 6000, 6 * 2**20, "1", "99", 6, 1, 4.5684, 2.9277),)
    planned.plan = RewritePlan(sets, 6 * 2**20, 6000, 1.0, 12.34)
    planned.depth_before, planned.reason, planned.verdict = 6, "reducible depth 6 is above 4", "deep"
    lines = plan_table(planned).splitlines()
    cells = [re.sub("  +", "|", line.strip()) for line in lines[:2]]
    assert cells[0] == "set|level|blocks|into|rows|size|ts|deepest|after|benefit/cost"
    assert cells[1] == "1|0 -> 2|6|3|6,000|6.0 MB|1 to 99|6|1|4.57 (2.93 left)"
    assert lines[2] == (
        "total: 6.0 MB, 6,000 rows, about 12.3 s at the speed of this table's earlier reclusters; "
        "depth 6.0 -> about 1.0"
    )
    assert len(lines) == 3
    planned.plan = RewritePlan(sets, 6 * 2**20, 6000, 1.0, 12.34, 24 * 2**20, 6.0, 2**22, 1.0)
    assert plan_table(planned).splitlines()[3] == (
        "a read of one key opens about 24.0 MB in 6 row groups -> 4.0 MB in 1 row group"
    )
    assert recluster_line(planned).startswith(
        "db.t: would recluster 6 blocks (6.0 MB) in 1 set; depth 1.4 of 4, deep"
    )
    planned.plan, planned.depth_after = RewritePlan((), 0, 0, 1.0, None), 6.0
    assert plan_table(planned) == ""
    assert recluster_line(planned) == "db.t: nothing to do, depth 6.0 of 4, deep"
