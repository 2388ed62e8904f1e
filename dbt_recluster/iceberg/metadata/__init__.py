"""The blocks of a snapshot and their bounds, what has changed since another one, and Iceberg's own scans."""
