"""What is counted since the last recluster against a history that nothing is lost from."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.clustering.conditions import Changes, changes_since_recluster
from dbt_recluster.iceberg.snapshots import Snapshot


@dataclass
class History:
    """A table's commits, and what is true of them whatever has expired."""

    snapshots: list[Snapshot] = field(default_factory=list)
    total: int = 0
    rows: int = 0
    commits: int = 0
    recorded: Changes | None = None
    since: int = 0  # the last recluster, or the first commit
    _ids: int = 0

    def commit(self, operation: str, added: int = 0, deleted: int = 0, **figures: str) -> None:
        parent = self._ids or None
        self._ids += 1
        self.total += added - deleted
        counts = {"added-records": added, "deleted-records": deleted, "total-records": self.total}
        summary = {name: str(count) for name, count in counts.items()} | figures
        at = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(hours=self._ids)
        if self.since == 0 or "recluster.sets" in figures:
            self.since = int(at.timestamp())
        self.snapshots.append(Snapshot(self._ids, parent, self._ids, at, operation, summary))
        if operation != "replace" and added + deleted:
            self.rows += added + deleted
            self.commits += 1

    def recluster(self) -> None:
        self.commit("replace", self.total, self.total, **{"recluster.sets": "1"})
        self.rows = self.commits = 0
        self.recorded = None  # its commit removes the property

    def expire(self, count: int) -> None:
        del self.snapshots[: min(count, len(self.snapshots) - 1)]

    def check(self) -> Changes:
        counted, known = changes_since_recluster(self.snapshots, self.recorded), self.recorded or Changes()
        if (counted.rows, counted.commits) != (known.rows, known.commits):
            self.recorded = counted
        return counted


STEPS = st.tuples(
    st.sampled_from(["append", "delete", "overwrite", "rewrite", "recluster", "expire", "nothing"]),
    st.integers(0, 9),
)


def step(history: History, what: str, count: int) -> None:
    if what in ("recluster", "expire"):
        history.recluster() if what == "recluster" else history.expire(count)
    elif what == "rewrite":
        history.commit("replace", history.total, history.total)
    elif what != "nothing":
        deleted = 0 if what == "append" else min(count, history.total)
        history.commit(what, 0 if what == "delete" else count, deleted)


@given(st.lists(STEPS, max_size=30))
def test_nothing_that_a_build_has_seen_is_forgotten(steps: list[tuple[str, int]]) -> None:
    history = History()
    for what, count in steps:
        step(history, what, count)
        if (
            what != "recluster"
        ):  # a process other than dbt's may do it, and expire its snapshot before the next build
            counted = history.check()
            assert (counted.rows, counted.commits) == (history.rows, history.commits)
            # A recluster that expired before a build had seen it counts as later than it was, not as earlier.
            assert counted.since >= history.since
            if history.recorded is not None:
                assert counted.since == history.recorded.since


@given(st.lists(st.lists(STEPS, max_size=5), max_size=8))
def test_what_nobody_has_seen_counts_on_balance(builds: list[list[tuple[str, int]]]) -> None:
    history, appends_only = History(), True
    step(history, "append", 1)
    history.check()
    for steps in builds:
        for what, count in steps:
            step(history, what, count)
            appends_only &= what in ("append", "expire", "rewrite", "nothing")
        counted = history.check()
        assert counted.rows <= history.rows
        if appends_only:
            assert counted.rows == history.rows
