"""What all tests without Spark share."""

import pytest
from hypothesis import settings

from dbt_recluster.iceberg.session import redaction

# A shared machine makes single examples slow.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the secrets of other tests."""
    monkeypatch.setattr(redaction, "_hidden", frozenset())
