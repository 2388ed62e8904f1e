"""Paths of files and directories: which are one, and which lie within another."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.iceberg.actions import overlap
from dbt_recluster.iceberg.metadata.block_metadata import _repeated, codes_of

# Short ones, and those that differ only before the endings that are compared.
PATHS = st.lists(
    st.builds("{}{}{}".format, st.text("ab", max_size=3), st.sampled_from(["", "x" * 80]), st.text("ä/", max_size=9))
)


@given(PATHS, st.integers(0, 3))
def test_paths_listed_twice_are_found(paths: list[str], before: int) -> None:
    array = pa.array(["other"] * before + paths, pa.string())[before:]
    codes = codes_of(array)
    repeated = np.bincount(codes, minlength=1)[codes] > 1
    found = _repeated(array)
    assert (found is None) == (not repeated.any())
    assert found is None or (found == repeated).all()


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
