"""One table and what can be asked of its clustering. Knows the planner and Iceberg, but not dbt."""
