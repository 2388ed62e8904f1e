"""Spark's session: how it starts, and how it is interrupted."""
