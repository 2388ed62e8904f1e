"""Settings of the property tests."""

from hypothesis import settings

# A shared machine makes single examples slow; how fast planning is, benchmarks/planner_scale.py measures.
settings.register_profile("planner", deadline=None)
settings.load_profile("planner")
