"""What runs in full at night only (NIGHTLY=1)."""

import os

NIGHTLY = bool(os.environ.get("NIGHTLY"))


def examples(count: int) -> int:
    """Return how many examples a property test tries: so many at night, a third of them by day."""
    return count if NIGHTLY else -(-count // 3)
