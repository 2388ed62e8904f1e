"""Properties as the first version wrote them keep their state, and what no version wrote counts as lost."""

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dbt_recluster.clustering.conditions import Changes
from dbt_recluster.clustering.table_curve import as_properties, recorded_curve
from dbt_recluster.clustering.table_reads import ReadRange, RecordedReads
from dbt_recluster.clustering.table_state import Suspension
from dbt_recluster.iceberg.recorded_levels import RecordedLevels
from dbt_recluster.iceberg.table_properties import CHECKPOINT, LEVELS, SUSPENDED
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.key.curve import Curve

SINCE = "2026-01-01T00:00:00+00:00"


def test_levels_a_suspension_and_changes_are_kept() -> None:
    levels = {"recluster.levels": '{"curve":"3fd0c7a9e112","old":[5,1],"levels":{"2":"HF","1":"bO"}}'}
    assert RecordedLevels.from_properties(levels) == RecordedLevels({7: 2, 12: 2, 40: 1}, 5, 1, "3fd0c7a9e112")
    suspended = f'{{"since": "{SINCE}", "by": "etl", "until": null, "reason": "a \\"reason\\" \\u00e9"}}'
    kept = Suspension.from_properties({"recluster.suspended": suspended})
    assert kept == Suspension(SINCE, "etl", None, 'a "reason" é')
    changes = '{"rows": 5, "commits": 1, "snapshot": 77, "total": 100, "since": 1700000000}'
    assert Changes.parse(changes) == Changes(5, 1, 77, 100, 1700000000)


def test_recorded_reads_are_read_again() -> None:
    text = (
        '{"at":{"event log":"2026-11-22T00:00:00+00:00"},"state":{"project":"abc"},"ids":{"k":1},'
        '"reads":[["event log",2.5,{"k":[null,5],"\\u00e9":["\\u00fc","\\u00fc"]}]]}'
    )
    read = ReadRange({"k": [None, 5], "é": ["ü", "ü"]}, 2.5, "event log")
    at = {"event log": datetime(2026, 11, 22, tzinfo=timezone.utc)}
    recorded = RecordedReads.parse(text)
    assert recorded == RecordedReads((read,), at, {"project": "abc"}, {"k": 1})
    assert (recorded.text(), recorded.reads[0].imported_from) == (text, "event log")
    # A column that is renamed keeps its reads; one that a new table has under the same name, with another id, too.
    (renamed,) = recorded.of_columns({"l": 1, "é": 2}).reads
    assert renamed.columns == {"l": [None, 5], "é": ["ü", "ü"]}
    assert recorded.of_columns({"k": 2, "l": 1}).reads == recorded.reads


def test_boundaries_of_a_curve_are_kept() -> None:
    properties = {
        "recluster.curve.a": '{"item": "a", "id": 1, "type": "int64", "shortened": "eNrt0LERgDAMwMBdXLtIgAR28Xn/NahZADX'
        'S/QSqGjm3IMsJ/ve//O9/+d//+k1nxTO+RYYo0wWswwWs0wWsywWs5QLWdgHrdgGp+wXIIxFs"}',
        "recluster.curve.b": '{"item": "b", "id": 2, "type": "string", "shortened": "eNrt0LERwCAMBMFeFCsw9WgU2GaA1qiDx'
        'ijjA938NvAX8XgrvNrv+c9//vOf/0WXHvaaG1Q+Emj9JNDqJNAaJNCaJNBaJNA6mwZKmRd6CDmA"}',
    }
    key, ids = parse_cluster_key("hilbert(a, b)"), {"a": 1, "b": 2}
    kept = recorded_curve(properties, key, ids)
    drawn = Curve.from_columns([pa.array(np.arange(8)), pa.array(list("abcdéfgh"))])
    assert (kept.ascending, kept.newest) == ((False, False), 0)
    again = recorded_curve(as_properties(key, drawn, ids), key, ids)
    assert [ends.to_pylist() for ends in kept.boundaries] == [ends.to_pylist() for ends in again.boundaries]
    assert kept.boundaries[0].equals(drawn.boundaries[0])


