"""Properties as the first version wrote them keep their state, and what no version wrote counts as lost."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import datetime, timezone

import numpy as np
import pyarrow as pa
import pytest

from dbt_recluster.clustering.conditions import Changes
from dbt_recluster.clustering.table import Suspension
from dbt_recluster.clustering.table_curve import as_properties, recorded_curve
from dbt_recluster.clustering.table_reads import ReadRange, RecordedReads
from dbt_recluster.iceberg.recorded_levels import RecordedLevels
from dbt_recluster.iceberg.table_properties import CHECKPOINT, SUSPENDED
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.key.curve import Curve

SINCE = "2026-01-01T00:00:00+00:00"


def test_levels_a_suspension_and_changes_are_kept() -> None:
    levels = {"recluster.levels": '{"curve":"3fd0c7a9e112","old":[5,1],"levels":{"2":"HF","1":"bO"}}'}
    assert RecordedLevels.of(levels) == RecordedLevels({7: 2, 12: 2, 40: 1}, 5, 1, "3fd0c7a9e112")
    suspended = f'{{"since": "{SINCE}", "by": "etl", "until": null, "reason": "a \\"reason\\" \\u00e9"}}'
    kept = Suspension.of_table({"recluster.suspended": suspended})
    assert kept == Suspension(SINCE, "etl", None, 'a "reason" é')
    changes = '{"rows": 5, "commits": 1, "snapshot": 77, "total": 100, "since": 1700000000}'
    assert Changes.parse(changes) == Changes(5, 1, 77, 100, 1700000000)


def test_reads_are_kept() -> None:
    text = (
        '{"at":{"event log":"2026-11-22T00:00:00+00:00"},"state":{"project":"abc"},'
        '"reads":[["event log",2.5,{"k":[null,5],"\\u00e9":["\\u00fc","\\u00fc"]}]]}'
    )
    read = ReadRange({"k": [None, 5], "é": ["ü", "ü"]}, 2.5, "event log")
    at = {"event log": datetime(2026, 11, 22, tzinfo=timezone.utc)}
    recorded = RecordedReads.parse(text)
    assert recorded == RecordedReads((read,), at, {"project": "abc"})
    assert (recorded.text(), recorded.reads[0].source) == (text, "recorded")


def test_boundaries_of_a_curve_are_kept() -> None:
    properties = {
        "recluster.curve.a": '{"item": "a", "id": 1, "type": "int64", "shortened": "eNrt0LERgDAMwMBdXLtIgAR28Xn/NahZADX'
        'S/QSqGjm3IMsJ/ve//O9/+d//+k1nxTO+RYYo0wWswwWs0wWsywWs5QLWdgHrdgGp+wXIIxFs"}',
        "recluster.curve.b": '{"item": "b", "id": 2, "type": "string", "shortened": "eNrt0LERwCAMBMFeFCsw9WgU2GaA1qiDx'
        'ijjA938NvAX8XgrvNrv+c9//vOf/0WXHvaaG1Q+Emj9JNDqJNAaJNCaJNBaJNA6mwZKmRd6CDmA"}',
    }
    key, ids = parse_cluster_key("hilbert(a, b)"), {"a": 1, "b": 2}
    kept = recorded_curve(properties, key, ids)
    drawn = Curve.of([pa.array(np.arange(8)), pa.array(list("abcdéfgh"))])
    assert (kept.ascending, kept.newest) == ((False, False), 0)
    again = recorded_curve(as_properties(key, drawn, ids), key, ids)
    assert [ends.to_pylist() for ends in kept.boundaries] == [ends.to_pylist() for ends in again.boundaries]
    assert kept.boundaries[0].equals(drawn.boundaries[0])


def test_a_property_is_copied_as_its_name() -> None:
    names = {CHECKPOINT: "1", SUSPENDED: "2"}
    assert copy.deepcopy(names) == pickle.loads(pickle.dumps(names)) == names


def test_what_is_damaged_too_long_or_of_a_later_version_is_lost() -> None:
    text = '{"rules": "x", "planned": 1, "committed": [2]}'
    assert CHECKPOINT.load(text, dict) == {"rules": "x", "planned": 1, "committed": [2]}
    damaged = (None, "", "{", "[]", "7", "[" * 100_000, text[:-1] + ', "version": 2}', text + " " * 4_000)
    assert [CHECKPOINT.load(each, dict) for each in damaged] == [None] * len(damaged)
    assert CHECKPOINT.load(text, lambda value: value["partitions"]) is None
    assert CHECKPOINT.load(CHECKPOINT.dump({"é": [1, None]}), dict) == {"é": [1, None]}


@pytest.mark.parametrize(
    "text",
    ["", SINCE, "true", "7", "null", "[]", "{}", '{"since": null}', '{"since": "x", "who": "y"}', "[" * 9999]
    + [json.dumps({"since": SINCE, "until": until}) for until in ("soon", 5, [], "")],
)
def test_a_text_that_is_no_record_suspends_without_an_end(text: str) -> None:
    """Whoever wrote it wanted no recluster."""
    suspension = Suspension.of_table({SUSPENDED: text})
    assert suspension == Suspension(text)
    assert str(suspension) == text


def test_facts_are_texts() -> None:
    suspension = Suspension.of_table(
        {SUSPENDED: '{"since": 1, "by": ["etl"], "until": "2999-01-01", "reason": 2}'}
    )
    assert str(suspension) == "1 by ['etl'] until 2999-01-01: 2"


def test_it_ends() -> None:
    assert Suspension.of_table({SUSPENDED: Suspension(SINCE, until="2026-01-02").as_property()}) is None
    kept = Suspension(SINCE, "etl", "2999-01-01T00:00:00+00:00", 'a "reason"')
    assert Suspension.of_table({SUSPENDED: kept.as_property()}) == kept
    assert Suspension.of_table({}) is None
