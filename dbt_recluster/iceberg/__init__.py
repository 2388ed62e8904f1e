"""Every call into Spark's JVM and Iceberg's Java API, and no other knowledge."""
