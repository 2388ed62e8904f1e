from __future__ import annotations

import pytest

from dbt_recluster.iceberg.actions import overlap


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("s3://lake/a", "s3a://lake/a/", True),
        ("file:/lake/a", "file:///lake/a/data", True),
        ("/lake/a", "file:/lake//b/../a", True),
        ("hdfs://namenode:8020/lake/a", "hdfs:///lake/a", True),
        ("hdfs://namenode/lake/a", "/lake/a/data", True),
        ("viewfs://cluster/lake", "hdfs://namenode/lake/a", True),
        ("s3://lake", "s3://lake/a", True),
        ("s3://lake/a", "s3://lake/ab", False),
        ("s3://lake/a", "s3://sea/a", False),
        ("/lake/a/data", "/lake/a/metadata", False),
    ],
)
def test_places_overlap_whatever_their_names(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected
