"""What runs in full at night only (NIGHTLY=1)."""

import os

NIGHTLY = bool(os.environ.get("NIGHTLY"))


def examples(count: int) -> int:
    """Return the number of examples of a property test: ``count`` at night, a third of it by day."""
    return count if NIGHTLY else -(-count // 3)
