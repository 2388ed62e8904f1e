"""The options of a recluster as the planner takes them."""

from __future__ import annotations

from typing import Any

from dbt_recluster.exceptions import OptionError
from dbt_recluster.planner import Policy, PolicyError

# The most bytes in one block set: what is lost when a merge fails. A larger one is cut along the key.
MAX_SET_BYTES = 100 * 2**30


def planning_policy(
    depth: float | None, strategy: str | None, max_bytes: int | None, block_rows: int
) -> Policy:
    """Return the planner's policy; None for ``depth`` or ``strategy`` takes its default.

    Raises:
        OptionError: A value has the wrong type or range.
    """
    given = {"depth": depth, "strategy": strategy}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        return Policy(max_bytes=max_bytes, max_merge_bytes=MAX_SET_BYTES, block_rows=block_rows, **options)
    except PolicyError as e:
        raise OptionError(str(e)) from e


def positive(name: str, value: int | None) -> int | None:
    """Return a whole number above 0, or None where none is given.

    Raises:
        OptionError: It is something else.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value <= 0):
        raise OptionError(f"{name} must be a whole number above 0, not {value!r}")
    return value
