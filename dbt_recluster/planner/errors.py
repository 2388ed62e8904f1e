"""Errors of the planner. Each says which input is wrong, and what would be right."""

from __future__ import annotations


class PlannerError(ValueError):
    """Input that the planner cannot work with. Nothing has been planned."""


class BoundsError(PlannerError):
    """The arrays that describe blocks do not fit together, or cannot be compared."""


class PolicyError(PlannerError):
    """A policy's value is outside of its range, or asks for what the blocks do not tell."""
