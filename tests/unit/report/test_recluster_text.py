from __future__ import annotations

import re

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
    )


def test_lines() -> None:
    assert summary(result(1)) == "reclustered 40 blocks into 10, average depth 8.2 -> 1.4"
    assert (
        recluster_line(result(0))
        == "db.t: nothing to do, reducible depth 1 is at most 4\n  average depth 1.4"
    )
    assert recluster_line(result(1)) == (
        "db.t: reclustered 40 blocks into 10, average depth 8.2 -> 1.4, 3.0 GB rewritten in 6.1s\n"
        "  reducible depth 1 is at most 4"
    )
    assert recluster_line(result(2)).endswith(
        "6.0 GB rewritten in 2 rounds in 6.1s\n  reducible depth 1 is at most 4"
    )


def test_the_result_says_what_a_read_of_one_key_opens() -> None:
    done = result(1)
    done.key_read_bytes, done.key_read_row_groups = 9 * 2**20, 2.5
    assert recluster_line(done).splitlines()[1:] == [
        "  reducible depth 1 is at most 4",
        "  a read of one key opens about 9.0 MB in 2.5 row groups",
    ]


def test_where_read_depth_decides_the_line_says_read_depth() -> None:
    by_reads = result(1)
    by_reads.read_depth_before, by_reads.read_depth_after = 4.0, 1.25
    assert summary(by_reads) == "reclustered 40 blocks into 10, read depth 4.0 -> 1.2"


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
    planned.depth_before, planned.reason = 6, "reducible depth 6 is above 4"
    lines = plan_table(planned).splitlines()
    cells = [re.sub("  +", "|", line.strip()) for line in lines[:2]]
    assert cells[0] == "set|level|blocks|into|rows|size|ts|deepest|after|benefit/cost"
    assert cells[1] == "1|0 -> 2|6|3|6,000|6.0 MB|1 to 99|6|1|4.57 (2.93 left)"
    assert lines[2] == (
        "total: 6.0 MB, 6,000 rows, about 12.3 s at the speed of this table's earlier reclusters; "
        "average depth 6.0 -> about 1.0"
    )
    assert len(lines) == 3
    planned.plan = RewritePlan(sets, 6 * 2**20, 6000, 1.0, 12.34, 24 * 2**20, 6.0, 2**22, 1.0)
    assert plan_table(planned).splitlines()[3] == (
        "a read of one key opens about 24.0 MB in 6 row groups -> 4.0 MB in 1 row group"
    )
    assert recluster_line(planned).startswith(
        "db.t: would recluster 6 blocks (6.0 MB) in 1 set, because reducible depth 6"
    )
    planned.plan = RewritePlan((), 0, 0, 1.0, None)
    assert plan_table(planned) == ""
    assert recluster_line(planned) == "db.t: nothing to do, reducible depth 6 is above 4\n  average depth 1.4"
