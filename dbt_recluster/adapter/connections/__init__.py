"""dbt's connections to Spark."""
