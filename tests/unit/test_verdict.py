"""One function decides the verdict on a table, from what is known of it."""

import pytest

from dbt_recluster.clustering.table_state import Failure, FailureFile
from dbt_recluster.clustering.verdict import Facts, Stop, decide
from dbt_recluster.planner import Plan, Reason, Why

ABOVE, WITHIN = (
    {"depth": depth, "threshold": 4.0, "reasons": (Reason(Why.DEPTH, (depth, 4.0, False, None)),)} for depth in (5, 3)
)
DEEP, STUCK, WELL = Plan(can_merge=True, **ABOVE), Plan(**ABOVE), Plan(can_merge=True, **WITHIN)
WAITS = Reason(Stop.NO_CONDITION_MET, ("1 of 2 commits",)), Reason(Stop.NEXT_AFTER, ("1 more commit",))
LEFT_OUT = (Reason(Stop.LEFT_OUT, (7,)),)


@pytest.mark.parametrize(
    ("facts", "verdict", "text"),
    [
        ({"plan": DEEP}, "deep", "depth 5 is above 4"),
        ({"plan": STUCK}, "stuck", "depth 5 is above 4"),
        ({"plan": WELL}, "well clustered", "depth 3 is at most 4"),
        (
            {"plan": DEEP, "waits": WAITS},
            "waiting",
            "no condition met: 1 of 2 commits; next recluster after 1 more commit",
        ),
        ({"plan": DEEP, "waits": (Reason(Stop.AUTOMATIC_OFF),)}, "waiting", "automatic clustering is off"),
        # What waits in vain is stuck, and what needs nothing waits for nothing.
        ({"plan": STUCK, "waits": WAITS}, "stuck", "depth 5 is above 4"),
        ({"plan": WELL, "waits": WAITS}, "well clustered", "depth 3 is at most 4"),
        # A predicate does not make a table well clustered.
        ({"plan": DEEP, "admitted": WELL}, "deep", "depth 5 is above 4"),
        (
            {"plan": DEEP, "admitted": Plan(), "notes": LEFT_OUT},
            "stuck",
            "depth 5 is above 4; the predicate leaves 7 blocks out",
        ),
        ({"plan": WELL, "admitted": DEEP}, "well clustered", "depth 3 is at most 4"),
        ({"plan": DEEP, "failure": "no disk", "waits": WAITS}, "failing", "the last recluster failed: no disk"),
        ({"plan": WELL, "failure": "no disk"}, "failing", "the last recluster failed: no disk"),
        ({"plan": DEEP, "failure": "no disk", "suspension": "Monday"}, "suspended", "suspended since Monday"),
        ({"refusal": "no order", "failure": "no disk"}, "not clusterable", "no order"),
        ({"keyless": "it has no key", "suspension": "Monday"}, "unclustered", "it has no key"),
        ({"error": "no column k", "suspension": "Monday"}, "failing", "no column k"),
        ({"missing": "not built yet", "error": "cannot be loaded"}, "missing", "not built yet"),
        ({}, "well clustered", ""),
    ],
)
def test_each_fact_has_its_verdict(facts, verdict, text):
    found = decide(Facts(**facts))
    assert (found.verdict, found.text) == (verdict, text)


def test_failures_that_no_table_records_are_kept_in_a_file(tmp_path):
    file = FailureFile(tmp_path / "target" / "failures.json")
    file.keep("a.t", None)
    assert not (tmp_path / "target").exists()
    failures = {name: Failure.now(name) for name in ("a.t", "a.u")}
    for name, failure in failures.items():
        file.keep(f"`a`.{name[2:]}", failure)
    file.keep("a.t", None)
    assert [FailureFile(tmp_path / "target" / "failures.json").of(name) for name in failures] == [None, failures["a.u"]]
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["failures.json"]
    (tmp_path / "target" / "failures.json").write_text("[1")
    assert file.of("a.u") is None
