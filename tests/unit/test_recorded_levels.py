from __future__ import annotations

from dbt_recluster.iceberg.recorded_levels import recorded_levels


def test_properties_that_are_no_level_are_ignored() -> None:
    good = {"recluster.level.5": "3", f"recluster.level.{2**63 - 1}": "0"}
    numbers = ("", "-1", "1.0", "1x", " 1", "\u00b2", "\u0663", str(2**63), "9" * 5000)
    bad = {f"recluster.level.{number}": "1" for number in numbers}
    assert recorded_levels({**good, **bad, "owner": "1"}) == {5: 3, 2**63 - 1: 0}
    for number in numbers:
        assert recorded_levels({"recluster.level.5": number}) == {}
