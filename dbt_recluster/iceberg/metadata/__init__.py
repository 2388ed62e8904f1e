"""The blocks of a snapshot and their bounds, the partitions changed since another one, and Iceberg's scans."""
