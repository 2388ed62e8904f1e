"""Connections to Spark, in this process or elsewhere, and the session that reclusters what they build."""
