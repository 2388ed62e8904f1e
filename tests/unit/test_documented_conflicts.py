"""What the documentation says of commits that a recluster made fail is what benchmarks/other_writers.py measured."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
    for page in ("concepts/how-it-works", "measurements"):
        text = " ".join((ROOT / "docs" / f"{page}.md").read_text().split())
        assert told in text
        assert f"{manifests} rewrites of manifests" in text
    assert (
        f"{SHARED['failures']} of {SHARED['attempts']} commits"
        in (ROOT / "docs" / "concepts" / "how-it-works.md").read_text()
    )
