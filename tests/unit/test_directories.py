from __future__ import annotations

import pytest

from dbt_recluster.iceberg.catalog_files import overlap


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://lake/a", "s3a://lake/a/"),
        ("file:/lake/a", "file:///lake/a/data"),
        ("/lake/a", "file:/lake//b/../a"),
        ("hdfs://namenode:8020/lake/a", "hdfs:///lake/a"),
        ("hdfs://namenode/lake/a", "/lake/a/data"),
        ("viewfs://cluster/lake", "hdfs://namenode/lake/a"),
        ("s3://lake", "s3://lake/a"),
    ],
)
def test_one_place_by_two_names(one: str, other: str) -> None:
    assert overlap(one, other)
    assert overlap(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [("s3://lake/a", "s3://lake/ab"), ("s3://lake/a", "s3://sea/a"), ("/lake/a/data", "/lake/a/metadata")],
)
def test_two_places(one: str, other: str) -> None:
    assert not overlap(one, other)
    assert not overlap(other, one)
