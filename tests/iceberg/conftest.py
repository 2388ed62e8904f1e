"""What several files of these tests share."""

from collections.abc import Iterator
from typing import Any

import pytest
from merges import typed_table
from tables import checksum


@pytest.fixture(scope="module")
def typed(spark: Any) -> Iterator[tuple[str, Any]]:
    """A table with a column of every type that a key may have, and its checksum."""
    with typed_table(spark) as name:
        yield name, checksum(spark, name)
