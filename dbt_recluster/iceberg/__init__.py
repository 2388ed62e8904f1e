"""Where the blocks are: every call into Spark's and Iceberg's Java classes, and no other knowledge."""
