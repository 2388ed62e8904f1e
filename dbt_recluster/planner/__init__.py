"""What to rewrite: pure functions of arrays. NumPy only; no Spark, no Iceberg, no dbt."""
