"""What dbt says of a recluster that failed after a build."""

from __future__ import annotations

import pytest

from dbt_recluster.adapter.connections.submission import failure_of_build
from dbt_recluster.exceptions import (
    CommitFailedError,
    CommitMismatchError,
    CommitStateUnknownError,
    ReclusterError,
)


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (CommitFailedError("no answer"), "was built but not reclustered"),
        (CommitMismatchError("9 rows"), "was built, and its recluster failed"),
        (CommitStateUnknownError("no answer"), "was built, and its recluster failed"),
    ],
)
def test_nobody_is_told_that_a_table_is_as_before_where_it_may_not_be(
    error: ReclusterError, what: str
) -> None:
    assert failure_of_build("s.t", error) == f"s.t {what}: {error}"