def test_a_property_is_copied_as_its_name() -> None:
    names = {CHECKPOINT: "1", SUSPENDED: "2"}
    assert copy.deepcopy(names) == pickle.loads(pickle.dumps(names)) == names


# What is no record under any property.
NONE = (None, "", "{", "[]", "7", "null", "[" * 100_000, '{"version": 2}')
READ: dict[str, tuple[Callable[[str | None], Any], Any]] = {
    "levels": (lambda text: RecordedLevels.from_properties({} if text is None else {LEVELS: text}), RecordedLevels()),
    "changes": (Changes.parse, None),
    "reads": (RecordedReads.parse, RecordedReads()),
    "checkpoint": (lambda text: CHECKPOINT.load(text, lambda record: record["partitions"]), None),
}
GOOD: dict[str, dict[str, Any]] = {
    "levels": {"old": [5, 1], "levels": {"3": "KC"}},
    "changes": asdict(Changes(1, 2, 3, 4)),
    "reads": {"reads": [["project", 1, {"k": [1, 1]}]]},
    "checkpoint": {"partitions": [2]},
}
# Ranges of the record of reads, with a weight each.
READS = (
    *([1, 2], [["project", -1, {"k": [1, 1]}]], [["project", 1, {"k": [1, {}]}]], [["project", 1, {"k": 1}]]),
    *([["project", "1", {"k": [1, 1]}]], [["project", 1e308, {"k": [n, n]}] for n in range(3)]),
)
WRONG = [
    *(("levels", "levels", {"0": text}) for text in ("x", "K C", "5", "\u00c9", 5, "dsqyomtlwmkgiI")),
    *(("levels", "levels", levels) for levels in ({"x": "F"}, {"-1": "F"}, ["F"], None)),
    *(("levels", "old", old) for old in ([5], [-5, 1], [2**63, 1], [float("inf"), 1], 5)),
    *(("changes", *item) for item in (("rows", "1"), ("rows", True), ("row", 1))),
    *(("reads", "at", at) for at in (7, {"project": "yesterday"})),
    *(("reads", "reads", reads) for reads in READS),
    *((name, "version", 2) for name in GOOD),
    *((name, "more", "w" * 5_000) for name in GOOD),  # longer than what is ever written
]


@pytest.mark.parametrize("name", READ)
def test_a_text_that_is_no_record_counts_as_none(name: str) -> None:
    read, lost = READ[name]
    assert [read(text) for text in NONE] == [lost] * len(NONE)


@pytest.mark.parametrize(("name", "field", "value"), WRONG)
def test_a_record_that_is_damaged_too_long_or_of_a_later_version_is_lost(name: str, field: str, value: Any) -> None:
    read, lost = READ[name]
    assert read(json.dumps(GOOD[name])) != lost
    assert read(json.dumps({**GOOD[name], field: value})) == lost


@pytest.mark.parametrize(
    "text",
    ["", SINCE, "true", "7", "null", "[]", "{}", '{"since": null}', '{"since": "x", "who": "y"}', "[" * 9999]
    + [json.dumps({"since": SINCE, "until": until}) for until in ("soon", 5, [], "")],
)
def test_a_text_that_is_no_record_suspends_without_an_end(text: str) -> None:
    """Whoever wrote it wanted no recluster."""
    assert Suspension.from_properties({SUSPENDED: text}) == Suspension(text)


def test_a_suspension_ends_at_its_time() -> None:
    past = Suspension(SINCE, until="2026-01-02")
    assert Suspension.from_properties({SUSPENDED: SUSPENDED.dump(asdict(past))}) is None
    # Whatever zone the record has, it is shown in UTC, as all times are.
    future = Suspension("2026-01-01T02:00:00+02:00", "etl", "2999-01-01", 'a "reason"')
    read = Suspension.from_properties({SUSPENDED: SUSPENDED.dump(asdict(future))})
    assert read == replace(future, since=SINCE, until="2999-01-01T00:00:00+00:00")
    assert str(read) == '2026-01-01 00:00:00 UTC by etl until 2999-01-01 00:00:00 UTC: a "reason"'
    assert Suspension.from_properties({}) is None
