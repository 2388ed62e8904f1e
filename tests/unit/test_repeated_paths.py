"""Paths that a snapshot lists twice are those that a dictionary of all paths shows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.iceberg.metadata.block_metadata import _repeated, codes_of

# Short ones, and those that differ only before the endings that are compared.
PATHS = st.lists(
    st.builds(
        "{}{}{}".format, st.text("ab", max_size=3), st.sampled_from(["", "x" * 80]), st.text("ä/", max_size=9)
    )
)


@given(PATHS, st.integers(0, 3))
def test_paths_listed_twice_are_found(paths: list[str], before: int) -> None:
    array = pa.array(["other"] * before + paths, pa.string())[before:]
    codes = codes_of(array)
    repeated = np.bincount(codes, minlength=1)[codes] > 1
    found = _repeated(array)
    assert (found is None) == (not repeated.any())
    assert found is None or (found == repeated).all()
